"""A job whose workspace lies on a volume that its launcher, partitioner and workers share."""

import re

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import tiny
from tests.e2e.kubectl import Kubectl
from tests.e2e.node_folder import NodeFolder

pytestmark = pytest.mark.e2e


def test_what_all_pods_share_is_not_copied(submit: Submit, volume: NodeFolder) -> None:
    """Parts lie on the volume once, links lead to them, and the model is written where it stays."""
    body = tiny("shared", flags=("--workspace", "/data/job"))
    body["spec"] |= {
        "cleanPodPolicy": "None",
        "datasetVolume": volume.source,  # at /data, as nothing else is said
        "serviceAccountAnnotations": {"example.org/role": "reader"},
    }
    job = submit(body)

    job.wait_phase("Completed", seconds=180)

    delivered = job.kubectl.logs(f"{job.name}-partitioner", "main")
    trained = job.kubectl.logs(job.launcher, "main")
    seen = r"sees \d+ files in /data/job/dataset: nothing has to be sent"
    assert re.search(f"{job.launcher} {seen}", delivered), delivered
    assert all(re.search(f"{job.worker(index)} {seen}", trained) for index in (0, 1)), trained
    assert "checksums compared" not in delivered + trained
    assert volume.find("-name", "graph.dgl", "-type", "f") == [
        "job/dataset/part0/graph.dgl",
        "job/dataset/part1/graph.dgl",
    ]
    assert volume.find("-path", "*/workload/*") == [
        f"job/workload/{name}" for name in ("part0", "part1", "tiny.json")
    ]
    assert volume.find("-name", "model.pt") == ["job/output/model.pt"]
    assert volume.find("-name", ".dglrun-*") == []
    _require_identity(job.kubectl, job.worker(1))


def _require_identity(kubectl: Kubectl, pod: str) -> None:
    """A worker has an account of its own with the job's annotation, and no token of it."""
    found = kubectl.get("pod", pod)
    assert found is not None
    account = kubectl.get("serviceaccount", found["spec"]["serviceAccountName"])
    assert account is not None
    assert account["metadata"]["name"] == "shared-worker"
    assert account["metadata"]["annotations"]["example.org/role"] == "reader"
    assert found["spec"]["automountServiceAccountToken"] is False
