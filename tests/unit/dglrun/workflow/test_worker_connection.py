"""When a worker counts as lost."""

import pytest

from dglrun.contract.hostfile import Host
from dglrun.workflow import worker_connection
from dglrun.workflow.steps import WorkerAgent
from dglrun.workflow.worker_connection import Record, WorkerConnection
from tests.unit.dglrun.workflow.builders import a_spec

HELLO: Record = {"kind": "hello", "received": 1.0, "time": 1.0}
REFUSED: Record = {"kind": "broken", "what": "Connection refused", "is_refused": True}
SILENT: Record = {"kind": "broken", "what": "silent", "is_refused": False}


def worker(*records: Record) -> WorkerConnection:
    """A worker from which these records have come."""
    found = WorkerConnection(0, WorkerAgent(Host("127.0.0.1", 30050, "job-worker-0"), (), a_spec()))
    for record in records:
        found.note(record)
    return found


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No port may refuse for any time."""
    monkeypatch.setattr(worker_connection, "REFUSED_SECONDS", 0.0)


def test_a_port_that_refuses_belongs_to_no_agent(at_once: None) -> None:
    """It is noticed long before the lease is over."""
    assert worker(HELLO, REFUSED).why_lost(60.0) == "no agent runs on this worker"


def test_a_connection_that_is_back_counts_no_more(at_once: None) -> None:
    """Whatever broke it."""
    assert worker(HELLO, REFUSED, HELLO).why_lost(0.0) is None


def test_a_refusal_between_other_failures_is_none(at_once: None) -> None:
    """As while a node's network is set up anew."""
    assert worker(HELLO, REFUSED, SILENT).why_lost(60.0) is None


def test_a_worker_that_cannot_be_reached_is_lost_after_its_lease() -> None:
    """Its agent has ended everything by then."""
    assert worker(HELLO, SILENT).why_lost(60.0) is None
    assert worker(HELLO, SILENT).why_lost(-1.0) == "could not be reached for -1 s"


def test_a_worker_that_has_told_all_is_not_lost() -> None:
    """It closes its connection then."""
    finished: Record = {"kind": "finished", "has_files": False}

    assert worker(HELLO, finished, {"kind": "drained"}, SILENT).why_lost(-1.0) is None
    assert worker(HELLO, finished, SILENT).why_lost(-1.0) is not None
