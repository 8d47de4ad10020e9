"""Objects that claim to be a job's children: our labels, and an owner that is foreign, forged or none."""

import random
from typing import Any

from dgl_operator.runtime.kinds import Kind
from dglrun.contract import names
from tests.support.played_job import SCHEDULER

Json = dict[str, Any]
UID_OF_JOB, UID_OF_INNOCENT = "@uid-of-job@", "@uid-of-innocent@"
INNOCENT = "@innocent@"
"""Stands for the innocent job that is under way when the object is submitted."""
FLOOD, FLOOD_BYTES = 200, 900_000

OWNERS: dict[str, Json | None] = {
    "no owner": None,
    "the job, forged": {"uid": UID_OF_JOB},
    "the job, not as controller": {"uid": UID_OF_JOB, "controller": False},
    "the job, without controller": {"uid": UID_OF_JOB, "controller": None},
    "a job that is not there": {"uid": "00000000-dead-4000-8000-000000000000"},
    "another kind with the job's uid": {"uid": UID_OF_JOB, "kind": "ReplicaSet", "apiVersion": "apps/v1"},
    "another job with the innocent's uid": {"uid": UID_OF_INNOCENT, "name": INNOCENT},
}
LABELS: dict[str, Json] = {
    "only the job": {},
    "an unknown role": {names.LABEL_REPLICA_TYPE: "Chief", names.LABEL_ROLE: "chief"},
    "an empty role": {names.LABEL_REPLICA_TYPE: "", names.LABEL_ROLE: ""},
    "a worker's": {
        names.LABEL_REPLICA_TYPE: "Worker",
        names.LABEL_ROLE: "worker",
        names.LABEL_INDEX: "0",
    },
    "a launcher's": {names.LABEL_REPLICA_TYPE: "Launcher", names.LABEL_ROLE: "launcher"},
    "a large index": {names.LABEL_REPLICA_TYPE: "Worker", names.LABEL_INDEX: "9" * 63},
    "an index that is none": {names.LABEL_REPLICA_TYPE: "Worker", names.LABEL_INDEX: "a.b"},
}
_CONTENT: dict[Kind, Json] = {
    Kind.POD: {"spec": {"schedulerName": SCHEDULER, "containers": [{"name": "odd", "image": "example/odd"}]}},
    Kind.CONFIG_MAP: {"data": {"hostfile": "10.9.9.9 30050 odd slots=1\n", "progress.json": "{"}},
    Kind.SERVICE: {"spec": {"clusterIP": "None", "ports": [{"port": 1}]}},
    Kind.NETWORK_POLICY: {"spec": {"podSelector": {}, "ingress": [{}]}},
    Kind.SERVICE_ACCOUNT: {"automountServiceAccountToken": False},
    Kind.ROLE: {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    Kind.ROLE_BINDING: {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "odd"},
        "subjects": [{"kind": "ServiceAccount", "name": "odd"}],
    },
}


def foreign(rng: random.Random, job: str) -> tuple[Kind, Json, str]:
    """Return a child with a name of its own that the operator has to leave alone."""
    kind, owner, labels = (
        rng.choice(sorted(_CONTENT, key=str)),
        rng.choice(sorted(OWNERS)),
        rng.choice(sorted(LABELS)),
    )
    of_innocent = owner.startswith("another job")
    about = INNOCENT if of_innocent else rng.choice([job, job, INNOCENT, "nobody"])
    name = rng.choice([f"{job}-odd", f"{job}-worker-999", f"{job}-worker-00", f"{job}-launcher-0", f"{job}-"])
    body = child(kind, name.rstrip("-") + "x" if name.endswith("-") else name, about, owner, labels)
    if about == INNOCENT and OWNERS[owner]:
        body["metadata"]["name"] = f"{job}-odd"  # one with a name of the innocent's would be its own
    what = f"{kind.value[0]} {body['metadata']['name']}: label of {about}, owner {owner}, labels {labels}"
    return kind, body, what


def squatter(rng: random.Random, job: str) -> tuple[Kind, Json, str]:
    """Return a child that holds a name which the job needs."""
    name, kind = rng.choice(
        [
            (names.launcher(job), Kind.POD),
            (names.partitioner(job), Kind.POD),
            (names.worker(job, 0), Kind.POD),
            (names.config(job), Kind.CONFIG_MAP),
            (names.report(job), Kind.CONFIG_MAP),
            (names.service(job), Kind.SERVICE),
            (names.network_policy(job), Kind.NETWORK_POLICY),
            (names.launcher(job), Kind.SERVICE_ACCOUNT),
            (names.launcher(job), Kind.ROLE),
            (names.partitioner(job), Kind.ROLE_BINDING),
        ]
    )
    labels = rng.choice(sorted(LABELS))
    body = child(kind, name, job, "no owner", labels)
    return kind, body, f"{kind.value[0]} {name} is taken, labels {labels}"


def child(kind: Kind, name: str, job: str, owner: str, labels: str) -> Json:
    """Return one child."""
    metadata: Json = {"name": name, "labels": {names.LABEL_JOB: job, **LABELS[labels]}}
    if reference := OWNERS[owner]:
        metadata["ownerReferences"] = [_reference(job, reference)]
    return {"apiVersion": kind.api_version, "kind": kind.value[0], "metadata": metadata, **_CONTENT[kind]}


def _reference(job: str, given: Json) -> Json:
    usual = {
        "apiVersion": Kind.JOB.api_version,
        "kind": Kind.JOB.value[0],
        "name": job,
        "controller": True,
        "blockOwnerDeletion": False,
    }
    return {key: value for key, value in {**usual, **given}.items() if value is not None}


def flood(job: str) -> list[Json]:
    """Return 200 ConfigMaps of 0.9 MB that carry the job's label and have no owner."""
    filling = "x" * FLOOD_BYTES
    return [
        {
            **child(Kind.CONFIG_MAP, f"{job}-flood-{number}", job, "no owner", "only the job"),
            "data": {"x": filling},
        }
        for number in range(FLOOD)
    ]
