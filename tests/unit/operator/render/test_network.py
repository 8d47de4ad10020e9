"""The NetworkPolicy of a job: its own pods are admitted, and whom its rules admit."""

from typing import Any

import pytest

from dgl_operator.domain import reduced
from dgl_operator.render import desired, network, pods
from dgl_operator.render.settings import Rendering
from dgl_operator.runtime.is_applied import is_met
from dglrun.contract import names
from dglrun.contract.names import Mode, Role
from tests.support.jobs import IMAGES, a_child, a_job

Json = dict[str, Any]

SCRAPE = {"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}], "ports": [{"port": 9100}]}


@pytest.mark.parametrize("mode", list(Mode))
def test_the_policy_selects_and_admits_the_jobs_own_pods(mode: Mode) -> None:
    """By a label that each of its pods has, on all ports, and nobody else."""
    job = a_job(mode=mode)
    roles = [Role.LAUNCHER, *([Role.WORKER] if mode.has_workers else [])]

    spec = network.policy(job)["spec"]

    own = spec["podSelector"]
    assert spec == {
        "podSelector": own,
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": own}]}],
    }
    for role in roles:
        labels = pods.pod(job, role, 0, IMAGES)["metadata"]["labels"]
        assert own["matchLabels"].items() <= labels.items()


def test_the_users_rules_come_first_and_stay_as_they_are() -> None:
    """What the API server says of rule i is about the user's rule i."""
    job = a_job(networkPolicy={"ingress": [SCRAPE]})

    first, last = network.policy(job)["spec"]["ingress"]

    assert first == SCRAPE
    assert last == {"from": [{"podSelector": {"matchLabels": {names.LABEL_JOB: "sage"}}}]}


@pytest.mark.parametrize(
    ("given", "by_default", "has_one"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"networkPolicy": {}}, True, True),
        ({"networkPolicy": {"ingress": [SCRAPE]}}, False, False),
        ({"networkPolicy": {"enabled": True}}, False, True),
        ({"networkPolicy": {"enabled": False, "ingress": [SCRAPE]}}, True, False),
    ],
)
def test_the_job_decides_and_else_the_administrator(given: Json, by_default: bool, has_one: bool) -> None:
    """`enabled` overrides the flag; rules alone do not."""
    made = desired.policies(a_job(**given), Rendering(IMAGES, by_default))

    assert [(body["kind"], body["metadata"]["name"]) for body in made] == (
        list(desired.policies_names(a_job())) if has_one else []
    )


STORED = [
    ({"from": [], "ports": []}, {}),
    ({"from": None}, {}),
    ({"from": [{"podSelector": {"matchLabels": {}}}]}, {"from": [{"podSelector": {}}]}),
    (SCRAPE, {**SCRAPE, "ports": [{"port": 9100, "protocol": "TCP"}]}),
    (
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": []}}]},
        {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]},
    ),
]


@pytest.mark.parametrize(("written", "stored"), STORED)
def test_a_rule_as_the_api_server_stores_it_is_not_written_again(written: Json, stored: Json) -> None:
    """It leaves empty lists out and adds defaults: taken for changes, they would be undone for ever."""
    body = network.policy(a_job(networkPolicy={"ingress": [written]}))
    spec = {**body["spec"], "ingress": [stored, body["spec"]["ingress"][1]]}

    assert is_met(body, reduced.other(a_child({**body, "spec": spec}, "uid-1")))


@pytest.mark.parametrize("wrong", [{"form": []}, {"form": None}, {"from": [{"podselector": None}]}])
def test_a_misspelt_key_is_left_for_the_api_server_to_refuse(wrong: Json) -> None:
    """Without it the rule would admit everybody."""
    first, _ = network.policy(a_job(networkPolicy={"ingress": [wrong]}))["spec"]["ingress"]

    assert first == wrong


def test_a_policy_that_somebody_opened_is_not_what_is_wanted() -> None:
    """A rule more or another selector is put right."""
    body = network.policy(a_job())
    opened = {**body["spec"], "ingress": [{}, *body["spec"]["ingress"]]}

    assert not is_met(body, reduced.other(a_child({**body, "spec": opened}, "uid-1")))
    assert not is_met(body, reduced.other(a_child({**body, "spec": {"podSelector": {}}}, "uid-1")))


def test_of_a_policy_beyond_its_bound_no_rule_is_kept() -> None:
    """Whoever writes policies with our owner does not fill the operator's memory."""
    body = network.policy(a_job())
    large = {**body["spec"], "ingress": [{}] * reduced.MAX_POLICY}

    kept = reduced.other(a_child({**body, "spec": large}, "uid-1"))

    assert kept["spec"] == {}
    assert reduced.other(kept) == kept
