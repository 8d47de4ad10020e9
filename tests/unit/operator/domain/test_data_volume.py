"""The dataset volume and the accounts' annotations: what is refused, in which words."""

from typing import Any

import pytest

from dgl_operator.domain import reduced, validate
from dgl_operator.render import desired
from dgl_operator.render.config import Addresses
from dgl_operator.runtime.is_applied import is_met
from dglrun.contract.names import Mode
from tests.support.jobs import Json, a_job, a_template

HOST = {"hostPath": {"path": "/srv/graphs"}}
WORKER = "spec.dglReplicaSpecs.Worker.template.spec"


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("path", ["/data", "/dgl_workspace", "/dgl_workspace/dataset", "/etc/dgl2"])
def test_a_volume_at_a_free_path_is_accepted(mode: Mode, path: str) -> None:
    """A workspace on the volume, too: whether pods share it is found out when the job runs."""
    assert validate.problems(a_job(mode=mode, datasetVolume={**HOST, "mountPath": path})) == ()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "spec.datasetVolume: expected exactly one volume source, such as persistentVolumeClaim, "
         "got none"),
        ({**HOST, "nfs": {}}, "expected exactly one volume source, such as persistentVolumeClaim, got 2: "
         "'hostPath', 'nfs'"),
        ({**HOST, "readonly": True}, "got 2: 'hostPath', 'readonly'"),
        ({"hostPath": "/srv"}, "spec.datasetVolume.hostPath: expected an object, got '/srv'"),
        ({"emptyDir": None}, "spec.datasetVolume.emptyDir: expected an object, got null"),
        ({"a b": 1}, "spec.datasetVolume.'a b': expected an object, got 1"),
        ({**HOST, "mountPath": "/etc"}, "spec.datasetVolume.mountPath: expected a path that leaves the "
         "operator's /etc/dgl alone, got '/etc'"),
        ({**HOST, "mountPath": "/opt//kube/bin"}, "operator's /opt/kube alone, got '/opt/kube/bin'"),
        ({**HOST, "mountPath": "/dev/shm"}, "operator's /dev/shm alone, got '/dev/shm'"),
        ({**HOST, "mountPath": "/dgl_workspace", "readOnly": True}, "spec.datasetVolume.readOnly: expected "
         "false at '/dgl_workspace', since partitions are delivered into /dgl_workspace/dataset, got true"),
    ],
)  # fmt: skip
def test_a_volume_that_cannot_be_meant_is_refused(given: Json, said: str) -> None:
    """Before a pod is created, and nothing that was written is dropped."""
    (problem,) = validate.problems(a_job(datasetVolume=given))

    assert said in problem


def test_a_skip_job_has_no_paths_of_ours_but_shared_memory() -> None:
    """Its launcher mounts no configuration."""
    read_only = {**HOST, "mountPath": "/dgl_workspace", "readOnly": True}
    at_etc, at_dev = {**HOST, "mountPath": "/etc/dgl"}, {**HOST, "mountPath": "/dev"}

    assert validate.problems(a_job(mode=Mode.SKIP, datasetVolume=at_etc)) == ()
    assert validate.problems(a_job(mode=Mode.SKIP, datasetVolume=read_only)) == ()
    assert len(validate.problems(a_job(mode=Mode.SKIP, datasetVolume=at_dev))) == 1


def test_a_mount_at_the_volumes_path_is_refused() -> None:
    """One of the two would be hidden, silently."""
    worker = a_template(volumeMounts=[{"name": "mine", "mountPath": "/data/"}])

    problems = validate.problems(a_job(worker=worker, datasetVolume=HOST))

    assert problems == (
        f"{WORKER}.containers[0].volumeMounts: expected '/data' free for spec.datasetVolume, got 'mine'",
    )


def test_our_name_of_the_volume_is_free_without_one() -> None:
    """It is taken only in jobs with a dataset volume."""
    worker = a_template()
    worker["spec"]["volumes"] = [{"name": "job-data-volume", "emptyDir": {}}]

    assert validate.problems(a_job(worker=worker)) == ()
    assert validate.problems(a_job(worker=worker, datasetVolume=HOST)) == (
        f"{WORKER}.volumes: expected another name than job-data-volume, which is that of spec.datasetVolume",
    )


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("dgl-operator/job-name", "expected no key of dgl-operator/ or qihoo.net/, which are the operator's"),
        ("qihoo.net/x", "which are the operator's, got 'qihoo.net/x'"),
        ("two words", "expected the name of an annotation, such as example.org/role, got 'two words'"),
        ("/role", "got '/role'"),
        ("a/b/c", "got 'a/b/c'"),
        ("x" * 64, "expected the name of an annotation"),
        (f"{'x' * 254}/role", "expected the name of an annotation"),
    ],
)
def test_an_annotation_that_kubernetes_would_refuse_or_that_is_ours_is_named(key: str, said: str) -> None:
    """A ServiceAccount that is refused would hold the job up for ever."""
    (problem,) = validate.problems(a_job(serviceAccountAnnotations={key: "x", "example.org/fine": "y"}))

    assert problem.startswith("spec.serviceAccountAnnotations: ")
    assert said in problem


@pytest.mark.parametrize(
    "key", ["role", "eks.amazonaws.com/role-arn", "iam.gke.io/gcp-service-account", "A/b_c.D"]
)
def test_annotations_of_clouds_are_accepted(key: str) -> None:
    """Their values are nobody's business here."""
    is_good = key != "A/b_c.D"  # a prefix is a DNS name
    assert (validate.problems(a_job(serviceAccountAnnotations={key: "arn:x\n"})) == ()) is is_good


@pytest.mark.parametrize("role", ["launcher", "worker", "partitioner"])
@pytest.mark.parametrize("field", ["serviceAccountName", "serviceAccount"])
def test_annotations_beside_an_account_of_the_users_are_refused(role: str, field: str) -> None:
    """They would reach an account that no pod uses."""
    template = a_template()
    template["spec"][field] = "mine"
    roles: dict[str, Any] = {role: template}

    assert validate.problems(a_job(**roles)) == ()
    assert validate.problems(a_job(**roles, serviceAccountAnnotations={"example.org/role": "x"})) == (
        f"spec.dglReplicaSpecs.{role.title()}.template.spec.serviceAccountName: expected none, since "
        "spec.serviceAccountAnnotations are those of the accounts that the operator makes, got 'mine'",
    )


def test_an_account_with_its_annotations_is_not_written_again() -> None:
    """What is kept of it in memory has them, beside those of others."""
    job = a_job(serviceAccountAnnotations={f"{'p' * 253}/{at}{'n' * 62}": "x" * 1024 for at in range(8)})
    accounts = [body for body in desired.objects(job, Addresses()) if body["kind"] == "ServiceAccount"]

    for body in accounts:
        found = {**body["metadata"]["annotations"], "example.org/others": "foreign"}
        stored = {**body, "metadata": {**body["metadata"], "annotations": found}}
        assert is_met(body, reduced.other(stored))
        assert reduced.other(reduced.other(stored)) == reduced.other(stored)
        assert "foreign" not in str(reduced.other(stored))
