"""The start of the agents: the one thing in a training that takes a stream through the API server."""

import contextlib
import json
import re
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from dglrun.agent import spec, tls
from dglrun.contract import exitcodes
from dglrun.transfer.kubectl import has_reached
from dglrun.transfer.streams import Stream, Streams
from dglrun.workflow.steps import WorkerAgent

Record = dict[str, Any]

ATTEMPT_SECONDS = 60.0
"""Then a stream that says nothing is killed, and the start is tried again."""
_NO_AGENT = re.compile(r"No module named '?dglrun\.agent\b")
"""What the Python of an image says whose dglrun starts its agent by another command."""
_OTHER_RELEASE = (
    "the worker's image is of another release than the launcher's, and has no python -m dglrun.agent: "
    "build both images from the one of the operator's release"
)


class AgentStarter:
    """Starts agents, some at a time: each start is a kubectl of some 60 MB.

    Args:
        streams: Opens streams.
        keys: Those of each agent, by pod.
        limit: Starts at a time.
    """

    def __init__(self, streams: Streams, keys: dict[str, tls.Keys], limit: int) -> None:
        self._streams, self._keys = streams, keys
        self._pool = ThreadPoolExecutor(limit, thread_name_prefix="start")
        self._starts: dict[str, Future[None]] = {}

    def start(self, agent: WorkerAgent, take: Callable[[Record], None]) -> None:
        """Start an agent in the background.

        Args:
            agent: Which.
            take: Takes `note`, `refused` and `listening`, which has the port; if neither of the latter came,
                `not_started` in the end, with `what` kubectl has said and whether it `has_reached` the pod.
        """
        self._starts[agent.host.name] = self._pool.submit(self._start, agent, take)

    def cancel(self, pod: str) -> bool:
        """Whether a start has been given up that had not begun yet."""
        return pod in self._starts and self._starts[pod].cancel()

    def close(self) -> None:
        """Begin no more; what runs ends with its stream."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, agent: WorkerAgent, take: Callable[[Record], None]) -> None:
        try:
            with self._streams.open(agent.argv) as stream:
                failure = self._talk(stream, agent, take)
        except OSError as error:
            failure = {"kind": "not_started", "what": str(error), "has_reached": False}
        except Exception as error:  # nobody looks at what the pool's thread has raised
            failure = {"kind": "bug", "error": error}
        if failure is not None:
            take(failure)

    def _talk(self, stream: Stream, agent: WorkerAgent, take: Callable[[Record], None]) -> Record | None:
        """Hand over spec and keys; returns what went wrong if the agent has said nothing."""
        text = f"{spec.encode(agent.spec)}\n{tls.encode(self._keys[agent.host.name])}\n"
        with stream.killed_after(ATTEMPT_SECONDS):
            said, _ = stream.communicate(text.encode())
        records = [_record(line) for line in said.splitlines()]
        for record in records:
            take(record)
        if any(record["kind"] in ("listening", "refused") for record in records):
            return None
        words = stream.stderr_text().decode(errors="replace").strip()
        if _NO_AGENT.search(words):
            return {"kind": "refused", "what": _OTHER_RELEASE, "code": exitcodes.CONTRACT}
        what = words or f"kubectl ended with {stream.returncode}"
        return {"kind": "not_started", "what": what, "has_reached": has_reached(stream.returncode, words)}


def _record(line: bytes) -> Record:
    with contextlib.suppress(ValueError):
        record = json.loads(line)
        if isinstance(record, dict) and record.get("kind") in ("note", "refused", "listening"):
            return record
    return {"kind": "note", "text": line.decode(errors="replace").rstrip()}
