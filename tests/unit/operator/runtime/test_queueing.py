"""A job of a queue against an API server in memory, on which the test plays Kueue."""

from typing import Any

import pytest

from dgl_operator.runtime.cluster import ClusterBusy, NotFound, Refused
from dgl_operator.runtime.kinds import Json, Kind
from tests.support.jobs import a_pod_status, a_raw_job, a_template
from tests.unit.operator.runtime.test_reconcile import (
    KEY,
    LAUNCHER_WAITS,
    PARTITIONER_DONE,
    Operator,
    training,
)

PLACE = (Kind.WORKLOAD, "default", "dgljob-sage")
FLAVOR = {
    "apiVersion": "kueue.x-k8s.io/v1beta1",
    "kind": "ResourceFlavor",
    "metadata": {"name": "spot"},
    "spec": {"nodeLabels": {"pool": "spot"}},
}


def an_operator(labels: dict[str, str] | None = None, *, has_kueue: bool = True, **given: Any) -> Operator:
    raw = a_raw_job(**given)
    found = {"kueue.x-k8s.io/queue-name": "mine", **(labels or {})}
    operator = Operator({**raw, "metadata": {**raw["metadata"], "labels": found}}, has_kueue=has_kueue)
    operator.cluster.add(FLAVOR)
    operator.cluster.served.add(Kind.WORKLOAD)
    return operator


def say(operator: Operator, *, admits: bool = True, **said: str) -> None:
    """Let Kueue write the conditions of the Workload, and assign a flavor."""
    found = operator.cluster.objects[PLACE]
    conditions = [
        {"type": kind, "status": status, "reason": "Preempted", "message": "", "lastTransitionTime": "t"}
        for kind, status in said.items()
    ]
    sets = [{"name": each["name"], "flavors": {"cpu": "spot"}} for each in found["spec"]["podSets"]]
    status = {"conditions": conditions, "admission": {"podSetAssignments": sets}} if admits else {}
    operator.cluster._store({**found, "status": status})


def admitted(**given: Any) -> Operator:
    operator = an_operator(**given)
    operator.settle()
    say(operator, QuotaReserved="True", Admitted="True")
    return operator


def workload(operator: Operator) -> Json:
    return operator.cluster.objects[PLACE]


def conditions(operator: Operator) -> dict[str, str]:
    return {each["type"]: each["status"] for each in workload(operator)["status"]["conditions"]}


def blocked(operator: Operator) -> str:
    found = [each for each in operator.status["conditions"] if each["type"] == "Blocked"]
    return str(found[0]["reason"]) if found and found[0]["status"] == "True" else ""


def test_an_admitted_job_has_pods_on_the_nodes_of_its_flavor() -> None:
    """Workers as well, which come later; a look without change reads and writes nothing."""
    operator = admitted()

    training(operator)

    for name in ("sage-launcher", "sage-worker-0"):
        pod = operator.cluster.objects[Kind.POD, "default", name]
        assert pod["spec"]["nodeSelector"] == {"pool": "spot"}
    operator.settle()
    operator.look()
    assert (operator.cluster.writes, operator.cluster.reads) == ([], [])


def test_an_evicted_job_goes_and_comes_back() -> None:
    """Its pods first, then its quota; the next attempt begins with the next admission."""
    operator = admitted()
    training(operator)
    say(operator, QuotaReserved="True", Admitted="True", Evicted="True")

    operator.look()
    assert operator.names(Kind.POD) == set()
    assert conditions(operator)["QuotaReserved"] == "True"
    operator.settle()
    assert (conditions(operator)["QuotaReserved"], conditions(operator)["Requeued"]) == ("False", "True")
    assert "admission" not in workload(operator)["status"]
    say(operator, QuotaReserved="True", Admitted="True", Evicted="False")
    operator.settle()

    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}
    assert operator.status["attempt"] == 1


def test_a_job_that_is_admitted_again_keeps_its_quota() -> None:
    """The watch was late: it still shows the eviction, whose quota was given back before."""
    operator = admitted()
    training(operator)
    say(operator, QuotaReserved="True", Admitted="True", Evicted="True")
    operator.look()
    operator.see()
    say(operator, QuotaReserved="True", Admitted="True", Evicted="False")
    operator.cluster.writes.clear()

    operator.reconcile(KEY)

    assert conditions(operator)["QuotaReserved"] == "True"
    assert not [write for write in operator.cluster.writes if "Workload" in write]
    operator.settle()
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_an_eviction_that_is_over_costs_no_pod() -> None:
    """The watch was late: what is read before pods go says so."""
    operator = admitted()
    training(operator)
    late = {**workload(operator), "status": {"conditions": [{"type": "Admitted", "status": "False"}]}}
    operator.store.put(Kind.WORKLOAD, late)

    operator.reconcile(next(iter(operator.store.keys())))

    assert "sage-launcher" in operator.names(Kind.POD)


def test_a_deleted_workload_holds_the_job_and_is_made_anew() -> None:
    """As Kueue does it with a Job."""
    operator = admitted()
    training(operator)
    operator.cluster.remove(*PLACE)

    operator.settle()

    assert operator.names(Kind.POD) == set()
    assert workload(operator)["spec"]["queueName"] == "mine"
    assert operator.status["phase"] == "Suspended"


def unserve(operator: Operator, *, is_known: bool) -> None:
    """Let the API server have no Workloads any more, with its watch ended before one that `is_known` goes."""
    operator.cluster.served.discard(Kind.WORKLOAD)
    operator.cluster.remove(*PLACE)
    if is_known:
        operator.has_kueue = False  # its list fails, so that `see` brings nothing


def test_a_version_that_is_no_longer_served_withdraws_no_admission() -> None:
    """Kueue was upgraded: a read finds nothing, and the job ends as it would have ended."""
    operator = admitted()
    training(operator)
    unserve(operator, is_known=True)
    operator.pod("sage-launcher", a_pod_status("Failed"))

    operator.settle()

    assert (operator.status["phase"], operator.status.get("restarts")) == ("Failed", None)


@pytest.mark.parametrize("restarts", [False, True], ids=["removed", "restarted"])
def test_a_job_that_was_admitted_keeps_its_pods_while_the_cluster_serves_no_workloads(restarts: bool) -> None:
    """Whether the watch reports all of them as deleted, or an operator that begins finds none."""
    operator = admitted()
    training(operator)
    pods = operator.names(Kind.POD)
    unserve(operator, is_known=False)
    if restarts:
        operator.restart()

    operator.settle()
    assert (operator.names(Kind.POD), operator.status["phase"]) == (pods, "Training")
    operator.cluster.served.add(Kind.WORKLOAD)
    operator.settle()

    assert (operator.names(Kind.POD), operator.status["phase"]) == (set(), "Suspended")
    assert workload(operator)["spec"]["queueName"] == "mine"


@pytest.mark.parametrize("is_held_back", [False, True], ids=["gone", "leaving"])
def test_a_job_that_was_admitted_keeps_its_pods_while_kueues_definitions_are_removed(
    is_held_back: bool,
) -> None:
    """Their objects go before they do, at once or when Kueue takes its finalizer off."""
    operator = admitted()
    training(operator)
    pods = operator.names(Kind.POD)
    operator.cluster.ending.add(Kind.WORKLOAD)
    metadata = {**workload(operator)["metadata"], "deletionTimestamp": operator.cluster.time}
    operator.cluster._store({**workload(operator), "metadata": metadata})
    if not is_held_back:
        operator.cluster.remove(*PLACE)

    operator.settle()
    assert (operator.names(Kind.POD), operator.status["phase"]) == (pods, "Training")
    operator.cluster.ending.clear()
    operator.settle()

    assert (operator.names(Kind.POD), operator.status["phase"]) == (set(), "Suspended")


def test_no_pod_is_added_while_the_cluster_serves_no_workloads() -> None:
    """On which nodes it belongs is not known any more; the job says so, and goes on when that is known."""
    operator = admitted()
    operator.settle()
    kept = operator.cluster.objects[PLACE]
    unserve(operator, is_known=False)
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    operator.pod("sage-partitioner", PARTITIONER_DONE)

    operator.look()
    operator.look()
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}
    assert blocked(operator) == "KueueNotInstalled"
    operator.cluster.served.add(Kind.WORKLOAD)
    operator.cluster.objects[PLACE] = kept
    operator.store.put_alive(PLACE[0], kept)
    operator.settle()

    worker = operator.cluster.objects[Kind.POD, "default", "sage-worker-0"]
    assert (blocked(operator), worker["spec"]["nodeSelector"]) == ("", {"pool": "spot"})


def test_an_operator_that_is_no_longer_told_of_kueue_leaves_running_jobs_alone() -> None:
    """An upgrade without the chart's old values costs no work; the next attempt waits."""
    operator = admitted(runPolicy={"backoffLimit": 1})
    training(operator)
    pods = operator.names(Kind.POD)
    operator.has_kueue = False
    operator.restart()

    operator.settle()
    assert (operator.names(Kind.POD), operator.status["phase"]) == (pods, "Training")
    operator.pod("sage-launcher", a_pod_status("Failed"))
    for _ in range(3):
        operator.look()

    assert (operator.status["restarts"]["failures"], operator.status["restarts"]["suspensions"]) == (1, 0)
    assert (operator.names(Kind.POD), blocked(operator)) == (set(), "KueueNotEnabled")


def test_an_operator_that_is_no_longer_told_of_kueue_adds_no_pod() -> None:
    """It does not know the nodes that the job was admitted for."""
    operator = admitted()
    operator.settle()
    operator.has_kueue = False
    operator.restart()
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    operator.pod("sage-partitioner", PARTITIONER_DONE)

    operator.look()
    operator.look()

    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}
    assert blocked(operator) == "KueueNotEnabled"


def test_an_evicted_job_gets_no_pods_from_an_operator_that_is_no_longer_told_of_kueue() -> None:
    """Its last word was an eviction, not an admission."""
    operator = admitted()
    training(operator)
    operator.cluster.is_graceful = True
    say(operator, QuotaReserved="True", Admitted="True", Evicted="True")
    operator.settle()
    operator.has_kueue = False
    operator.restart()

    operator.look()

    assert operator.status["phase"] == "Suspended"


def test_a_cluster_without_kueue_is_a_hindrance_with_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """And so is an operator that was not told of it."""
    operator = an_operator()
    create = operator.cluster.create

    def refuse(body: Json, **given: bool) -> Json:
        if body["kind"] == "Workload":
            raise NotFound(404, "NotFound", "the server could not find the requested resource")
        return create(body, **given)

    monkeypatch.setattr(operator.cluster, "create", refuse)
    untold = an_operator(has_kueue=False)

    for each in (operator, untold):
        assert each.look().retry

    assert (blocked(operator), blocked(untold)) == ("KueueNotInstalled", "KueueNotEnabled")
    assert operator.status["phase"] == "Suspended"
    monkeypatch.undo()
    operator.settle()
    assert blocked(operator) == ""


def test_a_kueue_that_cannot_be_called_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its webhook is the API server's answer 500; the operator tries again."""
    operator = an_operator()

    def fail(_body: Json, **_given: bool) -> Json:
        raise ClusterBusy("failed calling webhook", status=500, reason="InternalError")

    monkeypatch.setattr(operator.cluster, "create", fail)

    assert operator.look().retry
    assert blocked(operator) == "InternalError"


def test_a_class_gives_its_priority_and_must_be_there() -> None:
    """Neither is guessed."""
    operator = an_operator({"kueue.x-k8s.io/priority-class": "urgent"})
    operator.look()
    assert blocked(operator) == "PriorityClassNotFound"
    metadata = {"name": "urgent"}
    operator.cluster.add({"kind": "WorkloadPriorityClass", "metadata": metadata, "value": 7})

    operator.settle()

    spec = workload(operator)["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "urgent")


def test_a_flavor_that_is_gone_is_a_hindrance() -> None:
    """No pod starts where it was not admitted."""
    operator = an_operator()
    operator.settle()
    operator.cluster.remove(Kind.RESOURCE_FLAVOR, "", "spot")
    say(operator, QuotaReserved="True", Admitted="True")

    operator.look()

    assert blocked(operator) == "ResourceFlavorNotFound"
    assert operator.names(Kind.POD) == set()


def test_a_job_that_has_ended_frees_its_quota() -> None:
    """After its end is written, and once."""
    launcher = a_template()
    operator = admitted(launcher=launcher)
    training(operator)
    operator.pod("sage-launcher", {"phase": "Succeeded", "containerStatuses": []})

    operator.settle()

    assert operator.status["phase"] == "Completed"
    finished = next(each for each in workload(operator)["status"]["conditions"] if each["type"] == "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    assert finished["message"] == operator.status["message"]


def test_a_clean_up_that_takes_its_time_keeps_the_quota() -> None:
    """Containers have a grace period to end in; the last pod that goes is the end for Kueue."""
    operator = admitted()
    training(operator)
    operator.cluster.is_graceful = True
    operator.pod("sage-launcher", a_pod_status("Succeeded"))

    operator.settle()
    assert (operator.status["phase"], "Finished" in conditions(operator)) == ("Completed", False)
    operator.cluster.remove(Kind.POD, "default", "sage-worker-0")
    operator.settle()
    assert "Finished" not in conditions(operator)
    operator.cluster.remove(Kind.POD, "default", "sage-worker-1")
    operator.look()

    assert conditions(operator)["Finished"] == "True"


def test_pods_that_are_kept_keep_the_quota_while_they_run() -> None:
    """With cleanPodPolicy None the workers idle on, until somebody ends them."""
    operator = admitted(cleanPodPolicy="None")
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))

    operator.settle()
    assert (operator.status["phase"], "Finished" in conditions(operator)) == ("Completed", False)
    for name in ("sage-worker-0", "sage-worker-1"):
        operator.pod(name, a_pod_status("Failed"))
    operator.settle()

    assert operator.names(Kind.POD) >= {"sage-worker-0", "sage-worker-1"}
    assert conditions(operator)["Finished"] == "True"


def test_a_workload_of_another_job_is_left_alone() -> None:
    """It is named, and the job waits."""
    operator = an_operator()
    metadata = {"name": "dgljob-sage", "namespace": "default"}
    other = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "metadata": metadata, "spec": {}}
    operator.cluster.add(other)

    operator.look()

    assert blocked(operator) == "ObjectConflict"
    assert "ownerReferences" not in workload(operator)["metadata"]


def test_a_workload_that_is_ours_and_known_is_no_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch may bring it while the look that would create it is under way."""
    operator = an_operator()
    create = operator.cluster.create

    def overtaken(body: Json, **given: bool) -> Json:
        if body["kind"] == "Workload":
            operator.store.put(Kind.WORKLOAD, create(body, **given))
        return create(body, **given)

    monkeypatch.setattr(operator.cluster, "create", overtaken)

    operator.look()

    assert blocked(operator) == ""


@pytest.mark.parametrize("kind", ["Workload", "WorkloadPriorityClass", "ResourceFlavor"])
def test_what_the_api_server_refuses_is_shown(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """With its reason, and it is no error of the operator."""
    labels = {"kueue.x-k8s.io/priority-class": "urgent"} if kind == "WorkloadPriorityClass" else None
    operator = an_operator(labels)
    create, get = operator.cluster.create, operator.cluster.get
    if kind == "ResourceFlavor":
        operator.settle()
        say(operator, QuotaReserved="True", Admitted="True")

    def refuse_body(body: Json, **given: bool) -> Json:
        if body["kind"] == kind:
            raise Refused(422, "Invalid", "no such name")
        return create(body, **given)

    def refuse_name(of: Kind, namespace: str | None, name: str) -> Json | None:
        if of.value[0] == kind:
            raise Refused(403, "Invalid", "no such right")
        return get(of, namespace, name)

    monkeypatch.setattr(operator.cluster, "create", refuse_body)
    monkeypatch.setattr(operator.cluster, "get", refuse_name)

    operator.look()

    assert blocked(operator) == "Invalid"
    assert operator.status["message"].startswith(f"Invalid: {kind} ")


def test_a_job_past_its_time_goes_though_kueue_refuses_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Workload goes with it."""
    operator = admitted(runPolicy={"ttlSecondsAfterFinished": 0})
    training(operator)

    def refuse(*_given: object) -> Json:
        raise ClusterBusy("failed calling webhook", status=500, reason="InternalError")

    monkeypatch.setattr(operator.cluster, "patch_status", refuse)
    for name in operator.names(Kind.POD):
        operator.pod(name, a_pod_status("Succeeded"))
    with pytest.raises(ClusterBusy):
        operator.look()

    operator.look()

    assert operator.names(Kind.JOB) == set()
