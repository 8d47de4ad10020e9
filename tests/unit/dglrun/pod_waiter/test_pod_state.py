"""What snapshots of one pod add up to."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.contract import names
from dglrun.pod_waiter.config import WatchMode
from dglrun.pod_waiter.pod_state import PodSnapshot, PodState, WaitState, after
from tests.unit.dglrun.pod_waiter import builders

PENDING = {"phase": "Pending"}
SUCCEEDED = {"phase": "Succeeded", "podIP": "10.0.0.1"}


def seen(mode: WatchMode, *statuses: dict[str, Any] | None) -> PodState:
    """The state after snapshots of one pod, None for a 404."""
    state = PodState()
    for status in statuses:
        snapshot = None if status is None else PodSnapshot.at(builders.a_pod(status))
        state = after(state, snapshot, mode)
    return state


def test_a_running_pod_that_is_not_ready_is_waited_for() -> None:
    """Ready is a condition, not the phase Running."""
    state = seen(WatchMode.READY, builders.unready("10.0.0.1"))

    assert state.wait is WaitState.WAITING
    assert state.reason == "Running, not Ready"


def test_a_ready_pod_is_done() -> None:
    """The condition Ready with status True ends the wait for this pod."""
    assert seen(WatchMode.READY, PENDING, builders.ready("10.0.0.1")).wait is WaitState.DONE


def test_a_pod_that_is_no_longer_ready_is_waited_for_again() -> None:
    """Readiness is what is true now, not what once was."""
    state = seen(WatchMode.READY, builders.ready("10.0.0.1"), builders.unready("10.0.0.1"))

    assert state.wait is WaitState.WAITING


@pytest.mark.parametrize("mode", list(WatchMode))
def test_a_failed_pod_is_lost_with_its_last_words(mode: WatchMode) -> None:
    """Container, exit code and termination message are told."""
    state = seen(mode, builders.failed(3, "no such column: label"))

    assert state.wait is WaitState.LOST
    assert state.reason == "failed: container main exited with 3 (Error): no such column: label"


def test_an_evicted_pod_is_lost_with_the_kubelets_reason() -> None:
    """Eviction has no container status; the pod's reason stands for it."""
    status = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."}

    assert seen(WatchMode.READY, status).reason == "failed: Evicted: The node was low on memory."


@pytest.mark.parametrize("mode", list(WatchMode))
def test_a_pod_that_never_was_is_waited_for(mode: WatchMode) -> None:
    """404 before the first snapshot is no loss."""
    assert seen(mode, None, None).wait is WaitState.UNSEEN


@pytest.mark.parametrize("mode", list(WatchMode))
def test_a_pod_seen_once_and_then_missing_has_vanished(mode: WatchMode) -> None:
    """404 after a snapshot is a loss."""
    state = seen(mode, PENDING, None)

    assert state.wait is WaitState.LOST
    assert "vanished" in state.reason


def test_another_pod_of_the_same_name_is_a_loss() -> None:
    """A new UID means an empty disk where the partition was."""
    first = PodSnapshot.at(builders.a_pod(builders.ready("10.0.0.1"), uid="a"))
    second = PodSnapshot.at(builders.a_pod(builders.ready("10.0.0.1"), uid="b"))

    state = after(after(PodState(), first, WatchMode.READY), second, WatchMode.READY)

    assert state.wait is WaitState.LOST
    assert state.reason == "vanished: another pod has taken its name"


@pytest.mark.parametrize("mode", list(WatchMode))
def test_a_pod_that_is_being_deleted_is_lost(mode: WatchMode) -> None:
    """It may be Ready for another half minute, but the job will not have it."""
    pod = builders.a_pod(builders.ready("10.0.0.1"), deleting=True)

    assert after(PodState(), PodSnapshot.at(pod), mode).wait is WaitState.LOST


def test_a_finished_pod_may_be_deleted() -> None:
    """What has finished stays finished."""
    assert seen(WatchMode.FINISHED, SUCCEEDED, None).wait is WaitState.DONE


@pytest.mark.parametrize(("code", "wait"), [(0, WaitState.DONE), (3, WaitState.LOST)])
def test_a_partitioner_is_judged_by_its_main_container_while_a_sidecar_runs_on(
    code: int, wait: WaitState
) -> None:
    """The sidecar of a mesh would keep the pod Running, and the launcher waiting, for ever."""
    ended = {
        "name": "main",
        "state": {"terminated": {"exitCode": code, "reason": "Error", "message": "no data"}},
    }
    proxy = {"name": "proxy", "state": {"running": {}}}
    pod = builders.a_pod({"phase": "Running", "containerStatuses": [proxy, ended]})
    pod["metadata"]["annotations"] = {names.ANNOTATION_MAIN: "main"}

    state = after(PodState(), PodSnapshot.at(pod), WatchMode.FINISHED)

    assert state.wait is wait
    assert ("exited with 3" in state.reason) is bool(code)


def test_a_worker_that_ended_before_the_training_is_lost() -> None:
    """A worker whose command ends with 0 can train nothing."""
    state = seen(WatchMode.READY, SUCCEEDED)

    assert state.wait is WaitState.LOST
    assert "ended before the training" in state.reason


def test_the_reason_of_a_waiting_container_is_told() -> None:
    """ImagePullBackOff is what a user must read."""
    waiting = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}

    state = seen(WatchMode.READY, {"phase": "Pending", "containerStatuses": [waiting]})

    assert state.reason == "main: ImagePullBackOff"


def test_the_reason_of_an_unschedulable_pod_is_told() -> None:
    """So is what the scheduler says."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }

    state = seen(WatchMode.READY, {"phase": "Pending", "conditions": [condition]})

    assert state.reason == "Unschedulable: 0/1 nodes are available"


LOOKS = st.lists(
    st.one_of(
        st.none(),
        st.builds(
            PodSnapshot,
            uid=st.sampled_from(["a", "b"]),
            phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "Unknown"]),
            ip=st.sampled_from([None, "10.0.0.1", "10.0.0.2"]),
            is_ready=st.booleans(),
            is_being_deleted=st.booleans(),
            reason=st.just("because"),
        ),
    ),
    max_size=8,
)


@given(LOOKS, st.sampled_from(WatchMode))
def test_whatever_is_seen_a_loss_is_final_and_done_is_true(
    snapshots: list[PodSnapshot | None], mode: WatchMode
) -> None:
    """Over any sequence: a lost pod stays lost, and only the right kind of pod is ever done."""
    state = PodState()
    for snapshot in snapshots:
        before, state = state, after(state, snapshot, mode)

        if before.wait is WaitState.LOST:
            assert state == before
        if state.wait is WaitState.DONE and before.wait is not WaitState.DONE:
            assert snapshot is not None
            assert snapshot.is_ready if mode is WatchMode.READY else snapshot.phase == "Succeeded"
        if mode is WatchMode.READY and state.wait is WaitState.DONE:
            assert snapshot is not None
            assert snapshot.phase not in ("Failed", "Succeeded")
            assert (snapshot.uid, snapshot.ip) == (state.uid, state.ip)
