"""The shape of a pod template as far as rendering reads it: where it has another one, that is said by name.

The API server stores what the CRD does not type unchecked. Each check yields one line for each problem:
where, expected, got. A key that was left blank is null there, and no mistake.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dgl_operator.api.v1alpha1 import shown

Check = Callable[[str, Any], Iterator[str]]


def template(where: str, value: Any) -> Iterator[str]:
    """Check a PodTemplateSpec."""
    yield from _TEMPLATE(where, value)


def _of(kind: type, expected: str) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield f"{where}: expected {expected}, got {shown(value)}"

    return check


def _record(required: Mapping[str, Check] | None = None, **optional: Check) -> Check:
    """An object with these keys; others are nobody's business here."""
    needed = required or {}

    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{where}: expected an object, got {shown(value)}"
            return
        for key, inner in needed.items():
            if value.get(key) in (None, ""):
                yield f"{where}.{key}: required, got nothing"
            else:
                yield from inner(f"{where}.{key}", value[key])
        for key, inner in optional.items():
            if value.get(key) is not None:
                yield from inner(f"{where}.{key}", value[key])

    return check


def _list(inner: Check, expected: str) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{where}: expected {expected}, got {shown(value)}"
            return
        for at, each in enumerate(value):
            yield from inner(f"{where}[{at}]", each)

    return check


def _map(inner: Check, expected: str) -> Check:
    def check(where: str, value: Any) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{where}: expected {expected}, got {shown(value)}"
            return
        for key, each in value.items():
            yield from inner(f"{where}[{_key(key)}]", each)

    return check


def _key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 100 else shown(key)


def _amount(where: str, value: Any) -> Iterator[str]:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        yield f"{where}: expected a quantity such as 20Gi or 500m, got {shown(value)}"


_TEXT = _of(str, "a string")
_OBJECT = _of(Mapping, "an object")
_WORDS = _list(_TEXT, "a list of strings")
_TEXTS = _map(_TEXT, "strings by name")
_AMOUNTS = _map(_amount, "amounts by name")
_RESOURCES = _record(limits=_AMOUNTS, requests=_AMOUNTS)
_NAMED = {"name": _TEXT}


def _objects(inner: Check) -> Check:
    return _list(inner, "a list of objects")


_CONTAINER = _record(
    _NAMED,
    image=_TEXT,
    command=_WORDS,
    args=_WORDS,
    workingDir=_TEXT,
    env=_objects(_record(_NAMED, value=_TEXT)),
    envFrom=_objects(_OBJECT),
    ports=_objects(_record(containerPort=_of(int, "a whole number"), name=_TEXT, protocol=_TEXT)),
    volumeMounts=_objects(_record({**_NAMED, "mountPath": _TEXT})),
    resources=_RESOURCES,
    securityContext=_OBJECT,
)

_POD = _record(
    {"containers": _objects(_CONTAINER)},
    initContainers=_objects(_CONTAINER),
    volumes=_objects(_record(_NAMED)),
    resources=_RESOURCES,
    securityContext=_OBJECT,
    serviceAccountName=_TEXT,
    serviceAccount=_TEXT,
    restartPolicy=_TEXT,
    hostname=_TEXT,
    subdomain=_TEXT,
    hostPID=_of(bool, "true or false"),
    setHostnameAsFQDN=_of(bool, "true or false"),
)

_TEMPLATE = _record({"spec": _POD}, metadata=_record(labels=_TEXTS, annotations=_TEXTS))
