"""The launcher's end of a supervisor's stream."""

import queue
import sys

import pytest

from dglrun.contract.hostfile import Host
from dglrun.transfer.streams import Streams
from dglrun.workflow import worker_connection
from dglrun.workflow.steps import WorkerAgent
from dglrun.workflow.worker_connection import Inbox, WorkerConnection
from tests.unit.dglrun.workflow.builders import a_spec

SILENT = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.mark.parametrize(("greeting", "is_given_up"), [(None, False), ({"port": None}, True)])
def test_only_a_supervisor_that_has_greeted_must_be_heard_of(
    monkeypatch: pytest.MonkeyPatch, greeting: dict[str, object] | None, is_given_up: bool
) -> None:
    """One that starts slowly, on a busy node, was killed twice after 12 s, and the run failed."""
    monkeypatch.setattr(worker_connection, "SILENCE_SECONDS", -1.0)
    inbox: Inbox = queue.Queue()
    worker = WorkerConnection(
        WorkerAgent(Host("127.0.0.1", 30050, "job-worker-0"), SILENT, SILENT, a_spec()), Streams(), inbox
    )
    worker.start()
    worker.greeting = greeting

    worker.break_if_silent()

    worker.wait(60.0 if is_given_up else 0.0)
    assert worker._stream is not None
    assert (worker._stream.poll() is not None) == is_given_up
    worker.close()
