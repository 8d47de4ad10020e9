"""What is kept in memory of a child: the keys that `observed` reads and those that are compared with ours.

Both functions are idempotent, bounded whatever the object holds, and never raise.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from dgl_operator.api import kueue
from dgl_operator.api.v1alpha1 import MAX_ANNOTATIONS, MAX_WORKERS
from dgl_operator.domain import admission, fields
from dgl_operator.domain.report import MAX_BYTES
from dglrun.contract import names, report

Json = dict[str, Any]

MAX_TEXT = 4096
"""Characters of a text, as long as a termination message can be."""
MAX_CONTAINERS = 64
MAX_FILE = 256 * 1024
"""Characters of a file of `<job>-config`; 1,000 workers have 100 KB. A longer one is not ours any more."""

MAX_POLICY = 64 * 1024
"""Characters of a NetworkPolicy's spec as JSON; a longer one is not kept and applied again at each look."""

_FEW = 16
_OWNER = ("apiVersion", "kind", "name", "uid", "controller", "blockOwnerDeletion")
_CONDITION = ("type", "status", "reason", "message", "lastTransitionTime")
_CONDITIONS = ("Ready", "PodScheduled", "DisruptionTarget")
"""Of others only type and status are kept, for the rules of a failure policy."""
_LABELS = (
    *("app", names.LABEL_JOB, names.LABEL_ROLE, names.LABEL_INDEX, names.LABEL_ATTEMPT),
    *(names.LABEL_REPLICA_NAME, names.LABEL_REPLICA_TYPE),
)
_ANNOTATIONS = (names.ANNOTATION_CONFIG_HASH, names.ANNOTATION_MAIN, names.ANNOTATION_REPLICA)
_FILES = (names.KUBEXEC, names.HOSTFILE, names.IPCONFIG, names.PARTFILE, names.LEADFILE)


def pod(raw: Mapping[str, Any]) -> Json:
    """Return what is kept of a pod."""
    spec, status = fields.mapping(raw.get("spec")), fields.mapping(raw.get("status"))
    metadata = _metadata(raw)
    main = fields.text(fields.mapping(metadata.get("annotations")).get(names.ANNOTATION_MAIN))
    return {
        **_scalars(raw, ("apiVersion", "kind")),
        "metadata": metadata,
        "spec": {
            **_scalars(spec, ("activeDeadlineSeconds", "nodeName", "terminationGracePeriodSeconds")),
            "containers": [_scalars(each, ("name",)) for each in _chosen(spec.get("containers"), main)],
        },
        "status": {
            **_scalars(status, ("phase", "reason", "message", "podIP", "startTime")),
            "podIPs": [_scalars(each, ("ip",)) for each in fields.items(status.get("podIPs"))[:_FEW]],
            "conditions": _conditions(fields.items(status.get("conditions"))),
            "containerStatuses": [
                _container(each) for each in _chosen(status.get("containerStatuses"), main)
            ],
            "initContainerStatuses": [
                _container(each) for each in _chosen(status.get("initContainerStatuses"), "")
            ],
        },
    }


def other(raw: Mapping[str, Any]) -> Json:
    """Return what is kept of a child that is no pod: what the operator renders of its kind."""
    found: Json = {**_scalars(raw, ("apiVersion", "kind")), "metadata": _metadata(raw)}
    if raw.get("kind") == "ServiceAccount":
        found["metadata"] |= _account_annotations(fields.mapping(raw.get("metadata")))
    if isinstance(raw.get("data"), Mapping):
        found["data"] = _data(raw["data"])
    if "rules" in raw:
        found["rules"] = [_rule(each) for each in fields.items(raw["rules"])[:_FEW]]
    if "subjects" in raw:
        found["subjects"] = [
            _scalars(each, ("kind", "name", "namespace", "apiGroup"))
            for each in fields.items(raw["subjects"])[:_FEW]
        ]
    if "roleRef" in raw:
        found["roleRef"] = _scalars(fields.mapping(raw["roleRef"]), ("apiGroup", "kind", "name"))
    if raw.get("kind") == "Service":
        found["spec"] = _service(fields.mapping(raw.get("spec")))
    if raw.get("kind") == "NetworkPolicy":
        found["spec"] = _policy(fields.mapping(raw.get("spec")))
    if raw.get("kind") == kueue.KIND:
        found["spec"] = _scalars(fields.mapping(raw.get("spec")), ("queueName", "active"))
        found["status"] = _admission(fields.mapping(raw.get("status")))
    return found


def _metadata(raw: Mapping[str, Any]) -> Json:
    metadata = fields.mapping(raw.get("metadata"))
    kept = (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    )
    found = _scalars(metadata, kept)
    for key, ours in (("labels", _LABELS), ("annotations", _ANNOTATIONS)):
        if values := _scalars(fields.mapping(metadata.get(key)), ours):
            found[key] = values
    owners = [
        each for each in fields.items(metadata.get("ownerReferences")) if each.get("controller") is True
    ]
    return {**found, "ownerReferences": [_scalars(each, _OWNER) for each in owners[:1]]}


def _scalars(source: Mapping[str, Any], keys: Iterable[str]) -> Json:
    """Texts, numbers and truth values of these keys; a long text keeps its beginning."""
    found: Json = {}
    for key in keys:  # many times for each event of a pod: no second dictionary, no union of types
        value = source.get(key)
        if isinstance(value, str):
            found[key] = value[:MAX_TEXT]
        elif isinstance(value, (int, float)):
            found[key] = value
    return found


def _conditions(conditions: list[Mapping[str, Any]]) -> list[Json]:
    """The conditions that are read whole, and so many others by type and status."""
    each_type = _first_of_each(conditions)
    others = [each for each in each_type if each.get("type") not in _CONDITIONS][:_FEW]
    return [
        _scalars(each, _CONDITION if each.get("type") in _CONDITIONS else _CONDITION[:2])
        for each in each_type
        if each.get("type") in _CONDITIONS or each in others
    ]


def _first_of_each(conditions: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """One condition of each type: the first, which is the one that is read."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in conditions:
        found.setdefault(fields.text(each.get("type")), each)
    return list(found.values())


def _chosen(containers: Any, main: str) -> list[Mapping[str, Any]]:
    """The containers, of very many the main one and those that have not ended with 0 before others."""
    found = fields.items(containers)
    if len(found) <= MAX_CONTAINERS:
        return found
    order = sorted(range(len(found)), key=lambda at: (found[at].get("name") != main, _is_done(found[at]), at))
    return [found[at] for at in sorted(order[:MAX_CONTAINERS])]


def _is_done(container: Mapping[str, Any]) -> bool:
    terminated = fields.mapping(container.get("state")).get("terminated")
    return isinstance(terminated, Mapping) and terminated.get("exitCode") == 0


def _container(status: Mapping[str, Any]) -> Json:
    """A status of a container: whether it waits, runs or has ended, and whether it has run before."""
    state = fields.mapping(status.get("state"))
    found = _scalars(status, ("name",))
    if isinstance(waiting := state.get("waiting"), Mapping):
        found["state"] = {"waiting": _scalars(waiting, ("reason", "message"))}
    if isinstance(running := state.get("running"), Mapping):
        found["state"] = {"running": _scalars(running, ("startedAt",))}
    if isinstance(terminated := state.get("terminated"), Mapping):
        # The end of a termination message names the cause, so that a long one keeps its end.
        message = fields.text(terminated.get("message"))[-MAX_TEXT:]
        kept = _scalars(terminated, ("exitCode", "reason", "finishedAt"))
        found["state"] = {"terminated": {**kept, "message": message}}
    before = fields.mapping(status.get("lastState")).get("terminated")
    if isinstance(before, Mapping):
        found["lastState"] = {"terminated": _scalars(before, ("exitCode",))}
    return found


def _data(data: Mapping[str, Any]) -> dict[str, str]:
    """Our files whole, and of a report one character more than is read, so that its length still shows."""
    longest = dict.fromkeys(_FILES, MAX_FILE) | dict.fromkeys((report.PROGRESS, report.PARTITION), MAX_BYTES)
    return {key: fields.text(data[key])[: most + 1] for key, most in longest.items() if key in data}


def _rule(rule: Mapping[str, Any]) -> Json:
    longest = {"apiGroups": _FEW, "resources": _FEW, "verbs": _FEW, "resourceNames": MAX_WORKERS + _FEW}
    return {
        key: [fields.text(each)[:MAX_TEXT] for each in rule[key][:most]]
        for key, most in longest.items()
        if isinstance(rule.get(key), list)
    }


def _service(spec: Mapping[str, Any]) -> Json:
    return {
        **_scalars(spec, ("clusterIP", "publishNotReadyAddresses")),
        "selector": _scalars(fields.mapping(spec.get("selector")), _LABELS),
        "ports": [
            _scalars(each, ("name", "port", "protocol")) for each in fields.items(spec.get("ports"))[:_FEW]
        ],
    }


def _admission(status: Mapping[str, Any]) -> Json:
    """Of a Workload's status the conditions that are read, and what the admission gives to the pods."""
    conditions = [
        _scalars(each, _CONDITION[:4])
        for each in fields.items(status.get("conditions"))
        if each.get("type") in admission.CONDITIONS
    ]
    found: Json = {"conditions": conditions[:_FEW]}
    if admitted := fields.mapping(status.get("admission")):
        sets = fields.items(admitted.get("podSetAssignments"))[:_FEW]
        found["admission"] = {"podSetAssignments": [_assignment(each) for each in sets]}
    if checks := fields.items(status.get("admissionChecks"))[:_FEW]:
        found["admissionChecks"] = [
            {"podSetUpdates": [_update(each) for each in fields.items(check.get("podSetUpdates"))[:_FEW]]}
            for check in checks
        ]
    return found


def _assignment(each: Mapping[str, Any]) -> Json:
    flavors = fields.mapping(each.get("flavors"))
    return {**_scalars(each, ("name",)), "flavors": _scalars(flavors, list(flavors)[:_FEW])}


def _update(each: Mapping[str, Any]) -> Json:
    maps = {key: fields.mapping(each.get(key)) for key in ("labels", "annotations", "nodeSelector")}
    return {
        **_scalars(each, ("name",)),
        **{key: _scalars(values, list(values)[:_FEW]) for key, values in maps.items()},
        "tolerations": [
            _scalars(toleration, ("key", "operator", "value", "effect", "tolerationSeconds"))
            for toleration in fields.items(each.get("tolerations"))[:_FEW]
        ],
    }


def _account_annotations(metadata: Mapping[str, Any]) -> Json:
    """The annotations that the job gives the account, which names them; none of others."""
    values = fields.mapping(metadata.get("annotations"))
    keys = fields.text(values.get(names.ANNOTATION_KEYS))
    found = _scalars(values, (names.ANNOTATION_KEYS, *keys.split(",")[:MAX_ANNOTATIONS])) if keys else {}
    return {"annotations": found} if found else {}


def _policy(spec: Mapping[str, Any]) -> Json:
    """The whole spec, since the user's rules are part of it; nothing of one that is too long."""
    return dict(spec) if len(json.dumps(spec)) <= MAX_POLICY else {}
