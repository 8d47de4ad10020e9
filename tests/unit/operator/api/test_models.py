"""Reading and writing DGLJobs."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import (
    CleanPodPolicy,
    Condition,
    DGLJob,
    InvalidJob,
    JobStatus,
    PartitionStatus,
    Phase,
    Progress,
    ReplicaSpec,
    ReplicaStatus,
)
from dglrun.contract.names import Mode, Role
from tests.support.job_cases import BROKEN_TYPES, Bad, a_job, role

NOON = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


def test_defaults_are_those_of_the_proposal() -> None:
    """A job that says nothing is partitioned by DGL and loses its running pods at the end."""
    spec = DGLJob.parse(a_job()).spec

    assert (
        spec.partition_mode,
        spec.clean_pod_policy,
        spec.slots_per_worker,
    ) == (Mode.DGL_API, CleanPodPolicy.RUNNING, 1)


def test_newer_fields_do_not_hinder_an_older_operator() -> None:
    """Fields that this version does not know are passed over, at each level."""
    raw = a_job(elastic=True)
    raw["spec"]["dglReplicaSpecs"]["Worker"]["minReplicas"] = 1
    raw["status"] = {"phase": "Training", "moves": 2}

    job = DGLJob.parse(raw)

    assert job.status.phase is Phase.TRAINING
    assert job.spec.dgl_replica_specs.of(Role.WORKER) is not None


def test_a_mistyped_role_is_remembered() -> None:
    """An unknown role is kept apart, so that it can be named."""
    raw = a_job(roles={"Launcher": role(1), "Wroker": role(2), "Evaluator": role(1)})

    specs = DGLJob.parse(raw).spec.dgl_replica_specs

    assert specs.unknown == ("Evaluator", "Wroker")
    assert specs.worker is None


@pytest.mark.parametrize("bad", BROKEN_TYPES, ids=lambda bad: bad.what)
def test_what_has_the_wrong_type_is_named(bad: Bad) -> None:
    """One line for each problem: the field and what was found."""
    with pytest.raises(InvalidJob) as caught:
        DGLJob.parse(bad.job)

    (problem,) = caught.value.problems
    assert problem.startswith(bad.where), problem
    assert ", got " in problem
    assert bad.says in problem


def test_all_problems_are_named_at_once() -> None:
    """Nobody mends one field after the other."""
    with pytest.raises(InvalidJob) as caught:
        DGLJob.parse(a_job(partitionMode="metis", slotsPerWorker=0))

    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    "template", [{}, {"spec": None}, {"spec": {}}, {"spec": {"containers": []}}, {"spec": []}]
)
def test_a_template_without_container_has_no_main_one(template: dict[str, object]) -> None:
    """Whatever the template lacks on the way to its first container, the answer is an InvalidJob."""
    spec = ReplicaSpec(template=template)

    assert spec.containers == ()
    with pytest.raises(InvalidJob, match="at least one container"):
        _ = spec.main


def test_the_first_container_is_the_main_one() -> None:
    """Sidecars come after it."""
    spec = ReplicaSpec.model_validate(role(1))

    assert spec.main == {"name": "main", "image": "example.org/sage"}


def test_only_completed_and_failed_are_final() -> None:
    """A job moves in every other phase."""
    assert [phase for phase in Phase if phase.is_final] == [Phase.COMPLETED, Phase.FAILED]


def test_status_is_written_as_the_api_server_stores_it() -> None:
    """Keys are camelCase, times end in Z, what is unset is absent, an empty message stays."""
    status = JobStatus(
        phase=Phase.FAILED,
        conditions=(Condition(type="Failed", status="True", reason="PodFailed", last_transition_time=NOON),),
        replica_statuses={"Worker": ReplicaStatus(failed=1, ready="0/1")},
        start_time=NOON,
    )

    written = status.wire()

    assert written == {
        "phase": "Failed",
        "conditions": [
            {
                "type": "Failed",
                "status": "True",
                "reason": "PodFailed",
                "message": "",
                "lastTransitionTime": "2026-11-21T12:00:00Z",
            }
        ],
        "attempt": 0,
        "attempts": [],
        "replicaStatuses": {
            "Worker": {
                "pending": 0,
                "starting": 0,
                "running": 0,
                "succeeded": 0,
                "failed": 1,
                "ready": "0/1",
            }
        },
        "startTime": "2026-11-21T12:00:00Z",
    }


MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
SHARES = st.decimals(0, 100, places=1).map(lambda share: f"{share}%")
STATUSES = st.builds(
    JobStatus,
    phase=st.sampled_from(Phase),
    message=st.none() | st.text(max_size=20),
    start_time=st.none() | MOMENTS,
    observed_generation=st.none() | st.integers(0, 2**53),
    progress=st.none() | st.builds(Progress, stage=st.just("Training"), time=st.none() | MOMENTS),
    partition=st.none() | st.builds(PartitionStatus, edge_cut=SHARES, num_parts=st.integers(1, 9)),
)


@given(STATUSES)
def test_a_status_is_read_as_it_was_written(status: JobStatus) -> None:
    """Nothing is lost on the way through the API server, so an unchanged status is never written again."""
    assert JobStatus.model_validate(status.wire()) == status


@pytest.mark.parametrize("cut", ["12.3", "12,3%", "-1%", "nan%", "%", 12.3])
def test_a_share_of_another_form_is_refused(cut: object) -> None:
    """What the API server would refuse never enters a status."""
    with pytest.raises(ValueError, match="edgeCut"):
        PartitionStatus.model_validate({"edgeCut": cut})
