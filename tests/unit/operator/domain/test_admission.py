"""What Kueue's word on a Workload means for the job: pods or none, and the next step."""

from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.api import kueue
from dgl_operator.api.v1alpha1 import DGLJob, Phase
from dgl_operator.domain import admission, decide, reduced
from dgl_operator.domain.admission import Assigned, Step
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import Decision
from dgl_operator.render import identity
from dglrun.contract.names import Role
from tests.support.jobs import NOON, Json, a_child, a_pod, a_raw_job, a_status, ended, observed

SAID: dict[str, Any] = {"QuotaReserved": "True", "Admitted": "True"}


def a_queued_job(status: Json | None = None, queue: str = "mine", **spec: Any) -> DGLJob:
    raw = a_raw_job(**spec)
    labels = {kueue.QUEUE_NAME: queue} if queue else {}
    metadata = {**raw["metadata"], "labels": labels}
    return DGLJob.parse({**raw, "metadata": metadata, "status": status or {}})


def a_workload(job: DGLJob, queue: str = "mine", *, active: bool = True, **said: Any) -> Json:
    conditions = [
        {"type": kind, "status": status, "reason": f"{kind}Reason", "message": f"{kind} message"}
        for kind, status in said.items()
    ]
    body = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": identity.metadata(job, "dgljob-sage"),
        "spec": {"queueName": queue, "active": active},
        "status": {"conditions": conditions},
    }
    return reduced.other(a_child(body, "workload-uid"))


def decided(job: DGLJob, *children: Json, now: datetime = NOON) -> Decision:
    return decide.decide(job, observed(job, *children), Report(), now)


def workers(job: DGLJob) -> list[Json]:
    return [a_pod(job, Role.WORKER, index=index) for index in range(2)]


def why(decision: Decision) -> tuple[str, str]:
    fact = next(fact for fact in decision.facts if fact.type == "Suspended")
    return fact.reason, fact.message


def test_a_job_of_a_queue_waits_until_it_is_admitted() -> None:
    """Its Workload is made first, and no pod is wanted."""
    job = a_queued_job()

    new = decided(job)
    waiting = decided(job, a_workload(job, QuotaReserved="False"))
    admitted = decided(job, a_workload(job, **SAID))

    assert (new.phase.value, new.is_held, new.roles, new.workload) == (
        "Suspended",
        True,
        frozenset(),
        Step.CREATE,
    )
    assert why(waiting) == (
        "NotAdmitted",
        "queue mine: Kueue has not admitted the job: QuotaReserved message",
    )
    assert (waiting.is_held, waiting.workload) == (True, None)
    assert (admitted.is_held, admitted.roles) == (False, frozenset({Role.LAUNCHER, Role.PARTITIONER}))


@pytest.mark.parametrize("ends", [{"Evicted": "True"}, {"Finished": "True"}, {"Admitted": "False"}], ids=str)
def test_pods_go_when_the_admission_does(ends: dict[str, Any]) -> None:
    """The attempt has ended, and the next one waits."""
    job = a_queued_job(a_status("Training", "LauncherStarted", "Partitioned"))
    launcher = a_pod(job, Role.LAUNCHER)

    decision = decided(job, launcher, a_workload(job, **{**SAID, **ends}))

    assert decision.is_held
    assert [pod.name for pod in decision.drop] == ["sage-launcher"]
    assert decision.life is not None
    assert decision.life.attempt == 1
    assert decision.workload is None, "the quota is given back when the pods are gone"


def test_an_evicted_job_gives_its_quota_back_when_its_pods_are_gone() -> None:
    """Once: then it waits for its admission."""
    job = a_queued_job(a_status("Suspended", "Suspended"))
    leaving = a_pod(job, Role.LAUNCHER, deleting=True)
    evicted = a_workload(job, **SAID, Evicted="True")
    released = a_workload(job, QuotaReserved="False", Admitted="False", Evicted="True")

    assert decided(job, leaving, evicted).workload is None
    assert decided(job, evicted).workload is Step.RELEASE
    assert decided(job, released).workload is None
    assert why(decided(job, released)) == (
        "Evicted",
        "queue mine: Kueue evicted the job: EvictedReason: Evicted message",
    )


def test_a_resumed_job_says_who_let_it_go_on() -> None:
    """Kueue, not its user."""
    job = a_queued_job(a_status("Suspended", "Suspended"))

    decision = decided(job, a_workload(job, **SAID))

    assert why(decision) == ("JobAdmitted", "queue mine: Kueue admitted the job")


def test_a_job_that_its_user_suspends_leaves_the_queue() -> None:
    """It asks anew when it is resumed."""
    job = a_queued_job(a_status("Training"), runPolicy={"suspend": True})
    workload = a_workload(job, **SAID)

    assert decided(job, a_pod(job, Role.LAUNCHER), workload).workload is None
    assert decided(job, workload).workload is Step.DELETE
    assert decided(job).workload is None
    assert why(decided(job, workload))[1] == "spec.runPolicy.suspend is true"


def test_another_queue_is_another_workload_unless_it_is_admitted() -> None:
    """An admitted job stays where it is; without the label it is in no queue."""
    moved = a_queued_job(queue="other")
    free = a_queued_job(queue="")

    assert decided(moved, a_workload(moved)).workload is Step.DELETE
    assert decided(moved, a_workload(moved, **SAID)).workload is None
    assert decided(free, a_workload(free, **SAID)).workload is Step.DELETE
    assert not decided(free, a_workload(free)).is_held


def test_a_label_that_is_taken_off_counts_when_the_pods_are_gone() -> None:
    """Until then the job keeps its quota, and goes when it is evicted."""
    job = a_queued_job(a_status("Training", "LauncherStarted", "Partitioned"), queue="")
    launcher = a_pod(job, Role.LAUNCHER)

    running = decided(job, launcher, *workers(job), a_workload(job, **SAID))
    evicted = decided(job, launcher, a_workload(job, **SAID, Evicted="True"))

    assert (running.is_held, running.workload) == (False, None)
    assert (evicted.is_held, evicted.workload) == (True, None)
    assert why(evicted)[1] == "queue mine: Kueue evicted the job: EvictedReason: Evicted message"


def test_pods_that_are_older_than_the_queue_stay() -> None:
    """An upgrade, or a label on a running job, costs no work; the next attempt waits."""
    job = a_queued_job(a_status("Training", "LauncherStarted", "Partitioned"))
    rest = a_queued_job(a_status("Pending"))

    running = decided(job, a_pod(job, Role.LAUNCHER), *workers(job))
    between = decided(rest)

    assert (running.is_held, running.drop, running.workload) == (False, (), None)
    assert (between.is_held, between.workload) == (True, Step.CREATE)


@pytest.mark.parametrize("phase", ["Completed", "Failed"])
def test_the_end_of_a_job_is_said_once(phase: str) -> None:
    """Kueue then counts it no more."""
    job = a_queued_job(a_status(phase, phase))

    assert decided(job, a_workload(job, **SAID)).workload is Step.FINISH
    assert decided(job, a_workload(job, **SAID, Finished="True")).workload is None
    assert decided(job).workload is None


@pytest.mark.parametrize("policy", ["All", "Running", "None"])
def test_the_quota_is_kept_until_no_pod_runs(policy: str) -> None:
    """A worker that is being deleted, or that the clean-up keeps, still has its GPU."""
    job = a_queued_job(a_status("Completed", "Completed"), cleanPodPolicy=policy)
    launcher, mine = a_pod(job, Role.LAUNCHER, "Succeeded"), a_workload(job, **SAID)

    running = decided(job, launcher, a_pod(job, Role.WORKER), mine)
    leaving = decided(job, launcher, a_pod(job, Role.WORKER, deleting=True), mine)
    stopped = decided(job, launcher, a_pod(job, Role.WORKER, containers=[ended()]), mine)

    assert [each.workload for each in (running, leaving, stopped)] == [None, None, Step.FINISH]


def test_a_deactivated_workload_holds_the_job() -> None:
    """Before Kueue has said that it evicts it."""
    job = a_queued_job()

    assert decided(job, a_workload(job, active=False, **SAID)).is_held


def test_a_job_without_the_label_asks_nobody() -> None:
    """As before."""
    assert decided(a_queued_job(queue="")).roles == {Role.LAUNCHER, Role.PARTITIONER}


def test_what_an_admission_gives_to_pods_is_read_whole() -> None:
    """Flavors by pod set, with what admission checks add."""
    job = a_queued_job()
    update = {"name": "workers", "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k"}]}
    raw = a_workload(job)
    raw["status"]["admission"] = {
        "podSetAssignments": [{"name": "workers", "flavors": {"cpu": "x", "memory": "x", "gpu": "y"}}]
    }
    raw["status"]["admissionChecks"] = [{"name": "c", "podSetUpdates": [update]}]

    found = admission.workload(job, observed(job, reduced.other(raw)))

    assert found is not None
    whole = {**update, "labels": {}, "annotations": {}}
    assert found.assigned == {"workers": Assigned(("x", "y"), (whole,))}


@given(
    said=st.dictionaries(
        st.sampled_from(admission.CONDITIONS), st.sampled_from(["True", "False", "Unknown"])
    ),
    active=st.booleans(),
    has_pod=st.booleans(),
    suspend=st.booleans(),
)
def test_no_job_of_a_queue_has_pods_without_an_admission(
    said: dict[str, Any], active: bool, has_pod: bool, suspend: bool
) -> None:
    """Whatever Kueue says; and while there are pods, nothing is done to the Workload."""
    job = a_queued_job(a_status("Training"), runPolicy={"suspend": suspend})
    pods = [a_pod(job, Role.LAUNCHER)] if has_pod else []

    decision = decided(job, *pods, a_workload(job, active=active, **said))

    runs = said.get("Admitted") == "True" and active and not suspend
    runs = runs and "True" not in (said.get("Evicted"), said.get("Finished"))
    if not runs:
        assert (decision.is_held, decision.roles) == (True, frozenset())
        assert len(decision.drop) == len(pods)
    if has_pod:
        assert decision.workload is None


def stored(**said: str) -> Json:
    conditions = [
        {"type": kind, "status": status, "reason": "Preempted", "message": "m", "lastTransitionTime": "then"}
        for kind, status in said.items()
    ]
    status = {"conditions": conditions, "admission": {"clusterQueue": "all"}}
    return {"kind": "Workload", "metadata": {"generation": 3}, "status": status}


def short(change: Json) -> dict[str, tuple[str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["lastTransitionTime"])
        for each in change["conditions"]
    }


def test_a_preempted_job_asks_for_its_admission_again() -> None:
    """Others wait until Kueue says that their wait is over; foreign conditions stay."""
    now = "2026-11-21T12:00:00Z"

    change = admission.released(stored(Evicted="True", Admitted="True", PodsReady="True"), NOON)

    assert change["admission"] is None
    assert short(change) == {
        "Evicted": ("True", "Preempted", "then"),
        "Admitted": ("False", "NoReservation", now),
        "PodsReady": ("True", "Preempted", "then"),
        "Requeued": ("True", "Preempted", now),
        "QuotaReserved": ("False", "Pending", now),
    }
    raw = stored(Evicted="True")
    raw["status"]["conditions"][0]["reason"] = "Deactivated"
    assert short(admission.released(raw, NOON))["Requeued"] == ("False", "Deactivated", now)


def test_the_end_names_success_or_failure() -> None:
    """By the words that Kueue has for it."""
    ends = {
        phase: short(admission.finished(stored(), phase, "why", NOON))["Finished"][:2]
        for phase in (Phase.COMPLETED, Phase.FAILED)
    }

    assert ends == {Phase.COMPLETED: ("True", "Succeeded"), Phase.FAILED: ("True", "Failed")}
