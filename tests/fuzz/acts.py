"""What happens to a job after it was accepted: requests, retried while their object is not there yet."""

import json
import random
from dataclasses import dataclass
from typing import Any

from dgl_operator.runtime.kinds import Kind
from dglrun.contract import names
from tests.fuzz import shapes, values
from tests.fuzz.children import INNOCENT
from tests.fuzz.json_text import encode
from tests.support.jobs import a_pod_status, ended, running, waiting

Json = dict[str, Any]
MERGE = "application/merge-patch+json"
OPTIONS = "application/json"
TIME = "2026-11-21T11:30:00Z"
FINALIZER = "fuzz.example.com/held"


@dataclass(frozen=True)
class Act:
    """One request on one object.

    Attributes:
        name: Of the object, with `{job}` for the job's name.
        body: JSON text.
        subresource: `status` or empty.
    """

    method: str
    kind: Kind
    name: str
    body: bytes
    subresource: str = ""
    content_type: str = MERGE


def patch(kind: Kind, name: str, body: Any, subresource: str = "") -> Act:
    """Merge into an object."""
    return Act("PATCH", kind, name, encode(body), subresource)


def pod_status(suffix: str, phase: str, **given: Any) -> Act:
    """Report a pod's status as its kubelet would."""
    told = a_pod_status(phase, **given)
    for key in ("containerStatuses", "initContainerStatuses"):
        told[key] = [_whole(each) for each in told[key]]
    told["conditions"] = [{**each, "lastTransitionTime": TIME} for each in told["conditions"]]
    return patch(Kind.POD, f"{{job}}-{suffix}", {"status": told}, "status")


def _whole(container: Json) -> Json:
    """What the API server demands beside the state."""
    is_ready = "running" in container["state"]
    return {"image": "x", "imageID": "x", "ready": is_ready, "restartCount": 0, **container}


def life(workers: int = 2, until: int = 100) -> tuple[Act, ...]:
    """The first steps of a DGL-API job's life; all of them complete it."""
    init = [ended("kubectl-download"), running("watcher-loop-partitioner"), waiting("watcher-loop-worker")]
    steps = [
        pod_status("launcher", "Pending", ip="10.9.0.1", containers=[waiting()], init=init),
        pod_status("partitioner", "Running", ip="10.9.0.2"),
        pod_status("partitioner", "Succeeded", ip="10.9.0.2"),
        *(
            pod_status(f"worker-{index}", "Running", ip=f"10.9.1.{index}", ready=True)
            for index in range(workers)
        ),
        pod_status("launcher", "Running", ip="10.9.0.1"),
        END,
    ]
    return tuple(steps[:until])


END = pod_status("launcher", "Succeeded", ip="10.9.0.1")


def delete_job(policy: str, seconds: int | None = None) -> Act:
    """Delete the job as kubectl does."""
    options: Json = {"propagationPolicy": policy}
    if seconds is not None:
        options["gracePeriodSeconds"] = seconds
    return Act("DELETE", Kind.JOB, "{job}", encode(options), "", OPTIONS)


RELABELLINGS: dict[str, Json] = {
    "role label removed": {names.LABEL_REPLICA_TYPE: None},
    "role label changed": {names.LABEL_REPLICA_TYPE: "Chief"},
    "role label of another role": {names.LABEL_REPLICA_TYPE: "Partitioner"},
    "own role label removed": {names.LABEL_ROLE: None},
    "job label removed": {names.LABEL_JOB: None},
    "job label of another job": {names.LABEL_JOB: INNOCENT},
    "index changed": {names.LABEL_INDEX: "7"},
    "index removed": {names.LABEL_INDEX: None},
    "index of many digits": {names.LABEL_INDEX: "9" * 63},
    "all labels removed": {
        key: None for key in (names.LABEL_REPLICA_TYPE, names.LABEL_JOB, names.LABEL_ROLE, names.LABEL_INDEX)
    },
}


def relabel(suffix: str, change: str) -> Act:
    """Change a pod's labels."""
    return patch(Kind.POD, f"{{job}}-{suffix}", {"metadata": {"labels": RELABELLINGS[change]}})


def strangers_status(rng: random.Random) -> tuple[Act, str]:
    """Write the job's status as somebody who may."""
    name = rng.choice(sorted(_STATUSES))
    if name == "sampled":
        sampled = shapes.sample(shapes.status(), rng)
        return patch(Kind.JOB, "{job}", {"status": sampled}, "status"), f"status {json.dumps(sampled)[:200]}"
    return patch(Kind.JOB, "{job}", {"status": _STATUSES[name]}, "status"), f"status: {name}"


def _condition(**given: Any) -> Json:
    usual = {"type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": TIME}
    return {**usual, **given}


_STATUSES: dict[str, Any] = {
    "sampled": None,
    "null": None,
    "empty": {},
    "completed": {"phase": "Completed"},
    "failed": {"phase": "Failed", "message": "no"},
    "training": {"phase": "Training"},
    "no phase": {"phase": None},
    "year 0": {"startTime": "0000-01-01T00:00:00Z"},
    "year 9999": {"completionTime": "9999-12-31T23:59:59.999999999Z"},
    "a time of many digits": {"startTime": "2026-11-21T11:30:00.12345678901234567890Z"},
    "an empty time": {"startTime": ""},
    "a time without a zone": {"startTime": "2026-11-21T11:30:00"},
    "a time in lower case": {"lastReconcileTime": "2026-11-21t11:30:00z"},
    "a list for a time": {"startTime": [TIME]},
    "a date": {"lastReconcileTime": "2026-11-21"},
    "a leap second": {"startTime": "2016-12-31T23:59:60Z"},
    "an odd zone": {"startTime": "2026-11-21T11:30:00+23:59"},
    "a condition with an odd time": {"conditions": [_condition(lastTransitionTime="0000-01-01T00:00:00Z")]},
    "progress with an odd time": {"progress": {"stage": "Training", "time": "0000-01-01T00:00:00Z"}},
    "an odd stage": {"progress": {"stage": "\u202e", "message": "x" * values.HUGE, "percent": 100}},
    "a generation of int64": {"observedGeneration": 2**63 - 1},
    "five hundred conditions": {"conditions": [_condition(type=f"Odd{number}") for number in range(500)]},
    "a long reason": {"conditions": [_condition(reason="R" * 1024, message="m" * 32768)]},
    "a condition of ours that is odd": {
        "conditions": [_condition(type="Blocked", reason="\u00e9", message="")]
    },
    "launcher started": {"conditions": [_condition(type="LauncherStarted"), _condition(type="Partitioned")]},
    "odd replicas": {"replicaStatuses": {"Chief": {"ready": "\u00b2/0", "running": 2**31 - 1}}},
    "a partition": {"partition": {"edgeCut": "9" * 5000 + "%", "numNodes": 2**53}},
    "unknown keys": {"odd": {"odd": [1]}},
    "a text": "odd",
}


def mutable_update(rng: random.Random) -> tuple[Act, str]:
    """Change what the CRD lets a user change, or try what it does not."""
    change: Json = rng.choice(
        [
            {"spec": {"cleanPodPolicy": "All"}},
            {"spec": {"cleanPodPolicy": "None"}},
            {"spec": {"cleanPodPolicy": None}},
            {"spec": {"slotsPerWorker": 4}},
            {"spec": {"partitionMode": "Skip"}},
            {"spec": {"dglReplicaSpecs": {"Worker": {"replicas": 5}}}},
            {"metadata": {"annotations": {"note": "x" * values.HUGE}}},
            {"metadata": {"labels": {names.LABEL_JOB: INNOCENT}}},
            {"metadata": {"finalizers": [FINALIZER]}},
        ]
    )
    return patch(Kind.JOB, "{job}", change), f"update {json.dumps(change)[:100]}"


def odd_pod_status(rng: random.Random) -> tuple[Act, str]:
    """Report a status that no kubelet would."""
    suffix, phase = rng.choice(["launcher", "partitioner"]), rng.choice(["Pending", "Running", "Failed"])
    name = rng.choice(sorted(_POD_STATUSES))
    body = {"status": {"phase": phase, **_POD_STATUSES[name]}}
    return patch(Kind.POD, f"{{job}}-{suffix}", body, "status"), f"{suffix} {phase}: {name}"


_LONG = "m" * values.HUGE


def _containers(**state: Any) -> Json:
    return {"containerStatuses": [_whole({"name": "main", "state": state})]}


_POD_STATUSES: dict[str, Json] = {
    "a long waiting message": _containers(waiting={"reason": "ImagePullBackOff", "message": _LONG}),
    "a long waiting reason": _containers(waiting={"reason": "R" * 5000, "message": "x"}),
    "an invalid image with a long message": _containers(
        waiting={"reason": "InvalidImageName", "message": _LONG}
    ),
    "a long termination message": _containers(terminated={"exitCode": 3, "message": _LONG}),
    "a long termination reason": _containers(terminated={"exitCode": 3, "reason": "R" * 5000}),
    "an exit code of int32": _containers(terminated={"exitCode": -(2**31)}),
    "a termination without a time": _containers(terminated={"exitCode": 1, "finishedAt": None}),
    "an unreadable time": _containers(terminated={"exitCode": 1, "finishedAt": "0001-01-01T00:00:00Z"}),
    "unknown containers": {"containerStatuses": [_whole({"name": "odd", "state": {}})]},
    "no containers": {"containerStatuses": None},
    "an empty state": _containers(),
    "a long scheduling message": {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": _LONG}
        ]
    },
    "a scheduling reason that is no reason": {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "no reason \u00e9!", "message": "x"}
        ]
    },
    "a long disruption": {
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "R" * 5000, "message": _LONG}]
    },
    "a condition of an unknown status": {"conditions": [{"type": "Ready", "status": "Odd"}]},
    "a long reason of the pod": {"reason": "R" * 5000, "message": _LONG},
    "an IPv6 address": {"podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}]},
    "no address": {"podIP": "", "podIPs": []},
    "an address that is none": {"podIP": "odd", "podIPs": [{"ip": "odd"}]},
}


def odd_report(rng: random.Random) -> tuple[Act, str]:
    """Report progress or quality that is no JSON, or too much of it."""
    key = rng.choice(["progress.json", "partition.json", "odd.json"])
    name = rng.choice(sorted(_REPORTS))
    return patch(Kind.CONFIG_MAP, "{job}-report", {"data": {key: _REPORTS[name]}}), f"{key}: {name}"


_REPORTS = {
    "1,100 levels": "[" * 1100 + "]" * 1100,
    "100,000 levels": "[" * 100_000,
    "a deep stage": '{"stage": ' + '{"a":' * 5000 + "1" + "}" * 5000 + "}",
    "no JSON": "{",
    "five thousand digits": '{"stage": "Training", "percent": ' + "9" * 5000 + "}",
    "not a number": '{"stage": "Training", "percent": NaN}',
    "a huge message": json.dumps({"stage": "Training", "message": _LONG}),
    "half a megabyte": json.dumps({"stage": "Training", "message": "m" * 500_000}),
    "an odd time": json.dumps({"stage": "Training", "time": "0000-00-00T99:99:99Z"}),
    "year 9999": json.dumps({"stage": "Training", "time": "9999-12-31T23:59:59+00:00"}),
    "a lone surrogate": '{"stage": "\\ud800"}',
    "a list": "[1, 2]",
    "null": "null",
    "wrong types": json.dumps({"stage": 5, "percent": "x", "numParts": [], "edgeCut": 3, "verified": "x"}),
    "infinite counts": '{"numParts": 1e400, "numNodes": -1, "numEdges": 1.5}',
}
