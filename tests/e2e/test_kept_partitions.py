"""A partition that is kept on the node's disk: the first job makes it, the second one finds it and trains."""

import re
import uuid
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import VERSION, Job, image, tiny
from tests.e2e.kubectl import Kubectl, Object

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

KEPT = "/kept"


@pytest.fixture
def folder(kubectl: Kubectl) -> Iterator[str]:
    """A folder of the node for this test alone, which the user of the job image may write."""
    path = f"/tmp/dgl-operator-kept-{uuid.uuid4().hex[:8]}"
    perform(kubectl, "give", f"chmod 1777 {KEPT}", path)
    yield path
    perform(kubectl, "remove", f"rm -rf {KEPT}/*", path)


def perform(kubectl: Kubectl, name: str, command: str, path: str) -> None:
    """Run a command in the node's folder, as root, as the kubelet has made it."""
    kubectl.apply(root_pod(name, command, path))
    kubectl.run(
        "wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=300s", timeout=330
    )


def root_pod(name: str, command: str, path: str) -> Object:
    """A pod that runs one command."""
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", command],
        "securityContext": {"runAsUser": 0},
        "volumeMounts": [{"name": "kept", "mountPath": KEPT}],
    }
    spec = {"restartPolicy": "Never", "containers": [main], "volumes": [host_path(path)]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def host_path(path: str) -> Object:
    """The volume."""
    return {"name": "kept", "hostPath": {"path": path, "type": "DirectoryOrCreate"}}


def a_job(name: str, path: str, *flags: str) -> Object:
    """The tiny job, whose workers mount the folder; the partitioner has the workers' mounts."""
    body = tiny(name, flags=("--partitions", KEPT, *flags))
    pod = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"].append(host_path(path))
    pod["containers"][0]["volumeMounts"].append({"name": "kept", "mountPath": KEPT})
    return body


def logs(kubectl: Kubectl, job: Job) -> tuple[str, str]:
    """Those of partitioner and launcher."""
    return kubectl.run("logs", f"{job.name}-partitioner"), kubectl.run("logs", job.launcher)


def test_the_second_job_trains_on_what_the_first_has_kept(
    kubectl: Kubectl, submit: Submit, folder: str
) -> None:
    """It partitions nothing and shows the same quality; a third one that asks for other parts is refused."""
    cold = submit(a_job("cold", folder))
    cold.wait_phase("Completed")

    warm = submit(a_job("warm", folder))
    warm.wait_phase("Completed")

    (made, first), (found, second) = logs(kubectl, cold), logs(kubectl, warm)
    kept = re.search(rf"kept the partition as {KEPT}/([0-9a-f]{{32}})/w-[0-9a-f]{{16}}", made)
    assert kept, made
    assert f"found the partition {KEPT}/{kept[1]}" in found
    for log in (first, second):
        for worker in (0, 1):
            assert f"-worker-{worker} reads part {worker} in place: {KEPT}/{kept[1]}" in log
    assert warm.status()["partition"] == cold.status()["partition"]

    other = submit(a_job("other", folder, "--partitions", f"{KEPT}/{kept[1]}", "--balance-edges"))
    other.wait_phase("Failed")

    assert "balance_edges: expected yes, got no" in other.condition("Failed")["message"], other.story()
