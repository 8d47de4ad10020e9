"""Which of several operators acts: never two by their own clocks, and one soon when another is gone."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.leader_election import Election, LeaderElection, Sighting, Step, next_step
from tests.support.memory_cluster import MemoryCluster

ELECTION = Election("ops", "dgl-operator")


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Candidate(LeaderElection):
    """A candidate whose looks a test takes.

    Attributes:
        losses: How often it has lost leadership.
    """

    def __init__(self, cluster: MemoryCluster, me: str, clock: Clock) -> None:
        self.losses = 0
        super().__init__(cluster, ELECTION, me, self._count, clock)

    def _count(self) -> None:
        self.losses += 1

    @property
    def acts(self) -> bool:
        """Whether it would act now: a frozen one notices the end of its deadline when it wakes."""
        return self.is_leader and self._clock() - self._renewed <= ELECTION.renew_deadline


def the_lease(cluster: MemoryCluster) -> Json:
    spec: Json = cluster.objects[Kind.LEASE, "ops", "dgl-operator"]["spec"]
    return spec


@pytest.mark.parametrize(
    ("spec", "age", "step"),
    [
        (None, 0.0, Step.TAKE),
        ({}, 0.0, Step.TAKE),
        ({"holderIdentity": "", "leaseDurationSeconds": 1}, 0.0, Step.TAKE),
        ({"holderIdentity": "me", "leaseDurationSeconds": 10}, 99.0, Step.RENEW),
        ({"holderIdentity": "other", "leaseDurationSeconds": 10}, 10.0, Step.WAIT),
        ({"holderIdentity": "other", "leaseDurationSeconds": 10}, 10.1, Step.TAKE),
        ({"holderIdentity": "other", "leaseDurationSeconds": 60}, 10.1, Step.WAIT),
        ({"holderIdentity": "other"}, 10.1, Step.TAKE),
    ],
)
def test_a_lease_is_taken_when_nobody_holds_it_or_its_record_is_old(
    spec: dict[str, Any] | None, age: float, step: Step
) -> None:
    """By the time for which the record has not changed, never by the times that it names."""
    seen = None if spec is None else Sighting(spec, 100.0)

    assert next_step(seen, "me", 100.0 + age, 10.0) is step


def test_the_first_one_leads_and_the_other_takes_over_within_the_lease() -> None:
    """And the one that comes back stands by."""
    cluster, clock = MemoryCluster(), Clock()
    one, two = (Candidate(cluster, name, clock) for name in ("one", "two"))
    for _ in range(5):
        one.look()
        two.look()
        clock.now += 2
    assert (one.is_leader, two.is_leader) == (True, False)
    assert the_lease(cluster)["leaseTransitions"] == 0

    waited = 0
    while not two.is_leader:
        clock.now += 2
        waited += 2
        two.look()

    assert waited <= 12
    one.look()
    assert (one.losses, one.is_leader, two.is_leader) == (1, False, True)
    assert (the_lease(cluster)["holderIdentity"], the_lease(cluster)["leaseTransitions"]) == ("two", 1)


def test_a_leader_that_ends_gives_the_lease_up() -> None:
    """The other one takes it at its next look."""
    cluster, clock = MemoryCluster(), Clock()
    one, two = (Candidate(cluster, name, clock) for name in ("one", "two"))
    one.look()
    two.look()

    one.stop()
    clock.now += 2
    two.look()

    assert (one.is_leader, one.losses, two.is_leader) == (False, 0, True)


def test_a_leader_without_an_api_server_stops_before_others_may_begin() -> None:
    """It keeps leading through a short outage."""
    cluster, clock = MemoryCluster(), Clock()
    one = Candidate(cluster, "one", clock)
    one.look()
    cluster.is_down = True

    clock.now += 6
    one.look()
    assert one.is_leader
    clock.now += 2
    one.look()

    assert (one.is_leader, one.losses) == (False, 1)


def test_a_bug_in_the_election_is_loud_and_ends_leadership_only_at_the_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An answer that makes no sense must not end the thread that watches the deadline."""
    cluster, clock = MemoryCluster(), Clock()
    one = Candidate(cluster, "one", clock)
    one.look()
    cluster.objects[Kind.LEASE, "ops", "dgl-operator"]["spec"] = {
        "holderIdentity": "one",
        "leaseTransitions": "x",
    }

    clock.now += 2
    one.look()
    assert one.is_leader
    assert "the election failed" in caplog.text
    clock.now += 6
    one.look()

    assert not one.is_leader


class Hanging(MemoryCluster):
    """An API server whose answers never come, once told so."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.released = False, threading.Event()

    def replace(self, body: Json) -> Json:
        """See `Cluster`."""
        if self.hangs:
            self.released.wait(60)
        return super().replace(body)


def test_a_leader_whose_request_hangs_stops_at_its_deadline() -> None:
    """The look itself cannot notice it."""
    cluster, lost = Hanging(), threading.Event()
    election = Election("ops", "dgl-operator", lease=3.0, renew_deadline=0.3, retry=0.01)
    one = LeaderElection(cluster, election, "one", lost.set)
    one.start()
    assert one.wait_to_lead(60)

    cluster.hangs = True

    assert lost.wait(60)
    assert not one.is_leader
    cluster.released.set()
    one.stop()


def test_a_leader_with_work_under_way_keeps_the_lease_to_its_end() -> None:
    """Another one would act beside it."""
    cluster, clock = MemoryCluster(), Clock()
    one = Candidate(cluster, "one", clock)
    one.look()

    one.stop(releases=False)

    assert the_lease(cluster)["holderIdentity"] == "one"


class Flaky(MemoryCluster):
    """An API server that fails as told, before or after it has done what it was asked.

    Attributes:
        fails: `before` or `after` for the next write.
    """

    fails = ""

    def replace(self, body: Json) -> Json:
        """See `Cluster`."""
        return self._maybe(super().replace, body)

    def create(self, body: Json, *, rehearse: bool = False, strict: bool = True) -> Json:
        """See `Cluster`."""
        return self._maybe(super().create, body)

    def _maybe(self, write: Any, body: Json) -> Json:
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise ClusterBusy("reset")
        done: Json = write(body)
        if fails == "after":
            raise ClusterBusy("reset")
        return done


LOOKS = st.lists(
    st.tuples(
        st.integers(0, 2), st.floats(0.0, 15.0), st.sampled_from(["", "", "", "before", "after", "down"])
    ),
    max_size=60,
)


@given(looks=LOOKS)
def test_never_do_two_act(looks: list[tuple[int, float, str]]) -> None:
    """Whoever looks when, whatever fails, frozen for how long."""
    cluster, clock = Flaky(), Clock()
    candidates = [Candidate(cluster, f"c{number}", clock) for number in range(3)]
    for number, pause, trouble in looks:
        clock.now += pause
        cluster.is_down, cluster.fails = trouble == "down", trouble
        if not candidates[number].losses:  # its process has ended then
            candidates[number].look()
        assert sum(each.acts for each in candidates) <= 1
