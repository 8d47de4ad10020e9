"""A job's NetworkPolicy against an API server in memory: before the pods, by the spec, never in a loop."""

import copy
from collections.abc import Callable

import pytest

from dgl_operator.runtime.cluster import Refused
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract.names import Mode
from tests.support.jobs import a_pod_status, a_raw_job
from tests.support.memory_cluster import over_quota
from tests.unit.operator.runtime.test_reconcile import KEY, Operator, partitioned, training

PLACE = (Kind.NETWORK_POLICY, "default", "sage")
UNKNOWN_FIELD = 'strict decoding error: unknown field "spec.ingress[0].form"'


def edit(operator: Operator, policy: Json) -> None:
    """Change the job's networkPolicy as a user does."""
    place = (Kind.JOB, *KEY)
    job = copy.deepcopy(operator.cluster.remove(*place))
    job["spec"]["networkPolicy"] = policy
    job["metadata"]["generation"] += 1
    operator.cluster.add(job)


def rejecting(word: str) -> Callable[[Json], None]:
    """Admit no NetworkPolicy with this word, as the API server does with a field that it does not know."""

    def admit(body: Json) -> None:
        if body["kind"] == "NetworkPolicy" and word in str(body["spec"]):
            raise Refused(400, "BadRequest", UNKNOWN_FIELD)

    return admit


def condition(operator: Operator, kind: str) -> Json:
    return next(each for each in operator.status["conditions"] if each["type"] == kind)


@pytest.mark.parametrize("mode", list(Mode))
def test_the_policy_is_there_before_the_first_pod(mode: Mode) -> None:
    """There is no moment at which a pod of the job is open to others; it costs one request."""
    operator = Operator(a_raw_job(mode=mode))

    operator.look()

    writes = operator.cluster.writes
    assert [write for write in writes if "NetworkPolicy" in write] == ["create NetworkPolicy sage"]
    first_pod = next(index for index, write in enumerate(writes) if write.startswith("create Pod"))
    assert writes.index("create NetworkPolicy sage") < first_pod


def test_no_pod_is_created_while_the_policy_cannot_be() -> None:
    """A quota that is spent holds the job up instead of opening it."""
    operator = Operator()
    operator.cluster.admit = over_quota("NetworkPolicy")

    outcome = operator.look()

    assert outcome.retry
    assert operator.names(Kind.POD) == set()
    assert condition(operator, "Blocked")["reason"] == "QuotaExceeded"


def test_a_foreign_policy_of_the_name_is_left_alone() -> None:
    """Decided as for each object of the job: a condition, and no pod under somebody else's rules."""
    operator = Operator()
    foreign = operator.cluster.add(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "sage", "namespace": "default", "labels": {"dgl-operator/job-name": "sage"}},
            "spec": {"podSelector": {}},
        }
    )

    operator.look()

    assert operator.cluster.objects[PLACE] == foreign
    assert condition(operator, "Blocked")["reason"] == "ObjectConflict"
    assert operator.names(Kind.POD) == set()


@pytest.mark.parametrize(
    ("spec", "by_default", "has_one"),
    [({}, False, False), ({"enabled": True}, False, True), ({"enabled": False}, True, False)],
)
def test_a_job_has_the_policy_that_it_or_the_administrator_wants(
    spec: Json, by_default: bool, has_one: bool
) -> None:
    """The job's word counts more."""
    operator = Operator(a_raw_job(networkPolicy=spec), has_network_policy=by_default)

    operator.settle()

    assert (PLACE in operator.cluster.objects) is has_one
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_a_policy_that_is_deleted_or_opened_by_hand_is_put_right() -> None:
    """Like each object of the job."""
    operator = Operator()
    training(operator)
    good = operator.cluster.remove(*PLACE)["spec"]
    operator.settle()
    again = operator.cluster.objects[PLACE]
    operator.cluster.add({**again, "spec": {"podSelector": {}, "ingress": [{}]}})

    operator.settle()

    assert operator.cluster.objects[PLACE]["spec"] == good


def test_a_policy_is_switched_off_and_on_while_the_job_runs() -> None:
    """With one request each; the pods stay."""
    operator = Operator()
    training(operator)
    pods = {
        place: pod["metadata"]["uid"]
        for place, pod in operator.cluster.objects.items()
        if place[0] is Kind.POD
    }

    edit(operator, {"enabled": False})
    operator.look()
    off = [write for write in operator.cluster.writes if not write.startswith("status")]
    operator.settle()
    edit(operator, {"enabled": True})
    operator.look()
    on = [write for write in operator.cluster.writes if not write.startswith("status")]

    assert (off, on) == (["delete NetworkPolicy sage"], ["create NetworkPolicy sage"])
    assert {place: operator.cluster.objects[place]["metadata"]["uid"] for place in pods} == pods


def test_a_job_under_way_gets_the_rules_that_its_user_adds() -> None:
    """Rehearsed first: a server-side apply would answer a misspelt field with an error that seems to pass."""
    operator = Operator()
    training(operator)
    edit(operator, {"ingress": [{"ports": [{"port": 9100}]}]})

    operator.look()

    assert operator.cluster.objects[PLACE]["spec"]["ingress"][0] == {"ports": [{"port": 9100}]}
    operator.settle()


def test_a_new_job_with_rules_that_cannot_be_fails_once_and_for_all() -> None:
    """One condition, one event, no pod, and nothing is tried again."""
    operator = Operator(a_raw_job(networkPolicy={"ingress": [{"form": []}]}))
    operator.cluster.admit = rejecting("form")

    outcome = operator.look()
    operator.settle()

    assert not outcome.retry
    assert operator.status["phase"] == "Failed"
    assert operator.status["message"] == f"InvalidSpec: NetworkPolicy sage: {UNKNOWN_FIELD}"
    assert operator.reasons() == ["InvalidSpec"]
    assert operator.names(Kind.POD) == set()


def test_an_edit_that_cannot_be_costs_no_running_job() -> None:
    """It goes on under the rules that it had, says so once, and is not tried until it is edited again."""
    operator = Operator()
    training(operator)
    before = copy.deepcopy(operator.cluster.objects[PLACE]["spec"])
    operator.cluster.admit = rejecting("form")
    edit(operator, {"ingress": [{"form": []}]})

    outcome = operator.look()
    operator.settle()

    assert not outcome.retry
    assert operator.cluster.objects[PLACE]["spec"] == before
    assert operator.status["phase"] == "Training"
    blocked = condition(operator, "Blocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "InvalidNetworkPolicy")
    assert operator.reasons().count("InvalidNetworkPolicy") == 1

    edit(operator, {"ingress": [{"ports": [{"port": 9100}]}]})
    operator.settle()

    assert condition(operator, "Blocked")["status"] == "False"
    assert operator.cluster.objects[PLACE]["spec"]["ingress"][0] == {"ports": [{"port": 9100}]}


@pytest.mark.parametrize("how", ["disrupted", "resumed"])
def test_an_edit_that_cannot_be_costs_no_job_that_has_no_pods_for_now(how: str) -> None:
    """Its next attempt waits until the rules are edited again."""
    operator = Operator()
    training(operator)
    operator.cluster.admit = rejecting("form")
    edit(operator, {"ingress": [{"form": []}]})
    if how == "disrupted":
        operator.cluster.remove(Kind.POD, "default", "sage-worker-1")
    else:
        operator.edit(suspend=True)
        operator.settle()
        operator.edit(suspend=False)
    operator.settle_for(15)
    assert condition(operator, "Blocked")["reason"] == "InvalidNetworkPolicy"
    assert (operator.status["phase"], operator.names(Kind.POD)) == ("Pending", set())

    edit(operator, {})
    operator.settle()

    assert condition(operator, "Blocked")["status"] == "False"
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_no_further_pod_is_created_under_an_edit_that_cannot_be() -> None:
    """Whether the job is closed as its user wants is not known then."""
    operator = Operator()
    operator.settle()
    operator.cluster.admit = rejecting("form")
    edit(operator, {"ingress": [{"form": []}]})
    partitioned(operator)
    waiting = operator.names(Kind.POD)

    edit(operator, {})
    operator.settle()

    assert waiting == {"sage-launcher", "sage-partitioner"}
    assert {"sage-worker-0", "sage-worker-1"} < operator.names(Kind.POD)


def test_the_policy_outlives_the_end_of_the_job() -> None:
    """Pods may be kept, and a sidecar in them may run on."""
    operator = Operator(a_raw_job(cleanPodPolicy="None"))
    training(operator)
    operator.pod("sage-worker-1", a_pod_status("Failed", ip="10.0.0.11"))

    operator.settle()

    assert operator.status["phase"] == "Failed"
    assert PLACE in operator.cluster.objects
