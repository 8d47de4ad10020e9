"""What a pod with a memory limit says of itself when it has not ended well."""

import pytest

from tests.benchmarks.limited_pod import hindrance, why
from tests.e2e.kubectl import Object


def of_container(state: Object) -> Object:
    """The status of a pod whose container is in this state."""
    return {"containerStatuses": [{"name": "main", "state": state}]}


@pytest.mark.parametrize("reason", ["ErrImagePull", "ImagePullBackOff", "CreateContainerError"])
def test_a_container_that_cannot_be_started_is_a_hindrance(reason: str) -> None:
    """With the kubelet's words."""
    status = of_container({"waiting": {"reason": reason, "message": "no such thing"}})

    assert hindrance(status) == f"{reason}: no such thing"


def test_a_pod_that_no_node_takes_is_a_hindrance() -> None:
    """It has no container yet."""
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}

    assert hindrance({"phase": "Pending", "conditions": [refused]}) == "Unschedulable: 0/1 nodes"


@pytest.mark.parametrize(
    "status",
    [
        {},
        of_container({}),
        of_container({"waiting": {"reason": "ContainerCreating"}}),
        of_container({"running": {}}),
        {"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}]},
    ],
)
def test_a_pod_on_its_way_has_no_hindrance(status: Object) -> None:
    """It is waited for."""
    assert hindrance(status) is None


def test_an_eviction_is_told_though_no_container_has_ended() -> None:
    """The pod's own reason and message say it."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "low on resource: memory"}

    assert why(status) == "Evicted: low on resource: memory"


def test_a_container_that_was_killed_is_told() -> None:
    """By the kernel, for its memory."""
    status = of_container({"terminated": {"reason": "OOMKilled", "exitCode": 137}})

    assert why(status) == "OOMKilled, exit code 137"
