"""The schema on a real API server: what is refused, in which words, what is kept and what cannot change."""

import copy
from pathlib import Path
from typing import Any

import pytest

from dgl_operator.api import rules
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.runtime.cluster import Refused
from tests.e2e.kubectl import Kubectl
from tests.e2e.kubectl import Refused as KubectlRefused
from tests.support.api_client import ApiServer
from tests.support.job_cases import (
    BROKEN_ARGUMENTS,
    BROKEN_CONTAINERS,
    BROKEN_RULES,
    BROKEN_TYPES,
    EXAMPLES,
    GOOD,
    UPSTREAM,
    Bad,
    Object,
    a_job,
    load,
    role,
)

pytestmark = pytest.mark.integration

GROUP = "/apis/qihoo.net/v1alpha1"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
NOON = "2026-11-21T12:00:00Z"


def path(namespace: str, name: str = "") -> str:
    """Where jobs are, or one of them."""
    return f"{GROUP}/namespaces/{namespace}/dgljobs" + (f"/{name}" if name else "")


def create(api: ApiServer, namespace: str, job: Object, query: str = "?dryRun=All") -> Object:
    """Create a job (in a dry run unless told otherwise) and return it as it would be stored."""
    body = copy.deepcopy(job)
    body["metadata"]["namespace"] = namespace
    return api.call("POST", f"{path(namespace)}{query}", body)


def refusal(api: ApiServer, namespace: str, job: Object) -> str:
    """The words in which a job is refused as invalid."""
    with pytest.raises(Refused) as caught:
        create(api, namespace, job)
    assert caught.value.status == 422
    return str(caught.value)


@pytest.fixture
def stored(api: ApiServer, namespace: str) -> str:
    """The path of a job that exists."""
    create(api, namespace, a_job(), query="")
    return path(namespace, "sage")


@pytest.mark.parametrize("job", GOOD.values(), ids=GOOD)
def test_a_good_job_is_admitted(api: ApiServer, namespace: str, job: Object) -> None:
    """Nothing that may be is refused."""
    assert create(api, namespace, job)["kind"] == "DGLJob"


@pytest.mark.parametrize("file", EXAMPLES + UPSTREAM, ids=lambda file: file.stem)
def test_an_example_is_admitted_strictly(api: ApiServer, namespace: str, file: Path) -> None:
    """The examples and the jobs of 2021 apply unchanged, and no field of them is unknown."""
    assert create(api, namespace, load(file), "?dryRun=All&fieldValidation=Strict")


@pytest.mark.parametrize(
    "bad", BROKEN_RULES + BROKEN_CONTAINERS + BROKEN_TYPES + BROKEN_ARGUMENTS, ids=lambda bad: bad.what
)
def test_a_bad_job_is_refused_with_its_reason(api: ApiServer, namespace: str, bad: Bad) -> None:
    """The message names the field and what was expected."""
    message = refusal(api, namespace, bad.job)

    assert bad.where in message
    assert bad.says in message


@pytest.mark.parametrize("bad", BROKEN_RULES, ids=lambda bad: bad.what)
def test_operator_and_api_server_are_of_one_mind(api: ApiServer, namespace: str, bad: Bad) -> None:
    """Each rule gives the same verdict in CEL and in Python, in the same words."""
    job = DGLJob.parse(bad.job)

    message = refusal(api, namespace, bad.job)

    assert {rule.message: rule.message not in message for rule in rules.RULES} == {
        rule.message: rule.holds(job) for rule in rules.RULES
    }


def test_defaults_are_stored(api: ApiServer, namespace: str) -> None:
    """A job keeps the values that it was admitted with when a newer version changes a default."""
    spec = create(api, namespace, a_job(roles={"Launcher": role(), "Worker": role()}))["spec"]

    assert (spec["partitionMode"], spec["cleanPodPolicy"], spec["slotsPerWorker"]) == (
        "DGL-API",
        "Running",
        1,
    )
    assert {name: each["replicas"] for name, each in spec["dglReplicaSpecs"].items()} == {
        "Launcher": 1,
        "Worker": 1,
    }


TEMPLATE: dict[str, Any] = {
    "metadata": {
        "labels": {"team": "graphs"},
        "annotations": {"note": "kept"},
        "finalizers": ["example.org/x"],
    },
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "i",
                "command": ["sleep"],
                "args": ["1"],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                "ports": [{"containerPort": 80, "name": "web", "protocol": "TCP"}],
                "resources": {"limits": {"cpu": 0.5, "memory": "1Gi", "nvidia.com/gpu": 1}},
                "volumeMounts": [{"name": "data", "mountPath": "/data", "subPath": "a"}],
                "securityContext": {"runAsUser": 1000},
                "futureField": {"deep": [{"er": True}]},
            },
            {"name": "sidecar", "image": "j"},
        ],
        "initContainers": [{"name": "fetch", "image": "k", "restartPolicy": "Always"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "d"}}],
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "imagePullSecrets": [{"name": "s"}],
        "schedulerName": "other",
    },
}


def test_native_keys_of_a_template_are_kept(api: ApiServer, namespace: str) -> None:
    """Whatever a PodTemplateSpec has or will have survives, at every level."""
    roles = {"Launcher": role(1), "Worker": {"replicas": 2, "template": TEMPLATE}}

    kept = create(api, namespace, a_job(roles=roles))

    assert kept["spec"]["dglReplicaSpecs"]["Worker"]["template"] == TEMPLATE


def test_a_misspelt_field_is_refused_by_kubectl(api: ApiServer, namespace: str) -> None:
    """Unlike a role, a misspelt field can only be refused on request; kubectl asks for that."""
    kubectl = Kubectl(namespace)

    with pytest.raises(KubectlRefused, match=r'unknown field "spec\.partitionmode"'):
        kubectl.apply(a_job(partitionmode="Skip"))

    assert create(api, namespace, a_job(partitionmode="Skip"))["spec"]["partitionMode"] == "DGL-API"


IMMUTABLE: dict[str, Object] = {
    "partitionMode": {"partitionMode": "ParMETIS"},
    "slotsPerWorker": {"slotsPerWorker": 2},
    "more workers": {"dglReplicaSpecs": {"Worker": {"replicas": 3}}},
    "another role": {"dglReplicaSpecs": {"Partitioner": role(1)}},
    "another image": {"dglReplicaSpecs": {"Worker": role(2, image="example.org/other")}},
    "a manager": {"runPolicy": {"managedBy": "example.org/other"}},
    "a failure policy": {"failurePolicy": {"rules": [{"action": "Ignore", "role": "Worker"}]}},
    "a key without a type": {"dglReplicaSpecs": {"Worker": {"template": {"spec": {"schedulerName": "x"}}}}},
}


@pytest.mark.parametrize("change", IMMUTABLE.values(), ids=IMMUTABLE)
def test_what_already_runs_cannot_be_changed(api: ApiServer, stored: str, change: Object) -> None:
    """Pods are not altered under a job, so the API server says no at once."""
    with pytest.raises(Refused, match=rules.IMMUTABLE_MESSAGE) as caught:
        api.call("PATCH", stored, {"spec": change}, MERGE)

    assert caught.value.status == 422


def test_another_container_cannot_become_the_main_one(api: ApiServer, namespace: str) -> None:
    """Lists that are keyed by name are equal in any order, yet the first container runs the command."""
    both = [{"name": name, "image": "example.org/x"} for name in ("main", "proxy")]
    body = a_job()
    body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["containers"] = both
    made = create(api, namespace, body, query="")
    stored = f"{path(namespace)}/{made['metadata']['name']}"
    template = {"template": {"spec": {"containers": both[::-1]}}}

    with pytest.raises(Refused, match=rules.IMMUTABLE_MESSAGE):
        api.call("PATCH", stored, {"spec": {"dglReplicaSpecs": {"Worker": template}}}, MERGE)


def test_the_network_policy_may_be_changed(api: ApiServer, stored: str) -> None:
    """No pod was made from it; an unknown key is kept, since the operator's request shows what is wrong."""
    rule = {"form": [], "ports": [{"port": 9100}]}

    body = api.call("PATCH", stored, {"spec": {"networkPolicy": {"ingress": [rule]}}}, MERGE)

    assert body["spec"]["networkPolicy"] == {"ingress": [rule]}
    assert body["metadata"]["generation"] == 2


@pytest.mark.parametrize("kind", ["managedBy", "failurePolicy"])
def test_what_is_fixed_at_creation_cannot_be_taken_away_either(
    api: ApiServer, namespace: str, kind: str
) -> None:
    """A rule of the field itself would not see that it goes."""
    rule = {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [0, 1]}}
    policy = {"backoffLimit": 1, "managedBy": "qihoo.net/dgl-operator"}
    made = create(api, namespace, a_job(runPolicy=policy, failurePolicy={"rules": [rule]}), query="")
    change: Object = {"failurePolicy": None} if kind == "failurePolicy" else {"runPolicy": None}

    with pytest.raises(Refused, match=rules.IMMUTABLE_MESSAGE):
        api.call("PATCH", f"{path(namespace)}/{made['metadata']['name']}", {"spec": change}, MERGE)


def test_the_rest_of_the_run_policy_may_be_changed(api: ApiServer, stored: str) -> None:
    """As that of a Job."""
    policy = {
        "suspend": True,
        "activeDeadlineSeconds": 60,
        "startDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
        "backoffLimit": 3,
    }

    body = api.call("PATCH", stored, {"spec": {"runPolicy": policy}}, MERGE)

    assert body["spec"]["runPolicy"] == policy


@pytest.mark.parametrize(
    "spec",
    [
        {"datasetVolume": {"hostPath": {"path": "/srv"}}},
        {"serviceAccountAnnotations": {"example.org/role": "x"}},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_what_running_pods_were_made_from_cannot_come_later(
    api: ApiServer, stored: str, spec: Object
) -> None:
    """Pods that are there would be without it."""
    with pytest.raises(Refused, match=rules.IMMUTABLE_MESSAGE):
        api.call("PATCH", stored, {"spec": spec}, MERGE)


def test_a_volume_source_is_stored_as_it_is_written(api: ApiServer, namespace: str) -> None:
    """Kubernetes knows sources that this schema does not; a misspelt one is named when the pod is made."""
    source = {"csi": {"driver": "example.org", "volumeAttributes": {"a": "b"}}}

    body = create(api, namespace, a_job(datasetVolume=source))

    assert body["spec"]["datasetVolume"] == {**source, "mountPath": "/data", "readOnly": False}


def test_the_clean_up_policy_may_be_changed(api: ApiServer, stored: str) -> None:
    """It is read when the job ends."""
    body = api.call("PATCH", stored, {"spec": {"cleanPodPolicy": "None"}}, MERGE)

    assert body["spec"]["cleanPodPolicy"] == "None"
    assert body["metadata"]["generation"] == 2


PARTITIONED: Object = {
    "type": "Partitioned",
    "status": "True",
    "reason": "Delivered",
    "message": "",
    "lastTransitionTime": NOON,
}
STATUS: Object = {
    "phase": "Training",
    "message": "2 of 2 workers train",
    "startTime": NOON,
    "observedGeneration": 1,
    "conditions": [
        {
            "type": "Partitioned",
            "status": "True",
            "reason": "Delivered",
            "message": "",
            "lastTransitionTime": NOON,
        }
    ],
    "replicaStatuses": {
        "Worker": {"pending": 0, "starting": 0, "running": 2, "succeeded": 0, "failed": 0, "ready": "2/2"}
    },
    "progress": {
        "stage": "Training",
        "message": "epoch 1",
        "percent": 20,
        "epoch": 1,
        "loss": "0.75",
        "time": NOON,
    },
    "partition": {
        "method": "metis",
        "numParts": 2,
        "numEdges": 3 * 10**9,
        "edgeCut": "12.3%",
        "nodeBalance": "1.03",
        "edgeBalance": "1.10",
        "trainNodeBalance": "1.01",
        "haloShare": "31.0%",
    },
}


def write_status(api: ApiServer, stored: str, status: Object, manager: str = "dgl-operator") -> Object:
    """Apply a status as the operator does."""
    *_, namespace, _, name = stored.split("/")
    metadata = {"name": name, "namespace": namespace}
    body = {"apiVersion": "qihoo.net/v1alpha1", "kind": "DGLJob", "metadata": metadata, "status": status}
    return api.call("PATCH", f"{stored}/status?fieldManager={manager}&force=true", body, APPLY)


def test_status_has_its_own_door(api: ApiServer, stored: str) -> None:
    """A status is stored as it was written, by the subresource alone, and changes no generation."""
    api.call("PATCH", stored, {"status": STATUS}, MERGE)
    assert "status" not in api.call("GET", stored)

    body = write_status(api, stored, STATUS)

    assert body["status"] == {**STATUS, "attempt": 0}
    assert body["metadata"]["generation"] == 1


def test_conditions_of_two_writers_live_side_by_side(api: ApiServer, stored: str) -> None:
    """They merge by their type."""
    other = {**PARTITIONED, "type": "Audited"}
    write_status(api, stored, STATUS)

    body = write_status(api, stored, {"conditions": [other]}, manager="auditor")

    assert [condition["type"] for condition in body["status"]["conditions"]] == ["Partitioned", "Audited"]


BAD_STATUS: dict[str, Object] = {
    "phase": {"phase": "Succeed"},
    "conditions[0].reason": {"conditions": [{**PARTITIONED, "reason": ""}]},
    "conditions[0].lastTransitionTime": {
        "conditions": [{"type": "Partitioned", "status": "True", "reason": "Delivered"}]
    },
    "progress.percent": {"progress": {"stage": "Training", "percent": 101}},
    "partition.edgeCut": {"partition": {"edgeCut": "0.123"}},
    "startTime": {"startTime": "yesterday"},
}


@pytest.mark.parametrize("field", BAD_STATUS)
def test_an_untrue_status_is_refused(api: ApiServer, stored: str, field: str) -> None:
    """Readers may rely on its words and forms."""
    with pytest.raises(Refused) as caught:
        write_status(api, stored, BAD_STATUS[field])

    assert caught.value.status == 422
    assert f"status.{field}" in str(caught.value)


LISTED: dict[str, Object] = {
    "startTime": {"startTime": [NOON]},
    "completionTime": {"completionTime": [NOON]},
    "lastReconcileTime": {"lastReconcileTime": [NOON]},
    "progress.time": {"progress": {"stage": "Training", "time": [NOON]}},
    "conditions[0].lastTransitionTime": {"conditions": [{**PARTITIONED, "lastTransitionTime": [NOON]}]},
    "attempts[0].startTime": {"attempts": [{"number": 0, "startTime": [NOON]}]},
    "attempts[0].completionTime": {"attempts": [{"number": 0, "startTime": NOON, "completionTime": [NOON]}]},
    "attempts[0].waitingSince": {"attempts": [{"number": 0, "startTime": NOON, "waitingSince": [NOON]}]},
    "attempt": {"attempt": [0]},
    "observedGeneration": {"observedGeneration": [1]},
}


@pytest.mark.parametrize("field", LISTED)
def test_a_list_is_no_value(api: ApiServer, stored: str, field: str) -> None:
    """The API server would take it for a text that has a format, and refuse every later write of the job."""
    with pytest.raises(Refused, match=r"must be of type (string|integer)") as caught:
        api.call("PATCH", f"{stored}/status", {"status": LISTED[field]}, MERGE)

    assert caught.value.status == 422
    assert f"status.{field}" in str(caught.value)
    assert write_status(api, stored, STATUS)["status"]["startTime"] == NOON


def test_kubectl_shows_where_a_job_stands(api: ApiServer, stored: str, namespace: str) -> None:
    """Short name, category and columns; quality and message when asked for more."""
    write_status(api, stored, STATUS)
    kubectl = Kubectl(namespace)

    short = [line.split() for line in kubectl.run("get", "dglj").splitlines()]
    wide = [line.split(maxsplit=15) for line in kubectl.run("get", "dgljobs", "-o", "wide").splitlines()]

    assert short[0] == ["NAME", "PHASE", "MODE", "READY", "ATTEMPT", "EPOCH", "AGE"]
    assert short[1][:6] == ["sage", "Training", "DGL-API", "2/2", "0", "1"]
    balances = ("NODE-BALANCE", "EDGE-BALANCE", "TRAIN-BALANCE")
    assert wide[0][7:] == ["STAGE", "PERCENT", "LOSS", "EDGE-CUT", *balances, "HALO", "MESSAGE"]
    assert wide[1][7:10] == ["Training", "20", "0.75"]
    assert wide[1][10:] == ["12.3%", "1.03", "1.10", "1.01", "31.0%", "2 of 2 workers train"]
    assert "dgljob.qihoo.net/sage" in kubectl.run("get", "all")


def test_kubectl_explains_each_field() -> None:
    """The documentation is on the cluster too."""
    text = Kubectl("default").run("explain", "dgljob.spec.partitionMode")

    assert "How the graph is partitioned" in text
    assert "DistParMETIS" in text


def test_the_schema_has_no_flaw_that_is_only_reported(api: ApiServer) -> None:
    """The API server accepts some wrong schemas and says so in a condition."""
    crd = api.call("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/dgljobs.qihoo.net")

    assert {each["type"]: each["status"] for each in crd["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
