"""One look at a job when things change while it is taken, or changed while the operator was another."""

import copy
from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import desired
from dgl_operator.render import pods as rendered
from dgl_operator.render.settings import Images
from dgl_operator.runtime import store as stores
from dgl_operator.runtime.cluster import Refused
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.rehearsal import KEPT_SECONDS
from dglrun.contract.names import Mode, Role
from tests.support.jobs import a_pod_status, a_raw_job, a_template
from tests.support.memory_cluster import over_quota
from tests.unit.operator.runtime.test_reconcile import KEY, Operator, partitioned, training, worker_status
from tests.unit.operator.runtime.test_reconcile_isolation import FOREIGN_WORKER


def test_an_answer_that_shows_more_than_our_write_changed_calls_for_a_look() -> None:
    """The watch brings the same again, which is no news: the look that it needs would not come."""
    operator = Operator()
    partitioned(operator)
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.look()
    operator.seconds += 1.0
    mark = operator.cluster.mark

    def started_meanwhile(*given: Any) -> Json | None:
        operator.pod("sage-launcher", a_pod_status("Running", ip="10.0.0.1"))
        return mark(*given)

    operator.cluster.mark = started_meanwhile  # type: ignore[assignment,method-assign]
    outcome = operator.look()

    assert operator.status["phase"] == "Partitioned"
    assert outcome.recheck_after == 0.0


def test_rights_that_an_older_operator_gave_are_narrowed_to_the_jobs_own_pods() -> None:
    """Its Role names all workers, whoever has pods of these names."""
    operator = Operator(a_raw_job(mode=Mode.DIST_PARMETIS))
    second = {**FOREIGN_WORKER, "metadata": {**FOREIGN_WORKER["metadata"], "name": "sage-worker-1"}}
    for pod in (FOREIGN_WORKER, second):
        operator.cluster.add(pod)
    job = operator.cluster.objects[Kind.JOB, KEY.namespace, KEY.name]
    for body in desired.rights(DGLJob.parse(job), frozenset({"sage-worker-0", "sage-worker-1"})):
        operator.cluster.add(body)

    operator.look()

    assert operator.names(Kind.ROLE) == set()
    assert operator.names(Kind.ROLE_BINDING) == set()


def test_a_job_under_way_does_not_fail_for_a_field_that_was_taken_before() -> None:
    """An older operator's rehearsal let it pass; its partition has cost hours."""
    operator = Operator()
    partitioned(operator)

    assert operator.cluster.strict["sage-launcher"]
    assert not operator.cluster.strict["sage-worker-1"]


def a_successor(operator: Operator, **given: Any) -> None:
    """Let another job have the name; the operator's watch of jobs is late."""
    operator.cluster.remove(Kind.JOB, KEY.namespace, KEY.name)
    operator.cluster.add(a_raw_job(uid="the-next", **given))


def test_a_successor_found_by_a_fresh_read_is_validated_like_any_job() -> None:
    """It went on where its predecessor had ended, unvalidated."""
    operator = Operator()
    training(operator)
    bad = a_template()
    bad["spec"]["restartPolicy"] = "Always"
    a_successor(operator, worker=bad)
    gone = operator.cluster.remove(Kind.POD, "default", "sage-launcher")
    operator.store.drop(Kind.POD, gone)

    operator.reconcile(KEY)
    operator.settle()

    assert operator.status["message"].startswith("InvalidSpec: ")


def test_the_children_of_a_predecessor_with_a_large_spec_are_not_the_successors() -> None:
    """Its spec is read when it is looked at, and then another job may have the name."""
    large = a_template(env=[{"name": "X", "value": "x" * stores.KEPT_SPEC_BYTES}])
    operator = Operator(a_raw_job(worker=large))
    training(operator)
    a_successor(operator, worker=large)

    operator.reconcile(KEY)

    reached = {each["type"] for each in operator.status["conditions"] if each["status"] == "True"}
    assert not reached & {"Partitioned", "LauncherStarted", "WorkersReady"}


def test_pods_that_lose_their_labels_one_after_the_other_are_all_found() -> None:
    """The list comes when more of them are bare than when the look began."""
    operator = Operator()
    training(operator)
    for name in ("sage-launcher", "sage-worker-0"):
        bare = copy.deepcopy(operator.cluster.objects[Kind.POD, "default", name])
        bare["metadata"]["labels"] = {}
        operator.cluster.objects[Kind.POD, "default", name] = bare
    operator.store.drop(Kind.POD, operator.cluster.objects[Kind.POD, "default", "sage-launcher"])

    operator.reconcile(KEY)
    operator.settle()

    assert operator.status["phase"] == "Training"


def test_an_end_is_decided_on_a_fresh_report() -> None:
    """A launcher that reported its success and is gone has not failed, though the report's watch is late."""
    operator = Operator()
    training(operator)
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    operator.cluster.add({**report, "data": {"progress.json": '{"stage": "Completed"}'}})
    operator.store.drop(Kind.POD, operator.cluster.remove(Kind.POD, "default", "sage-launcher"))

    operator.reconcile(KEY)

    assert operator.status["phase"] == "Completed"


def test_a_launcher_that_has_succeeded_ends_its_job_without_a_list_of_pods() -> None:
    """A pod that has ended stays ended; the job's last report is all that may be newer."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    operator.see()
    operator.cluster.add({**report, "data": {"partition.json": '{"parts": 2, "edgeCut": "12.50%"}'}})
    operator.cluster.reads.clear()

    operator.reconcile(KEY)

    assert operator.cluster.reads == ["get ConfigMap sage-report"]
    assert operator.status["phase"] == "Completed"
    assert operator.status["partition"]["edgeCut"] == "12.50%"


def test_pods_that_take_their_time_to_end_are_deleted_once() -> None:
    """The look after the clean-up deleted them again, and read all afresh before."""
    operator = Operator()
    training(operator)
    operator.cluster.is_graceful = True
    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    operator.look()
    ended = operator.status

    operator.cluster.writes.clear()
    operator.reconcile(KEY)

    assert operator.cluster.writes == []
    assert operator.status == ended
    assert operator.names(Kind.POD) >= {"sage-worker-0", "sage-worker-1"}


def test_equal_workers_of_two_jobs_are_rehearsed_once() -> None:
    """A sweep over parameters is many jobs with one template."""
    operator = Operator(a_raw_job(), a_raw_job("other", uid="other"))

    operator.look()
    operator.look(Key("default", "other"))

    assert operator.cluster.rehearsed == ["sage-worker-0"]


def test_other_workers_are_rehearsed_and_so_are_equal_ones_later() -> None:
    """Another template, another namespace, or another policy may have another answer."""
    different = a_raw_job("other", uid="other", worker=a_template(env=[{"name": "X", "value": "1"}]))
    operator = Operator(a_raw_job(), different, a_raw_job("later", uid="later"))

    operator.look()
    operator.look(Key("default", "other"))
    operator.seconds += KEPT_SECONDS
    operator.look(Key("default", "later"))

    assert operator.cluster.rehearsed == ["sage-worker-0", "other-worker-0", "later-worker-0"]


@pytest.mark.parametrize(("env", "most"), [(0, 40), (1500, 12)], ids=["small", "large"])
def test_the_workers_of_a_large_job_are_never_in_memory_at_once(
    monkeypatch: pytest.MonkeyPatch, env: int, most: int
) -> None:
    """A thousand of a template of 250 kB were 800 MiB: one job ended the operator for all tenants."""
    template = a_template(env=[{"name": f"X{at}", "value": "x" * 50} for at in range(env)])
    operator = Operator(a_raw_job(workers=1000, mode=Mode.DIST_PARMETIS, worker=template))
    made: list[str] = []
    render = rendered.pod

    def counted(job: DGLJob, role: Role, index: int, images: Images) -> Json:
        made.append(f"{role}-{index}")
        return render(job, role, index, images)

    monkeypatch.setattr(rendered, "pod", counted)
    operator.cluster.admit = over_quota("Pod")

    operator.look()

    assert 0 < len(made) <= most


def test_a_refusal_is_not_remembered() -> None:
    """The policy that refused the one worker may have gone when the next comes."""
    operator = Operator(a_raw_job(), a_raw_job("other", uid="other"))
    operator.cluster.admit = over_quota("Pod")
    operator.look()
    operator.cluster.admit = lambda _body: None

    operator.look(Key("default", "other"))

    assert operator.cluster.rehearsed[-1] == "other-worker-0"


def test_a_clean_up_that_is_refused_in_part_does_all_the_rest() -> None:
    """Rights and workers stayed because the launcher could not be stopped."""
    operator = Operator()
    training(operator)
    operator.pod("sage-worker-1", a_pod_status("Failed", ip="10.0.0.11"))

    def refuse(*_given: object) -> None:
        raise Refused(403, "Forbidden", "pods is forbidden")

    operator.cluster.stop = refuse  # type: ignore[assignment,method-assign]
    outcome = operator.look()

    assert outcome.retry
    assert operator.names(Kind.ROLE) == set()
    assert (Kind.POD, "default", "sage-worker-0") not in operator.cluster.objects


def test_a_status_with_very_many_odd_conditions_is_read_in_one_pass() -> None:
    """Each of them cost a validation of all."""
    operator = Operator()
    operator.settle()
    job = operator.cluster.objects[Kind.JOB, KEY.namespace, KEY.name]
    odd = [{"type": f"Odd{at}", "status": "True", "reason": "X"} for at in range(5_000)]
    conditions = [*job["status"]["conditions"], *odd]
    operator.cluster.add({**job, "status": {**job["status"], "conditions": conditions}})

    operator.look()

    assert operator.status["phase"] == "Pending"


def test_a_worker_that_goes_while_a_milestone_is_written_is_not_made_anew() -> None:
    """The look that wrote it had been decided on a pod that is gone by then."""
    operator = Operator()
    partitioned(operator)
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.settle()
    operator.pod("sage-launcher", a_pod_status("Running", ip="10.0.0.1"))
    write = operator.cluster.write_status

    def with_loss(job: Json, status: Json) -> Json:
        gone = operator.cluster.objects.pop((Kind.POD, "default", "sage-worker-1"), None)
        if gone:
            operator.store.drop(Kind.POD, gone)
        return write(job, status)

    operator.cluster.write_status = with_loss  # type: ignore[assignment,method-assign]
    outcome = operator.look()

    assert outcome.recheck_after == 0.0
    assert "create Pod sage-worker-1" not in operator.cluster.writes
    operator.look()
    assert operator.status["attempt"] == 1
