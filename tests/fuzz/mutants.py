"""Good DGLJobs with something wrong: places are found by the schema, and every change is named."""

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from dglrun.contract.names import Mode
from tests.fuzz import shapes, values
from tests.fuzz.shapes import Shape
from tests.support.jobs import a_template
from tests.support.played_job import SCHEDULER, a_played_job

Json = dict[str, Any]
Keys = tuple[str | int, ...]


@dataclass(frozen=True)
class Place:
    """One value of the job: its holder, its key there, and what the schema says of it."""

    holder: Any
    key: str | int
    keys: Keys
    shape: Shape

    @property
    def value(self) -> Any:
        """What stands there."""
        return self.holder[self.key]

    def put(self, value: Any) -> None:
        """Replace it."""
        self.holder[self.key] = value

    def __str__(self) -> str:
        return ".".join(str(key) for key in self.keys)


def mutant(rng: random.Random, name: str) -> tuple[Json, str]:
    """Return a job and what was done to it."""
    body = good(rng, name)
    count = rng.choices([1, 2, 4], [75, 18, 7])[0]
    done = [_mutate(body, rng) for _ in range(count)]
    return pinned(body), "; ".join(done)


def good(rng: random.Random, name: str) -> Json:
    """Return a job that the operator takes, with more or less of a pod template filled in."""
    mode = rng.choice(tuple(Mode))
    given: Json = {"launcher": None, "worker": None}
    if rng.random() < 0.5:
        given["launcher"] = rich_template()
    if mode.has_workers and rng.random() < 0.5:
        given["worker"] = rich_template()
    if mode.has_partitioner and rng.random() < 0.3:
        given["partitioner"] = a_template(command=["python", "partition.py"])
    if rng.random() < 0.3:
        given["networkPolicy"] = {"enabled": True, "ingress": [rich_rule()]}
    body = a_played_job(name, workers=rng.choice([1, 2, 3]), mode=mode, **given)
    return copy.deepcopy(body)  # builders share parts, and a mutation must stay in its place


def rich_rule() -> Json:
    """Return a NetworkPolicyIngressRule with each kind of peer and port."""
    peers = [
        {"podSelector": {"matchLabels": {"app": "prometheus"}}, "namespaceSelector": {}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]
    return {"from": peers, "ports": [{"port": 9100, "endPort": 9200}, {"protocol": "UDP", "port": "stats"}]}


def rich_template() -> Json:
    """Return a pod template that uses every key of which the operator reads or merges something."""
    main: Json = {
        "command": ["dglrun"],
        "args": ["--graph-name", "graphsage", "--train-entry-point", "code/train.py"],
        "env": [{"name": "EPOCHS", "value": "3"}],
        "envFrom": [{"configMapRef": {"name": "settings", "optional": True}}],
        "ports": [{"name": "metrics", "containerPort": 9090}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m"}},
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    template = a_template(**main)
    template["metadata"] = {"labels": {"team": "graphs"}, "annotations": {"note": "kept"}}
    template["spec"] |= {
        "initContainers": [{"name": "prepare", "image": "example/prepare:v1"}],
        "volumes": [{"name": "scratch", "emptyDir": {}}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": {"fsGroup": 1000},
    }
    return template


def pinned(body: Json) -> Json:
    """Return the job with pods that no scheduler takes and no node runs, wherever it has a pod spec."""
    for role in _values(_at(body, "spec", "dglReplicaSpecs")):
        pod = _at(role, "template", "spec")
        if not isinstance(pod, dict):
            continue
        if pod.get("schedulerName") in (None, "", "default-scheduler"):
            pod["schedulerName"] = SCHEDULER
        if isinstance(pod.get("nodeName"), str):
            del pod["nodeName"]
    return body


def _at(value: Any, *keys: str) -> Any:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _values(value: Any) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else []


def places(body: Json, shape: Shape) -> list[Place]:
    """All values below the outermost object, but for API version, kind and name."""
    return [found for found in _walk(body, shape, ()) if found.keys != ("metadata", "name")]


def _walk(value: Any, shape: Shape, keys: Keys) -> Iterator[Place]:
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        pairs = [(key, below) for key, below in value.items() if keys or key not in ("apiVersion", "kind")]
    elif isinstance(value, list):
        pairs = list(enumerate(value))
    for key, below in pairs:
        inner = shape.below(key)
        yield Place(value, key, (*keys, key), inner)
        yield from _walk(below, inner, (*keys, key))


def _mutate(body: Json, rng: random.Random) -> str:
    found = places(body, shapes.job())
    if not found:
        return "nothing is left"
    usual = [place for place in found if place.keys[0] == "spec"] or found
    place = rng.choice(found if rng.random() < 0.1 else usual)
    fitting = [change for change, fits in CHANGES if fits(place)]
    return rng.choice(fitting)(place, rng)


def replace(place: Place, rng: random.Random) -> str:
    """Put any odd value there."""
    name, value = values.any_odd(rng)
    place.put(copy.deepcopy(value))
    return f"{place} := {name}"


def odd_scalar(place: Place, rng: random.Random) -> str:
    """Put an odd value of the right type there."""
    draw = (
        values.number if place.shape.type in ("integer", "number") else rng.choice([values.text, values.huge])
    )
    name, value = draw(rng)
    place.put(value)
    return f"{place} := {name}"


def drop(place: Place, _rng: random.Random) -> str:
    """Take the key away."""
    del place.holder[place.key]
    return f"{place} dropped"


def mistype(place: Place, rng: random.Random) -> str:
    """Rename the key as a hurried user would."""
    key = str(place.key)
    at = rng.randrange(len(key)) if key else 0
    wrong = rng.choice([key.lower(), key.upper(), key[:at] + key[at + 1 :], key + "s", f" {key}", key[::-1]])
    place.holder[wrong] = place.holder.pop(place.key)
    return f"{place} renamed to {wrong!r}"


def unknown_key(place: Place, rng: random.Random) -> str:
    """Give the object a key that no schema knows."""
    key = rng.choice(["unknown", "x-odd", "", "a.b/c", "\U0001f469", "__proto__", "k" * 5000])
    name, value = values.any_odd(rng)
    place.value[key] = copy.deepcopy(value)
    return f"{place}.{key[:20]} := {name}"


def known_key(place: Place, rng: random.Random) -> str:
    """Give the object one more key of its schema, with a plausible value or an odd one."""
    fields = place.shape.fields()
    key = rng.choice(sorted(set(fields) - set(place.value)) or sorted(fields))
    if rng.random() < 0.5:
        place.value[key] = shapes.sample(fields[key], rng, key)
        return f"{place}.{key} := a plausible value"
    name, value = values.any_odd(rng)
    place.value[key] = copy.deepcopy(value)
    return f"{place}.{key} := {name}"


def twice(place: Place, rng: random.Random) -> str:
    """Repeat an item of a list, so that names are not unique."""
    count = rng.choice([2, 2, 300])
    index = rng.randrange(len(place.value))
    place.value.extend(copy.deepcopy(place.value[index]) for _ in range(count - 1))
    return f"{place}.{index} stands there {count} times"


def _always(_place: Place) -> bool:
    return True


def _is_key(place: Place) -> bool:
    return isinstance(place.holder, dict)


def _is_scalar(place: Place) -> bool:
    return place.shape.type in ("string", "integer", "number")


def _is_object(place: Place) -> bool:
    return isinstance(place.value, dict)


def _has_fields(place: Place) -> bool:
    return isinstance(place.value, dict) and bool(place.shape.fields())


def _has_items(place: Place) -> bool:
    return isinstance(place.value, list) and bool(place.value)


Change = Callable[[Place, random.Random], str]
CHANGES: tuple[tuple[Change, Callable[[Place], bool]], ...] = (
    (replace, _always),
    (odd_scalar, _is_scalar),
    (drop, _is_key),
    (mistype, _is_key),
    (unknown_key, _is_object),
    (known_key, _has_fields),
    (twice, _has_items),
)
