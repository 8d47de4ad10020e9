"""A job's NetworkPolicy on the real API server, which stores it and has the last word on the user's rules."""

import pytest

from dgl_operator.render import network
from dgl_operator.runtime.kinds import Json, Kind
from tests.integration.conftest import Submit
from tests.support import audit
from tests.support.jobs import a_job
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, versions
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

RULES = [
    {
        "from": [
            {"podSelector": {"matchLabels": {}}, "namespaceSelector": {"matchLabels": {"team": "ops"}}},
            {"ipBlock": {"cidr": "10.0.0.0/8", "except": []}},
        ],
        "ports": [{"port": 9100}, {"protocol": "UDP", "port": "stats"}],
    },
    {"from": [], "ports": [{"port": 7000, "endPort": 7010}]},
]
"""With all that the API server stores in another form."""

WRONG = {
    "unknown key": ({"form": []}, 'unknown field "spec.ingress[0].form"'),
    "no peer": ({"from": [{}]}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
    "no port": ({"ports": [{"port": "80"}]}, "spec.ingress[0].ports[0].port: Invalid value"),
}


def policy(job: PlayedJob) -> Json | None:
    return job.api.get(Kind.NETWORK_POLICY, job.namespace, job.name)


def edit(job: PlayedJob, change: Json) -> None:
    path = Kind.JOB.path(job.namespace, job.name)
    job.api.call("PATCH", path, {"spec": {"networkPolicy": change}}, "application/merge-patch+json")


def blocked(job: PlayedJob) -> str | None:
    """Reason of the condition, None while it is not true."""
    found = job.condition("Blocked")
    return found["reason"] if found.get("status") == "True" else None


def warnings(job: PlayedJob) -> list[str]:
    events = job.api.events(job.namespace, job.name)
    return [event["reason"] for event in events if event["type"] == "Warning"]


def written_to_policies(namespace: str) -> list[str]:
    """Verbs of all writes of NetworkPolicies in the namespace."""
    found = [(record["verb"], record["objectRef"]) for record in audit.records(f'"{namespace}"')]
    return [
        verb
        for verb, about in found
        if about.get("resource") == "networkpolicies"
        and about.get("namespace") == namespace
        and verb not in ("get", "list", "watch", "deletecollection")
    ]


def test_a_policy_with_rules_is_written_once(
    operator: OperatorProcess, submit: Submit, namespace: str
) -> None:
    """One request for a job, whatever the API server makes of the rules."""
    job = submit(networkPolicy={"ingress": RULES}).reach("Training")
    operator.wait_idle()

    found = policy(job)
    assert found is not None
    assert found["spec"]["ingress"][-1] == network.policy(a_job(job.name))["spec"]["ingress"][-1]
    assert written_to_policies(namespace) == ["create"]


@pytest.mark.parametrize(("rule", "says"), WRONG.values(), ids=WRONG)
def test_a_new_job_with_a_wrong_rule_fails_with_the_api_servers_words(
    operator: OperatorProcess, submit: Submit, namespace: str, rule: Json, says: str
) -> None:
    """One condition, one event, one request, no pod."""
    job = submit(networkPolicy={"ingress": [rule]})

    status = job.await_phase("Failed")
    operator.wait_idle()

    assert status["message"].startswith("InvalidSpec: NetworkPolicy sage: ")
    assert says in status["message"]
    assert warnings(job) == ["InvalidSpec"]
    assert job.api.list(Kind.POD, namespace) == ()
    assert written_to_policies(namespace) == ["create"]


@pytest.mark.parametrize(("rule", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_rule_of_a_job_under_way_is_told_and_costs_nothing(
    operator: OperatorProcess, submit: Submit, rule: Json, says: str
) -> None:
    """The next edit makes it good; of an apply some would look like an outage of the API server."""
    job = submit().reach("Training")
    before = policy(job)

    edit(job, {"ingress": [rule]})
    wait_for("told", lambda: blocked(job))
    operator.wait_idle()

    assert blocked(job) == "InvalidNetworkPolicy"
    assert says in job.condition("Blocked")["message"]
    assert (policy(job), job.status["phase"]) == (before, "Training")
    assert warnings(job) == ["InvalidNetworkPolicy"]
    assert operator.errors() == 0

    edit(job, {"ingress": RULES})
    wait_for("resolved", lambda: True if blocked(job) is None else None)
    after = policy(job)
    assert after is not None
    assert len(after["spec"]["ingress"]) == len(RULES) + 1


def test_a_policy_is_switched_off_and_on_under_a_running_job(
    operator: OperatorProcess, submit: Submit
) -> None:
    """The pods stay as they are."""
    job = submit().reach("Training")
    pods = versions({key: item for key, item in job.api.everything(job.namespace).items() if key[0] == "Pod"})

    edit(job, {"enabled": False})
    wait_for("gone", lambda: True if policy(job) is None else None)
    edit(job, {"enabled": None})
    wait_for("back", lambda: policy(job))

    after = job.api.everything(job.namespace)
    assert versions({key: item for key, item in after.items() if key[0] == "Pod"}) == pods
