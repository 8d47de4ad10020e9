"""What kwok does with a pod: its Stages, each a reaction to what the pod itself shows.

Every pod starts, workers and the partitioner run, the partitioner and the launcher succeed a second after
their main container started. That the launcher's main container starts is not decided here, since it
depends on other pods: the launcher driver writes that one status.

The statuses are Go templates, which kwok renders to YAML; `@WORD` is filled in here.
"""

import json
from typing import Any

from tests.benchmarks.operator_bench.bodies import LAUNCHER, PARTITIONER, ROLE, WORKER

Json = dict[str, Any]

START_MS = 500
"""From ContainerCreating to a running container."""
WORK_MS = 1000
"""How long the partitioner's and the launcher's main containers run."""

_STARTED = "startTime: {{ Now | Quote }}\nphase: Pending\n"

_ADDRESSES = """
{{ if not .status.podIP }}
{{ with NodeIPsWith .spec.nodeName }}
hostIP: {{ index . 0 | Quote }}
hostIPs: [{ ip: {{ index . 0 | Quote }} }]
{{ end }}
{{ with PodIPsWith .spec.nodeName false .metadata.uid .metadata.name .metadata.namespace }}
podIP: {{ index . 0 | Quote }}
podIPs: [{ ip: {{ index . 0 | Quote }} }]
{{ end }}
{{ end }}
"""

_CONDITIONS = """
conditions:
{{ range $type := list "Initialized" "ContainersReady" "Ready" }}
- { type: {{ $type }}, lastTransitionTime: {{ Now | Quote }}, status: "@STATUS" }
{{ end }}
"""

_CONTAINERS = """
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  restartCount: 0
  ready: @READY
  state: { @STATE }
{{ end }}
"""

_INITIALIZED = """
initContainerStatuses:
{{ range $index, $item := .spec.initContainers }}
- name: {{ $item.name | Quote }}
  image: {{ $item.image | Quote }}
  imageID: ""
  restartCount: 0
  ready: {{ lt $index @NUMBER }}
  state:
{{ if lt $index @NUMBER }}
    @ENDED
{{ else if eq $index @NUMBER }}
    @RUNNING
{{ else }}
    waiting: { reason: PodInitializing }
{{ end }}
{{ end }}
"""

_RUNNING = "running: { startedAt: {{ Now | Quote }} }"
_ENDED = (
    "terminated: { exitCode: 0, reason: Completed,"
    " startedAt: {{ Now | Quote }}, finishedAt: {{ Now | Quote }} }"
)
_ALL = 99
"""More init containers than any pod has."""

_HAS_STARTED = ".status.startTime"
_HAS_INIT = ".spec.initContainers"
_FIRST_INIT_RUNS = ".status.initContainerStatuses.[0].state.running.startedAt"


OPTIONS: Json = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        "podPlayStageParallelism": 16,
        "nodePlayStageParallelism": 4,
        "nodeLeaseParallelism": 4,
        "podsOnNodeSyncParallelism": 4,
        "enablePodsOnNodeSyncStreamWatch": True,
    },
}
"""Pods of one node do not wait for each other."""


def config() -> str:
    """Options and Stages as documents of kwok's configuration file (JSON serves where YAML is read)."""
    documents = (OPTIONS, node_stage(), *pod_stages())
    return "\n---\n".join(json.dumps(document, indent=1) for document in documents)


def node_stage() -> Json:
    """A new node becomes Ready; kwok renews its lease from then on."""
    ready = '.status.conditions.[] | select(.type == "Ready") | .status'
    now = "{{ Now | Quote }}"
    found = _bare("Node", "ready", [{"key": ready, "operator": "NotIn", "values": ["True"]}])
    found["spec"]["next"] = {
        "statusTemplate": "conditions:\n- { type: Ready, status: 'True', reason: Fake, "
        f"lastHeartbeatTime: {now}, lastTransitionTime: {now} }}"
    }
    return found


def pod_stages() -> list[Json]:
    """The life of a pod."""
    waiting = [_phase("Pending"), _role(LAUNCHER), (_FIRST_INIT_RUNS, ...)]
    at_work = [_phase("Pending"), _role(WORKER, PARTITIONER), (_HAS_STARTED, ...)]
    return [
        _stage("create", [(_HAS_STARTED, None), (_HAS_INIT, None)], _created("ContainerCreating")),
        _stage(
            "initialize",
            [(_HAS_STARTED, None), (_HAS_INIT, ...)],
            _created("PodInitializing") + _initialized(0) + _ADDRESSES,
        ),
        _stage("wait", waiting, _initialized(1), START_MS),
        _stage("run", at_work, _running(), START_MS),
        _stage("succeed", [_phase("Running"), _role(LAUNCHER, PARTITIONER)], _succeeded(), WORK_MS),
        _delete(),
    ]


def _created(reason: str) -> str:
    return _STARTED + _conditions(False) + _containers(f"waiting: {{ reason: {reason} }}")


def _running() -> str:
    containers = _initialized(_ALL) + _containers(_RUNNING, True)
    return "phase: Running\n" + _conditions(True) + containers + _ADDRESSES


def _succeeded() -> str:
    return "phase: Succeeded\n" + _conditions(False) + _containers(_ENDED)


def _conditions(is_true: bool) -> str:
    return _CONDITIONS.replace("@STATUS", str(is_true))


def _containers(state: str, ready: bool = False) -> str:
    return _CONTAINERS.replace("@STATE", state).replace("@READY", str(ready).lower())


def _initialized(number: int) -> str:
    """So many init containers have ended, and the next one runs."""
    text = _INITIALIZED.replace("@NUMBER", str(number))
    return text.replace("@ENDED", _ENDED).replace("@RUNNING", _RUNNING)


def _phase(value: str) -> tuple[str, list[str]]:
    return ".status.phase", [value]


def _role(*values: str) -> tuple[str, list[str]]:
    return f'.metadata.labels["{ROLE}"]', list(values)


def _stage(name: str, when: list[tuple[str, Any]], status: str, delay_ms: int = 0) -> Json:
    """A Stage that writes a status; in `when` None means absent, `...` present, a list one of these."""
    conditions = [(".metadata.deletionTimestamp", None), *when]
    found = _bare("Pod", name, [_expression(key, wanted) for key, wanted in conditions])
    found["spec"]["next"] = {"statusTemplate": status}
    if delay_ms:
        found["spec"]["delay"] = {"durationMilliseconds": delay_ms}
    return found


def _delete() -> Json:
    """Finalizers stay: the built-in controllers take theirs off."""
    found = _bare("Pod", "delete", [_expression(".metadata.deletionTimestamp", ...)])
    found["spec"]["next"] = {"delete": True}
    return found


def _bare(kind: str, name: str, expressions: list[Json]) -> Json:
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": f"{kind.lower()}-{name}"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": kind},
            "selector": {"matchExpressions": expressions},
        },
    }


def _expression(key: str, wanted: Any) -> Json:
    if wanted is None:
        return {"key": key, "operator": "DoesNotExist"}
    if wanted is ...:
        return {"key": key, "operator": "Exists"}
    return {"key": key, "operator": "In", "values": wanted}
