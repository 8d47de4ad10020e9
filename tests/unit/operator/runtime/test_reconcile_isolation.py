"""One look at a job when others interfere: foreign objects, refusals, bugs, edits, crowds of events."""

import copy
from typing import Any

import pytest

from dgl_operator.runtime import store as stores
from dgl_operator.runtime.cluster import ClusterBusy, Refused
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.status_writer import BUSY_SECONDS, MINOR_SECONDS
from dglrun.contract import names
from dglrun.contract.names import Mode
from tests.support.jobs import a_pod_status, a_raw_job, a_template
from tests.support.memory_cluster import MemoryCluster, over_quota
from tests.unit.operator.runtime.test_reconcile import (
    KEY,
    LAUNCHER_WAITS,
    PARTITIONER_DONE,
    Operator,
    partitioned,
    training,
    worker_status,
)

FOREIGN_WORKER: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "sage-worker-0",
        "namespace": "default",
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "StatefulSet",
                "name": "sage-worker",
                "uid": "s",
                "controller": True,
            }
        ],
    },
}


def rights(operator: Operator, account: str) -> dict[str, list[str]]:
    """Pods by resource that a Role names; empty while there is none."""
    role = operator.cluster.objects.get((Kind.ROLE, "default", account), {"rules": []})
    return {rule["resources"][0]: rule["resourceNames"] for rule in role["rules"]}


def condition(operator: Operator, kind: str) -> Json:
    return next((each for each in operator.status["conditions"] if each["type"] == kind), {})


def failing(what: str, name: str, error: Exception) -> Any:
    """Admission that fails for one object."""

    def admit(body: Json) -> None:
        if (body["kind"], body["metadata"]["name"]) == (what, name):
            raise error

    return admit


def test_a_job_named_after_a_stateful_set_gets_no_rights_over_its_pods() -> None:
    """Role and RoleBinding were made before anybody looked whose the pods are."""
    operator = Operator(a_raw_job(mode=Mode.DIST_PARMETIS))
    operator.cluster.add(FOREIGN_WORKER)

    operator.look()
    operator.look()

    assert "pods/exec" not in rights(operator, "sage-launcher")
    assert "sage-worker-0" not in str(rights(operator, "sage-launcher"))
    assert condition(operator, "Blocked")["reason"] == "ObjectConflict"


def test_rights_come_with_the_pods_that_they_name() -> None:
    """The launcher may watch the partitioner first, and reach the workers when all of them are there."""
    operator = Operator()
    operator.look()
    first = rights(operator, "sage-launcher")
    partitioned(operator)

    assert "sage-worker-0" not in str(first)
    assert first["pods"] == ["sage-partitioner"]
    assert rights(operator, "sage-launcher")["pods/exec"] == ["sage-worker-0", "sage-worker-1"]
    assert rights(operator, "sage-partitioner")["pods/exec"] == ["sage-launcher"]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_rights_go_when_the_job_has_ended(phase: str) -> None:
    """The accounts stay with the pods that use them, and may do nothing more."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status(phase))

    operator.settle()

    assert operator.names(Kind.ROLE) == set()
    assert operator.names(Kind.ROLE_BINDING) == set()
    assert operator.names(Kind.SERVICE_ACCOUNT) == {"sage-launcher", "sage-partitioner"}


def test_a_milestone_is_recorded_before_anything_is_provided() -> None:
    """Partitioned stayed False while workers were refused; a deleted partitioner failed the job (A4)."""
    operator = Operator()
    operator.settle()
    operator.pod("sage-partitioner", a_pod_status("Succeeded", ip="10.0.0.2"))
    operator.cluster.admit = failing(
        "Pod", "sage-worker-0", ClusterBusy("failed calling webhook", status=500)
    )
    with pytest.raises(ClusterBusy):
        operator.look()
    recorded = condition(operator, "Partitioned")["status"]
    operator.cluster.remove(Kind.POD, "default", "sage-partitioner")
    operator.cluster.admit = lambda _body: None

    operator.settle()

    assert recorded == "True"
    assert operator.status["phase"] == "Partitioned"
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-worker-0", "sage-worker-1"}


def test_a_webhook_that_cannot_be_called_is_shown_on_the_job() -> None:
    """It was a line in the log, with an empty status; and it passes."""
    operator = Operator()
    error = ClusterBusy("POST pods: HTTP 500: failed calling webhook", status=500, reason="InternalError")
    operator.cluster.admit = failing("Pod", "sage-launcher", error)
    with pytest.raises(ClusterBusy):
        operator.look()
    shown = condition(operator, "Blocked")
    operator.cluster.admit = lambda _body: None
    operator.settle()

    assert (shown["status"], shown["reason"]) == ("True", "InternalError")
    assert "failed calling webhook" in shown["message"]
    assert condition(operator, "Blocked")["status"] == "False"
    assert {"InternalError", "BlockedResolved"} <= set(operator.reasons())


REFUSALS = [
    Refused(403, "Forbidden", 'violates PodSecurity "restricted:latest"'),
    Refused(403, "Forbidden", 'pods "sage-worker-0" is forbidden: exceeded quota: small'),
    Refused(400, "", 'admission webhook "team.example" denied the request: label team is missing'),
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=["pod security", "quota", "webhook"])
def test_a_worker_that_would_be_refused_shows_before_the_partitioning(refusal: Refused) -> None:
    """The rehearsal ignored 403, so that it showed after hours."""
    operator = Operator()
    operator.cluster.admit = failing("Pod", "sage-worker-0", refusal)

    outcome = operator.look()

    assert outcome.retry
    assert operator.names(Kind.POD) == set()
    assert str(refusal) in condition(operator, "Blocked")["message"]


def test_of_a_thousand_workers_that_are_refused_few_are_tried() -> None:
    """Each try asks the API server, which would refuse them all for the same reason."""
    operator = Operator(a_raw_job(workers=1_000, mode=Mode.DIST_PARMETIS))
    tried: list[str] = []

    def admit(body: Json) -> None:
        if body["kind"] == "Pod" and "worker" in body["metadata"]["name"]:
            tried.append(body["metadata"]["name"])
            raise Refused(403, "Forbidden", "exceeded quota: small")

    operator.cluster.admit = admit
    operator.look()

    assert 0 < len(tried) <= 32
    assert condition(operator, "Blocked")["reason"] == "QuotaExceeded"


def test_a_webhook_that_takes_no_dry_run_says_nothing_about_the_worker() -> None:
    """Its verdict comes when the worker is made."""
    operator = Operator()
    unable = Refused(400, "BadRequest", 'admission webhook "x" does not support dry run')
    operator.cluster.admit = failing("Pod", "sage-worker-0", unable)

    operator.look()

    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_a_bug_stalls_its_job_visibly_is_counted_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loud, and on one job only."""
    operator = Operator()
    operator.settle()
    with monkeypatch.context() as broken:
        broken.setattr("dgl_operator.domain.decide.decide", lambda *_given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            operator.look()
        stalled = condition(operator, "Stalled")
    text = operator.metrics.text()
    operator.settle()

    assert (stalled["status"], stalled["reason"]) == ("True", "InternalError")
    assert stalled["message"] == "ZeroDivisionError: division by zero"
    assert b"dgl_operator_reconcile_errors_total 1.0" in text
    assert condition(operator, "Stalled")["status"] == "False"


def test_a_job_under_way_that_cannot_be_read_stalls_and_is_not_failed() -> None:
    """Its pods may be at work; an older operator may have taken it."""
    operator = Operator()
    operator.settle()
    job = operator.cluster.objects[Kind.JOB, *KEY]
    operator.cluster.add({**{k: v for k, v in job.items() if k != "spec"}, UNREADABLE: "too deep"})

    operator.look()

    assert operator.status["phase"] == "Pending"
    assert condition(operator, "Stalled")["reason"] == "UnreadableObject"


def test_a_new_job_with_a_huge_spec_is_refused_with_the_limit() -> None:
    """Each of its pods would hold a copy."""
    operator = Operator(a_raw_job(worker=a_template(env=[{"name": "X", "value": "x" * stores.SPEC_BYTES}])))

    operator.look()

    message = operator.status["message"]
    assert message.startswith(
        f"InvalidSpec: spec: expected at most {stores.SPEC_BYTES} bytes of JSON, got 26"
    )
    assert operator.names(Kind.POD) == set()


def test_a_job_with_a_large_spec_runs_like_any_other() -> None:
    """Its spec is read when it is looked at."""
    operator = Operator(
        a_raw_job(worker=a_template(env=[{"name": "X", "value": "x" * stores.KEPT_SPEC_BYTES}]))
    )

    training(operator)

    assert operator.status["phase"] == "Training"


def test_a_crowd_of_pod_events_is_few_status_writes() -> None:
    """200 Ready events were 200 status writes."""
    operator = Operator(a_raw_job(workers=60))
    partitioned(operator)
    writes = []
    for index in range(60):
        operator.pod(f"sage-worker-{index}", worker_status(index))
        operator.look()
        writes += [write for write in operator.cluster.writes if write.startswith("status")]
        operator.seconds += MINOR_SECONDS / 50

    operator.settle()

    assert len(writes) <= 6
    assert operator.status["replicaStatuses"]["Worker"]["ready"] == "60/60"
    assert condition(operator, "WorkersReady")["status"] == "True"


def test_a_blocked_jobs_counts_are_written_as_soon_as_those_of_others() -> None:
    """What was held back waited for the next try of what is blocked, up to a minute away."""
    operator = Operator()

    def admit(body: Json) -> None:
        if body["metadata"]["name"] == "sage-worker-1":
            over_quota("Pod")(body)

    operator.cluster.admit = admit
    partitioned(operator)
    operator.pod("sage-worker-0", a_pod_status("Running", ip="10.0.0.10"))
    operator.look()
    operator.pod("sage-worker-0", worker_status(0))
    outcome = operator.look()
    held = operator.status["replicaStatuses"]["Worker"]["ready"]
    operator.seconds += MINOR_SECONDS
    operator.look()

    assert outcome.retry
    assert outcome.recheck_after is not None
    assert outcome.recheck_after <= MINOR_SECONDS
    assert (held, operator.status["replicaStatuses"]["Worker"]["ready"]) == ("0/2", "1/2")


def test_a_busy_operator_writes_phases_late_and_milestones_and_ends_at_once() -> None:
    """A status is the dearest write; what the next one says need not be said before."""
    operator = Operator()
    operator.look()
    operator.load.busy = True
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    waits = operator.look().recheck_after
    late = operator.status["phase"]
    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.look()
    milestone = operator.status["phase"]
    operator.pod("sage-launcher", a_pod_status("Failed"))
    operator.look()

    assert waits is not None
    assert MINOR_SECONDS < waits <= BUSY_SECONDS
    assert (late, milestone, operator.status["phase"]) == ("Pending", "Partitioned", "Failed")


def test_a_phase_that_was_held_back_is_written_in_the_next_quiet_moment() -> None:
    """A neighbour's burst of a second made the phases of all jobs ten seconds old."""
    operator = Operator()
    operator.look()
    operator.load.busy = True
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    operator.look()
    held = operator.status["phase"]
    asked = list(operator.load.until_quiet)
    operator.load.busy = False

    operator.look()

    assert (held, asked) == ("Pending", [KEY])
    assert operator.status["phase"] == "Starting"
    assert operator.load.until_quiet == [KEY]


def test_a_status_after_the_end_agrees_with_itself() -> None:
    """WorkersReady=True stood beside 0/2."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))

    operator.settle()

    assert operator.status["replicaStatuses"]["Worker"]["ready"] == "0/2"
    assert condition(operator, "WorkersReady")["status"] == "False"


def test_the_launchers_logs_outlive_a_failure() -> None:
    """The launcher was deleted with its logs, to which the documentation sends the user."""
    operator = Operator()
    training(operator)
    operator.pod("sage-worker-1", a_pod_status("Failed", ip="10.0.0.11"))
    operator.settle()

    launcher = operator.cluster.objects[Kind.POD, "default", "sage-launcher"]
    assert operator.status["phase"] == "Failed"
    assert launcher["spec"]["activeDeadlineSeconds"] == 1
    assert (Kind.POD, "default", "sage-worker-0") not in operator.cluster.objects


@pytest.mark.parametrize("name", ["sage-launcher", "sage-worker-1"])
def test_a_pod_without_its_labels_is_found_and_gets_them_back(name: str) -> None:
    """The watch reports it as deleted; it was taken for lost, or made the operator stumble."""
    operator = Operator()
    training(operator)
    place = (Kind.POD, "default", name)
    bare = copy.deepcopy(operator.cluster.objects[place])
    bare["metadata"]["labels"] = {}
    operator.cluster.objects[place] = bare

    operator.settle()

    assert operator.status["phase"] == "Training"
    assert operator.cluster.objects[place]["metadata"]["labels"] == {names.LABEL_JOB: "sage"}


def test_a_pod_that_lost_its_role_label_ends_the_job_as_any_other() -> None:
    """KeyError on each look, and the job never ended."""
    operator = Operator()
    training(operator)
    place = (Kind.POD, "default", "sage-launcher")
    del operator.cluster.objects[place]["metadata"]["labels"][names.LABEL_REPLICA_TYPE]

    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    operator.settle()

    assert operator.status["phase"] == "Completed"


ODD_STATUSES: dict[str, Json] = {
    "a time in the year 0": {"progress": {"stage": "Training", "time": "0000-01-01T00:00:00Z"}},
    "a condition without a time": {"conditions": [{"type": "Mine", "status": "True", "reason": "X"}]},
    "a phase that nobody knows": {"phase": "Resting"},
}


@pytest.mark.parametrize("odd", ODD_STATUSES.values(), ids=ODD_STATUSES)
def test_a_strangers_status_that_cannot_be_read_does_not_stop_the_job(odd: Json) -> None:
    """ValidationError on each look, for ever; the rest of the status counts."""
    operator = Operator()
    training(operator)
    job = operator.cluster.objects[Kind.JOB, *KEY]
    conditions = [*job["status"]["conditions"], *odd.get("conditions", [])]
    operator.cluster.add({**job, "status": {**job["status"], **odd, "conditions": conditions}})

    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    operator.settle()

    assert operator.status["phase"] == "Completed"


def test_what_a_stranger_writes_into_the_status_beside_our_own_write_does_not_stop_the_job() -> None:
    """InvalidJob where a milestone's status came back with a condition that cannot be read."""
    operator = Operator()
    write = operator.cluster.write_status
    odd = {"type": "Odd", "status": "True", "reason": "X", "lastTransitionTime": "0000-01-01T00:00:00Z"}

    def beside_a_stranger(job: Any, status: Json) -> Json:
        stored = write(job, status)
        conditions = [*stored["status"]["conditions"], odd]
        return {**stored, "status": {**stored["status"], "conditions": conditions}}

    operator.cluster.write_status = beside_a_stranger  # type: ignore[method-assign]
    training(operator)

    assert operator.status["phase"] == "Training"


class UnderPressure(MemoryCluster):
    """Refuses each status that its field would not take."""

    def write_status(self, job: Any, status: Json) -> Json:
        """See `Cluster`."""
        texts = [status.get("message", ""), *(each["message"] for each in status["conditions"])]
        if any(len(text) > 32_768 for text in texts):
            raise Refused(422, "Invalid", "Too long: may not be more than 32768 bytes")
        return super().write_status(job, status)


def test_a_message_longer_than_its_field_does_not_wedge_the_job() -> None:
    """Endless retries, and no error counted."""
    operator = Operator()
    operator.cluster.__class__ = UnderPressure
    error = Refused(422, "Invalid", "spec.containers[0].env[0].value: " + "x" * 70_000)
    operator.cluster.admit = failing("Pod", "sage-launcher", error)

    operator.settle(Key("default", "sage"))

    assert operator.status["phase"] == "Failed"
    assert len(operator.status["message"]) <= 32_768
