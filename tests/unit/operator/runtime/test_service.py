"""The running operator's informers: one namespace's failure is its own, and blindness shows in the health."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from dgl_operator.runtime import informer, memory, service, settings
from dgl_operator.runtime.cluster import Change, ClusterBusy, Page, Refused, WatchExpired
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.http_server import Answer
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.leader_election import Election, LeaderElection
from dgl_operator.runtime.service import Service
from tests.support.jobs import a_raw_job
from tests.support.memory_cluster import MemoryCluster
from tests.support.wait import wait_for

FLAGS = ("--watcher-loop-image=w:v1", "--kubectl-download-image=k:v1")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of milliseconds."""
    monkeypatch.setattr(informer, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(informer, "LONGEST_WAIT", 0.02)
    monkeypatch.setattr(service, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(service, "QUIET_SECONDS", 0.0)


class WatchedCluster(MemoryCluster):
    """An API server whose watches a test plays.

    Attributes:
        trouble: Called before each list and watch; raises what it is to fail with.
    """

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Callable[[str, Kind, str | None], None] = lambda _verb, _kind, _namespace: None
        self.changes: dict[Kind, list[Change]] = {}
        self.calls: list[tuple[str, Kind, str | None]] = []

    def pages(self, kind: Kind, namespace: str | None, job: str | None = None) -> Iterator[Page]:
        """See `Cluster`."""
        self.calls.append(("list", kind, namespace))
        self.trouble("list", kind, namespace)
        yield from super().pages(kind, namespace, job)

    def watch(self, kind: Kind, namespace: str | None, version: int) -> Iterator[Change]:
        """See `Cluster`; what the test has put there, then a moment of quiet."""
        self.calls.append(("watch", kind, namespace))
        self.trouble("watch", kind, namespace)
        while queue := self.changes.get(kind):
            yield queue.pop(0)
        threading.Event().wait(0.01)


@contextmanager
def running(
    cluster: MemoryCluster,
    *namespaces: str,
    relist: float = 300.0,
    election: LeaderElection | None = None,
    flags: tuple[str, ...] = (),
) -> Iterator[Service]:
    """A service without HTTP servers."""
    chosen = replace(
        settings.parse([*FLAGS, *flags, *(f"--namespace={name}" for name in namespaces)]),
        resync_seconds=relist,
    )
    operator = Service(cluster, chosen, election)
    operator._serve = lambda: None  # type: ignore[method-assign]
    operator.start()
    try:
        yield operator
    finally:
        operator.stop()


def a_candidate(cluster: MemoryCluster, holder: str) -> LeaderElection:
    """One for a Lease that this holder has; nobody has it when that is empty."""
    place = ("ops", "dgl-operator")
    held = {"holderIdentity": holder, "leaseDurationSeconds": 60}
    metadata = {"namespace": place[0], "name": place[1]}
    cluster.add({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": held})
    quick_election = Election(*place, lease=10.0, renew_deadline=7.0, retry=0.01)
    return LeaderElection(cluster, quick_election, "me", lambda: None)


def status_of(cluster: MemoryCluster, key: Key) -> Json:
    found: Json = cluster.objects[Kind.JOB, key.namespace, key.name].get("status") or {}
    return found


def test_withdrawn_permissions_in_one_namespace_leave_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """The resync and the start were for all or for none."""
    cluster = WatchedCluster()
    cluster.add(a_raw_job(namespace="good"))

    def forbid(_verb: str, kind: Kind, namespace: str | None) -> None:
        if namespace == "bad":
            raise Refused(403, "Forbidden", f"{kind.plural} is forbidden in bad")

    cluster.trouble = forbid
    with running(cluster, "bad", "good") as operator:
        wait_for("ready", lambda: operator._readiness().status == 200)
        wait_for("the job's status", lambda: bool(status_of(cluster, Key("good", "sage"))))
        health = operator._health()
        cluster.trouble = lambda *_call: None
        cluster.add(a_raw_job("late", namespace="bad", uid="late-uid"))
        wait_for("the other's status", lambda: bool(status_of(cluster, Key("bad", "late"))))

    assert health == Answer(200, b"ok\n")
    assert caplog.text.count("watch of dgljobs of bad: dgljobs is forbidden in bad") == 1


def test_a_kueue_that_does_not_answer_holds_up_no_other_job() -> None:
    """Its list fails at the start; jobs of no queue begin, and no restart is asked for."""
    cluster = WatchedCluster()
    cluster.add(a_raw_job())

    def fail(_verb: str, kind: Kind, _namespace: str | None) -> None:
        if kind is Kind.WORKLOAD:
            raise ClusterBusy("conversion webhook failed", status=500)

    cluster.trouble = fail
    with running(cluster, flags=("--kueue=true",)) as operator:
        wait_for("the job's status", lambda: bool(status_of(cluster, Key("default", "sage"))))
        silences = [each.silence for each in operator._children if each.kind is Kind.WORKLOAD]

    assert silences == [0.0]
    assert ("list", Kind.WORKLOAD, None) in cluster.calls


def test_an_object_that_cannot_be_read_is_named_rejected_and_hurts_no_other() -> None:
    """One job of 7 kB stopped the operator for every tenant."""
    cluster = WatchedCluster()
    deep = {key: value for key, value in a_raw_job("deep", uid="deep-uid").items() if key != "spec"}
    cluster.add({**deep, UNREADABLE: "expected at most 200 levels of nesting, got more"})
    cluster.add(a_raw_job())
    with running(cluster) as operator:
        wait_for(
            "a status each",
            lambda: all(status_of(cluster, Key("default", name)) for name in ("deep", "sage")),
        )
        text = operator._metrics.text().decode()

    assert status_of(cluster, Key("default", "deep"))["message"] == (
        "InvalidSpec: expected at most 200 levels of nesting, got more"
    )
    assert status_of(cluster, Key("default", "sage"))["phase"] == "Pending"
    assert 'dgl_operator_quarantined_objects_total{resource="dgljobs"} 1.0' in text
    assert "InvalidSpec" in [event["reason"] for event in cluster.events]


def test_an_object_that_cannot_be_kept_is_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever it is; the watch goes on with the next."""
    cluster = WatchedCluster()
    with running(cluster) as operator:
        wait_for("ready", lambda: operator._readiness().status == 200)
        odd = {"metadata": {"name": "odd", "namespace": "default", "resourceVersion": "5"}}
        job = cluster.add(a_raw_job())
        cluster.changes[Kind.JOB] = [Change("ADDED", odd), Change("ADDED", job)]
        wait_for("the job's status", lambda: bool(status_of(cluster, Key("default", "sage"))))

    assert "DGLJob default/odd cannot be kept and is ignored" in caplog.text


def test_an_expired_watch_lists_again_and_finds_what_is_gone() -> None:
    """No deletion is reported for what vanished in between."""
    cluster = WatchedCluster()
    cluster.add(a_raw_job())
    with running(cluster) as operator:
        wait_for("the job's pods", lambda: (Kind.POD, "default", "sage-launcher") in cluster.objects)
        for place in [place for place in list(cluster.objects) if place[0] is Kind.JOB]:
            del cluster.objects[place]
        expired = threading.Event()

        def expire(verb: str, kind: Kind, _namespace: str | None) -> None:
            if verb == "watch" and kind is Kind.JOB and not expired.is_set():
                expired.set()
                raise WatchExpired("too old resource version")

        cluster.trouble = expire
        wait_for("the job is forgotten", lambda: operator._store.keys() == frozenset())


@pytest.mark.parametrize("trouble", [RuntimeError("a bug"), ClusterBusy("connection refused")], ids=str)
def test_watching_that_fails_is_begun_again_and_ends_the_health_after_three_periods(
    trouble: Exception,
) -> None:
    """And never the process; one that goes well makes the operator healthy again."""
    cluster = WatchedCluster()
    with running(cluster, relist=0.05) as operator:
        wait_for("ready", lambda: operator._readiness().status == 200)
        wait_for("healthy", lambda: operator._health().status == 200)

        def fail(*_call: object) -> None:
            raise trouble

        cluster.trouble = fail
        wait_for("unhealthy", lambda: operator._health().status == 500)
        cluster.trouble = lambda *_call: None
        wait_for("healthy again", lambda: operator._health().status == 200)


def test_each_job_is_looked_at_now_and_then_whatever_the_watches_bring() -> None:
    """A full list calls for all of them."""
    cluster = WatchedCluster()
    cluster.add(a_raw_job())
    with running(cluster, relist=0.05) as operator:
        wait_for("pods", lambda: (Kind.POD, "default", "sage-launcher") in cluster.objects)
        looks = operator._reconciler._metrics.seconds._sum
        seen = looks.get()
        wait_for("another look", lambda: looks.get() > seen)


def test_a_standby_acts_on_all_jobs_when_it_leads_and_not_before() -> None:
    """It is ready, its lists are up to date, and the Lease decides."""
    cluster = WatchedCluster()
    cluster.add(a_raw_job())
    election = a_candidate(cluster, "other")
    with running(cluster, election=election) as operator:
        wait_for("ready", lambda: operator._readiness().status == 200)
        wait_for("a candidate", lambda: election.is_alive)
        status_before = status_of(cluster, Key("default", "sage"))
        shown_before = operator._metrics.text().decode()
        health_before = operator._health()

        lease = cluster.get(Kind.LEASE, "ops", "dgl-operator")
        assert lease
        cluster.replace({**lease, "spec": {**lease["spec"], "holderIdentity": ""}})
        wait_for("the job's status", lambda: bool(status_of(cluster, Key("default", "sage"))))
        shown = operator._metrics.text().decode()

    assert (status_before, health_before) == ({}, Answer(200, b"ok\n"))
    assert 'leader_election_master_status{name="dgl-operator"} 0.0' in shown_before
    assert 'leader_election_master_status{name="dgl-operator"} 1.0' in shown
    assert cluster.objects[Kind.LEASE, "ops", "dgl-operator"]["spec"]["holderIdentity"] == ""


@pytest.mark.parametrize("leads", [True, False], ids=["leader", "standby"])
def test_leader_and_standby_give_memory_back(leads: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watches bring all objects to a standby, too, which may stand by for weeks."""
    now, given = 0.0, threading.Event()
    monkeypatch.setattr(service, "MEMORY_SECONDS", 0.01)
    monkeypatch.setattr(service, "_STANDBY_SECONDS", 0.01)
    monkeypatch.setattr(memory, "give_back", given.set)
    cluster, job = WatchedCluster(), a_raw_job()
    election = a_candidate(cluster, "" if leads else "other")
    with running(cluster, election=election) as operator:
        wait_for("ready", lambda: operator._readiness().status == 200)
        wait_for("a candidate", lambda: operator._runs if leads else election.is_alive)
        given.clear()  # a leader has been a standby before
        store = operator._store
        store._seconds = lambda: now
        store.put(Kind.JOB, job)  # no watch brings it: nothing is done for it
        store.drop(Kind.JOB, job)
        remembered = job["metadata"]["uid"] in store._deletions
        now = 1e6
        wait_for("deletions forgotten", lambda: job["metadata"]["uid"] not in store._deletions)
        wait_for("memory given back", given.is_set)
        is_leader = election.is_leader

    assert (remembered, is_leader) == (True, leads)
