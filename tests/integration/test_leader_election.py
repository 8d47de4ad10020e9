"""Several operators on a real API server: one acts, another takes over, nothing is doubled or left."""

import os
import signal
from collections import Counter

import pytest

from dgl_operator.runtime.kinds import Kind
from tests.integration.conftest import HOME, Start, Submit
from tests.support.api_client import ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

TAKE_OVER_SECONDS = 15.0


@pytest.fixture
def candidate(start: Start, api: ApiServer, namespace: str) -> Start:
    """Starts operators that elect their leader by a Lease of this test."""
    lease = ("--leader-elect-resource-namespace", HOME, "--leader-elect-resource-name", namespace)
    return lambda: start("--leader-elect=true", *lease)


def holder(api: ApiServer, namespace: str) -> str:
    """Who holds the test's Lease."""
    lease = api.get(Kind.LEASE, HOME, namespace)
    return str(lease["spec"]["holderIdentity"]) if lease else ""


def leads(operator: OperatorProcess) -> bool:
    return 'leader_election_master_status{name="' in operator.metrics() and "} 1.0" in next(
        line for line in operator.metrics().splitlines() if line.startswith("leader_election_master_status{")
    )


def events_of(api: ApiServer, namespace: str) -> Counter[str]:
    return Counter(event["reason"] for event in api.events(namespace, "sage"))


@pytest.mark.parametrize("how", ["killed", "told to end", "frozen"])
def test_another_operator_takes_over_and_nothing_is_doubled(
    candidate: Start, submit: Submit, api: ApiServer, namespace: str, how: str
) -> None:
    """In the midst of a job, which the second operator brings to its end."""
    first = candidate()
    wait_for("a leader", lambda: leads(first) or None)
    second = candidate()
    before = holder(api, namespace)
    job = submit()
    job.await_phase("Pending")
    assert not leads(second)

    if how == "killed":
        first.kill()
    elif how == "told to end":
        assert first.stop() == 0
    else:
        os.kill(first.pid, signal.SIGSTOP)
    wait_for("the other leads", lambda: leads(second) or None, TAKE_OVER_SECONDS)
    if how == "frozen":
        os.kill(first.pid, signal.SIGCONT)
        assert wait_for("the first has ended", first.poll) == 1
    job.reach("Completed")

    assert holder(api, namespace) != before
    second.wait_idle()
    assert set(events_of(api, namespace).values()) == {1}
    assert second.errors() == 0
