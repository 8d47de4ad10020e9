"""The training on all workers: prepare, begin together, follow, and end with the truth."""

import contextlib
import queue
import time
from collections.abc import Callable, Sequence

from dglrun.agent.exit_status import End, Failure
from dglrun.agent.spec import Role
from dglrun.contract import exitcodes, report
from dglrun.errors import RunError
from dglrun.transfer.kubectl import is_trouble
from dglrun.transfer.streams import Streams
from dglrun.workflow.progress import Reporter
from dglrun.workflow.root_cause import Blamed, error_of
from dglrun.workflow.steps import Supervise
from dglrun.workflow.worker_connection import Link, Record

BEAT_SECONDS = 3.0
"""Between signs of life to the workers, at most; four within a lease at least."""
SETTLE_SECONDS = 0.5
"""After the first failure others get so long to be told, so that the one that began it is found."""
SERVERS_SECONDS = 30.0
"""Servers that have not ended so long after all trainers ended well are stopped."""
STOP_SECONDS = 20.0
"""Until all workers have told that they are clean; their supervisors end them without us, too."""
BYE_SECONDS = 3.0
ATTEMPTS = 2
"""How often a supervisor is started again that could not be, if the world is not to blame."""
INBOX = 10_000
"""Records that wait to be printed; what comes faster waits on the worker, in the supervisor's journal."""
_TICK = 0.2
_TURN = 0.5

Gone = Callable[[str], str | None]
"""Says of a pod why it no longer runs, None if it does."""


class Training:
    """One training as its launcher follows it.

    Args:
        steps: The workers by index.
        streams: Opens streams.
        reporter: Takes the progress.
        gone: Asks the API server whether a pod is gone.
    """

    def __init__(self, steps: Sequence[Supervise], streams: Streams, reporter: Reporter, gone: Gone) -> None:
        self._inbox: queue.Queue[tuple[Link, Record]] = queue.Queue(INBOX)
        self._links = [Link(step, streams, self._inbox) for step in steps]
        self._reporter, self._gone = reporter, gone
        self._failures: list[Blamed] = []
        self._running = {
            (step.host.name, process.name)
            for step in steps
            for process in step.spec.processes
            if process.role is Role.TRAINER
        }
        self._port: int | None = None
        self._stopping: str | None = None
        self._beaten = 0.0
        self._on = self._handlers()
        self._again: dict[str, float] = {}
        self._patience = max((step.spec.lease for step in steps), default=0.0)

    def prepare(self, seconds: float) -> None:
        """Start a supervisor on each worker; each writes ip_config and waits.

        Raises:
            RunError: a worker refuses or cannot be reached within the deadline.
        """
        deadline = time.monotonic() + seconds
        for link in self._links:
            link.start()
        while not all(link.greeting for link in self._links):
            self._turn()
            self._raise_failure()
            if time.monotonic() > deadline:
                missing = [link.pod for link in self._links if not link.greeting]
                raise RunError(f"no supervisor within {seconds:.0f} s on {missing}", exitcodes.UNAVAILABLE)

    def run(self) -> dict[str, int]:
        """Let all begin, and follow them to the end.

        Returns:
            Number of files in the output folder of each worker.

        Raises:
            RunError: a trainer, server, sampler or worker failed; with its exit code and last words.
        """
        self._port = (self._links[0].greeting or {})["port"]
        for link in self._links:
            link.tell({"do": "start", "port": self._port})
        self._follow(lambda: not self._running or bool(self._failures))
        self._raise_failure()
        print(f"dglrun: all {self._world()} trainers have ended well", flush=True)
        if not self._follow(self._all_over, SERVERS_SECONDS):
            print("dglrun: note: servers outlived the trainers and are stopped", flush=True)
            self.stop("the trainers have ended")
        self._raise_failure()
        return {link.pod: link.files for link in self._links}

    def stop(self, why: str) -> None:
        """End everything on every worker, and wait until that is so."""
        self._stopping = why
        for link in self._links:
            link.tell({"do": "stop", "why": why})
        self._follow(self._all_over, STOP_SECONDS)

    def close(self) -> None:
        """Dismiss the supervisors, and wait a moment until they have left."""
        for link in self._links:
            link.tell({"do": "bye"})
        deadline = time.monotonic() + BYE_SECONDS
        for link in self._links:
            link.wait(deadline - time.monotonic())
            link.close()

    def _follow(self, until: Callable[[], bool], seconds: float | None = None) -> bool:
        deadline = None if seconds is None else time.monotonic() + seconds
        while not until():
            if deadline is not None and time.monotonic() > deadline:
                return False
            self._turn()
        return True

    def _raise_failure(self) -> None:
        """Raise what has failed, once its companions had the time to be told and all is stopped.

        Raises:
            RunError: if anything failed.
        """
        if not self._failures:
            return
        self._follow(lambda: False, SETTLE_SECONDS)
        error = error_of(self._failures)
        print(f"dglrun: {error}: everything is stopped", flush=True)
        self.stop(str(error)[:500])
        raise error

    def _world(self) -> int:
        return sum(link.step.spec.trainers for link in self._links)

    def _all_over(self) -> bool:
        return all(link.is_over for link in self._links)

    # --- one turn of the loop

    def _turn(self) -> None:
        until = time.monotonic() + _TURN  # a flood of output must not keep the signs of life waiting
        with contextlib.suppress(queue.Empty):
            link, record = self._inbox.get(timeout=_TICK)
            self._take(link, record)
            while time.monotonic() < until:
                link, record = self._inbox.get_nowait()
                self._take(link, record)
        self._beat()
        for link in self._links:
            self._mend(link)

    def _beat(self) -> None:
        if time.monotonic() - self._beaten >= min(BEAT_SECONDS, self._patience / 4):
            self._beaten = time.monotonic()
            for link in self._links:
                link.tell({"do": "beat"})

    def _take(self, link: Link, record: Record) -> None:
        link.note(record)
        kind = record["kind"]
        if kind in self._on:
            self._on[kind](link, record)

    def _handlers(self) -> dict[str, Callable[[Link, Record], None]]:
        return {
            "line": lambda link, record: self._print(link, record["who"], record["text"]),
            "note": lambda link, record: self._print(link, "supervisor", record["text"]),
            "gap": lambda link, record: self._print(link, "supervisor", f"{record['lost']} bytes were lost"),
            "hello": self._greeted,
            "started": self._started,
            "ended": self._ended,
            "failed": lambda link, record: self._failed(link, Failure.of(record)),
            "finished": self._finished,
            "broken": self._broken,
            "checked": lambda link, record: self._checked(link, record["why"]),
            "refused": lambda link, record: self._lose(link, record["what"], exitcodes.UNAVAILABLE),
            "gone": lambda link, record: self._lose(link, record["what"], exitcodes.LOST),
        }

    def _greeted(self, link: Link, record: Record) -> None:
        if self._stopping:
            link.tell({"do": "stop", "why": self._stopping})
        elif self._port and record["state"] == "waiting":  # the stream had broken under the first `start`
            link.tell({"do": "start", "port": self._port})

    def _started(self, link: Link, record: Record) -> None:
        rank = "" if record["rank"] is None else f", rank {record['rank']}"
        self._print(link, record["who"], f"started (process {record['pid']}{rank})")

    def _ended(self, link: Link, record: Record) -> None:
        self._print(link, record["who"], f"ended with {End(record['code'])}")
        if record["code"] == 0:
            self._running.discard((link.pod, record["who"]))

    def _failed(self, link: Link, failure: Failure) -> None:
        blamed = Blamed(link.pod, failure, failure.time + link.skew)
        if not self._running and failure.rank is None and failure.who != "supervisor":
            print(f"dglrun: note: {blamed}, but all trainers had ended well", flush=True)
        else:
            self._failures.append(blamed)

    def _finished(self, link: Link, record: Record) -> None:
        link.files = record["files"]
        link.tell({"do": "beat"})
        if record["left"]:
            self._print(link, "supervisor", f"{record['left']} processes could not be ended")
        if not record["failed"] and not self._failures and any(pod == link.pod for pod, _ in self._running):
            self._lose(link, "was stopped before its trainers had ended", exitcodes.LOST)

    def _print(self, link: Link, who: str, text: str) -> None:
        index = self._links.index(link)
        print(f"[worker-{index} {who}] {text}", flush=True)
        if index == 0 and who == "trainer 0" and text:
            self._reporter.stage(report.STAGE_TRAINING, text)

    # --- streams that break

    def _broken(self, link: Link, record: Record) -> None:
        if link.is_over:
            return
        what = (record["what"].splitlines() or [f"kubectl ended with {record['code']}"])[-1]
        self._print(link, "supervisor", f"the stream broke: {what}")
        if not link.greeting and link.attempts >= ATTEMPTS and not is_trouble(record["what"]):
            self._lose(link, f"could not be started: {what}", exitcodes.UNAVAILABLE)
        self._again[link.pod] = time.monotonic() + link.pause()

    def _mend(self, link: Link) -> None:
        """Take a broken stream up again, unless the pod is gone."""
        link.break_if_silent()
        if link.broken_since and not link.is_over and time.monotonic() >= self._again.get(link.pod, 0.0):
            self._again[link.pod] = float("inf")  # until this attempt breaks, too
            link.check(self._gone)

    def _checked(self, link: Link, why: str | None) -> None:
        if link.broken_since is None or link.is_over:
            return
        if why:
            self._lose(link, f"the pod is gone: {why}", exitcodes.LOST)
        elif not link.greeting and self._stopping:
            self._lose(link, "never began", exitcodes.UNAVAILABLE)
        elif not link.greeting:
            link.start()
        elif time.monotonic() - link.broken_since > self._patience:
            self._lose(link, f"could not be reached for {self._patience:.0f} s", exitcodes.LOST)
        else:
            link.attach()

    def _lose(self, link: Link, why: str, code: int) -> None:
        if link.is_over and link.lost:
            return
        link.lost = why
        self._failures.append(Blamed(link.pod, Failure("supervisor", code, why), time.time()))
