"""The faults that only a real kubelet and kernel can bring about; all others are in tests/faults.

Here a container really exits, is killed for its memory, cannot be pulled, or is kept from its start by an
init container, in each role. The jobs need no torch: each gets as far as the pod that meets its fault.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from dglrun.contract.names import Mode, Role
from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job, moment, tiny
from tests.e2e.kubectl import Object
from tests.support.wait import wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LIMIT = 30.0
"""Seconds from the fault, or from the deadline for it to pass, to the Failed condition."""
PATIENCE = 360.0
EXITS = ["python3", "-c", "import sys; sys.exit('told to leave')"]
EATS = ["python3", "-c", "print(len(b'x' * (1 << 30)))"]
LITTLE = {"requests": {"cpu": "50m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}}


@dataclass(frozen=True)
class Fault:
    """What is done to a role's pod template, and the reasons by which it shows.

    Attributes:
        has_deadline: Whether the job fails for its start deadline, and not for the end of a container.
    """

    spoil: Callable[[Object], None]
    reasons: tuple[str, ...]
    has_deadline: bool = False


def exits(pod: Object) -> None:
    pod["containers"][0]["command"], pod["containers"][0]["args"] = EXITS, []


def is_killed(pod: Object) -> None:
    pod["containers"][0] |= {"command": EATS, "args": [], "resources": LITTLE}


def cannot_be_pulled(pod: Object) -> None:
    pod["containers"][0] |= {"image": "registry.invalid/nothing:v1", "imagePullPolicy": "Always"}


def fails_in_init(pod: Object) -> None:
    main = pod["containers"][0]
    pod["initContainers"] = [{"name": "prepare", "image": main["image"], "command": EXITS}]


FAULTS = {
    "exit": Fault(exits, ("TrainingFailed", "PartitionFailed", "PodFailed")),
    "oom": Fault(is_killed, ("OOMKilled",)),
    "image": Fault(cannot_be_pulled, ("StartDeadlineExceeded",), has_deadline=True),
    "init": Fault(fails_in_init, ("PodFailed",)),
}


def a_job(role: Role, name: str) -> Object:
    """A job one role of which meets a fault.

    In DistParMETIS the workers are there at once and the launcher begins when they are Ready; the
    partitioner of DGL-API takes its command from the launcher.
    """
    fault = FAULTS[name]
    body = tiny(f"{role.lower}-{name}")
    specs = body["spec"]["dglReplicaSpecs"]
    if role is Role.PARTITIONER:
        has_command = name in ("exit", "oom")
        specs["Partitioner"] = {
            "replicas": 1,
            "template": tiny("x")["spec"]["dglReplicaSpecs"]["Worker"]["template"],
        }
        fault.spoil(specs["Partitioner"]["template"]["spec"])
        if has_command:
            fault.spoil(specs["Launcher"]["template"]["spec"])
    else:
        body["spec"]["partitionMode"] = Mode.DIST_PARMETIS.value
        fault.spoil(specs[role.value]["template"]["spec"])
    return body


def await_failed(job: Job, fault: Fault) -> Object:
    """Wait for the Failed condition; a deadline passes when the pod waits for nothing else but its image."""
    if fault.has_deadline:
        wait_for(f"{job.name} Blocked", lambda: job.condition("Blocked").get("status") == "True", PATIENCE)
        at_once = json.dumps({"spec": {"runPolicy": {"startDeadlineSeconds": 1}}})
        job.kubectl.run("patch", "dgljob", job.name, "--type=merge", "--patch", at_once)
        return wait_for(f"{job.name} Failed", lambda: job.condition("Failed") or None, LIMIT)
    return wait_for(f"{job.name} Failed", lambda: job.condition("Failed") or None, PATIENCE)


def seconds_to_failed(job: Job, pod: Object) -> float:
    """From the end of the container that failed to the Failed condition."""
    status = pod["status"]
    containers = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    ends = [each["state"]["terminated"] for each in containers if "terminated" in each["state"]]
    failed = [end["finishedAt"] for end in ends if end["exitCode"]]
    return (moment(job.condition("Failed")["lastTransitionTime"]) - moment(min(failed))).total_seconds()


def test_what_a_kubelet_and_a_kernel_do_to_a_pod_fails_its_job_with_the_true_cause(
    submit: Submit, measured: Figures
) -> None:
    """Each of the four in each role, all at once; pod and reason are named within 30 s."""
    jobs = {(role, name): submit(a_job(role, name)) for name in FAULTS for role in Role}

    slowest = 0.0
    for (role, name), job in jobs.items():
        failed = await_failed(job, FAULTS[name])
        victim = {Role.LAUNCHER: job.launcher, Role.WORKER: f"{job.name}-worker-"}
        assert failed["reason"] in FAULTS[name].reasons, job.story()
        assert victim.get(role, f"{job.name}-partitioner") in failed["message"], job.story()
        if not FAULTS[name].has_deadline and (pod := _victim(job, role)):
            slowest = max(slowest, seconds_to_failed(job, pod))
    assert slowest <= LIMIT
    measured.add(
        "fail-any", slowest, "s", "a container exits, is killed or fails at its start → Failed, slowest"
    )


def _victim(job: Job, role: Role) -> Object | None:
    """The pod that failed: the clean-up leaves those that have ended, of two workers perhaps one."""
    of_role = {
        Role.LAUNCHER: [job.launcher],
        Role.PARTITIONER: [f"{job.name}-partitioner"],
        Role.WORKER: [job.worker(0), job.worker(1)],
    }[role]
    found = (job.kubectl.get("pod", name) for name in of_role)
    return next((pod for pod in found if pod and pod["status"].get("phase") == "Failed"), None)
