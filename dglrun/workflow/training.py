"""The training on all workers: start agents, then servers and trainers; follow; say how it really ended."""

import contextlib
import queue
import time
from collections.abc import Callable

from dglrun.agent.exit_status import ExitStatus, ProcessFailure
from dglrun.agent.spec import ProcessRole
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.kubectl import is_trouble
from dglrun.transfer.streams import Streams
from dglrun.workflow.hang_watch import HangWatch, IdleRank
from dglrun.workflow.root_cause import WorkerFailure, error_of
from dglrun.workflow.steps import StartAgents, Train
from dglrun.workflow.worker_connection import Record, WorkerConnection

BYE_SECONDS = 3.0
"""Until the agents that were told to leave have closed their streams."""
INBOX = 10_000
"""Records that wait to be printed; what comes faster waits on the worker, in the supervisor's journal."""
_TICK = 0.2
_TURN = 0.5

Gone = Callable[[str], str | None]
"""Says of a pod why it no longer runs, None if it does."""


class Training:
    """One training as its launcher follows it, from the start of the agents on.

    Args:
        step: The agents.
        streams: Opens streams.
        gone: Asks the API server whether a pod is gone.
    """

    def __init__(self, step: StartAgents, streams: Streams, gone: Gone) -> None:
        self._inbox: queue.Queue[tuple[WorkerConnection, Record]] = queue.Queue(INBOX)
        self._workers = [WorkerConnection(agent, streams, self._inbox) for agent in step.agents]
        self._agents, self._gone = step, gone
        self._progress: Callable[[str], None] | None = None
        self._failures: list[WorkerFailure] = []
        self._running = {
            (agent.host.name, process.name)
            for agent in step.agents
            for process in agent.spec.processes
            if process.role is ProcessRole.TRAINER
        }
        self._ranks = {
            (agent.host.name, process.name): process.rank
            for agent in step.agents
            for process in agent.spec.processes
            if process.rank is not None
        }
        self._hang = HangWatch(self._ranks, self.pods, None)
        self._port: int | None = None
        self._stopping: str | None = None
        self._beaten = 0.0
        self._on = self._handlers()
        self._again: dict[str, float] = {}
        self._lease = max((agent.spec.lease for agent in step.agents), default=0.0)

    @property
    def pods(self) -> tuple[str, ...]:
        """The workers whose agents this training has."""
        return tuple(worker.pod for worker in self._workers)

    def start_agents(self) -> None:
        """Start the agent of each worker; each writes ip_config and waits.

        Raises:
            RunError: a worker refuses or cannot be reached within the deadline.
        """
        seconds = self._agents.seconds
        deadline = time.monotonic() + seconds
        for worker in self._workers:
            worker.start()
        while not all(worker.greeting for worker in self._workers):
            self._turn()
            self._raise_failure()
            if time.monotonic() > deadline:
                missing = [worker.pod for worker in self._workers if not worker.greeting]
                raise RunError(f"no supervisor within {seconds:g} s on {missing}", exitcodes.UNAVAILABLE)

    @property
    def outputs(self) -> dict[str, int | None]:
        """Number of files in the output folder of each worker; None where no agent has counted them."""
        return {worker.pod: worker.files if worker.has_finished else None for worker in self._workers}

    def run(self, step: Train, progress: Callable[[str], None]) -> None:
        """Tell all agents to start the training, and follow it to its end.

        Args:
            step: When it is over.
            progress: Takes the lines of worker 0's trainer 0.

        Raises:
            RunError: a trainer, server, sampler or worker failed; with its exit code and last log lines.
        """
        self._progress = progress
        self._hang = HangWatch(self._ranks, self.pods, step.hang_seconds)
        self._port = (self._workers[0].greeting or {})["port"]
        for worker in self._workers:
            worker.tell({"do": "start", "port": self._port})
        self._follow(lambda: not self._running or bool(self._failures or self._idlest()))
        self._raise_failure()
        if self._running and (idlest := self._idlest()):
            self._raise_hang(idlest, step.stacks_seconds)
        print(f"dglrun: all {step.world_size} trainers have ended well", flush=True)
        if not self._follow(self._all_over, step.servers_seconds):
            print("dglrun: note: servers outlived the trainers and are stopped", flush=True)
            self.stop("the trainers have ended")
        self._raise_failure()

    def stop(self, why: str) -> None:
        """End everything on every worker, and wait until that is so."""
        self._stopping = why
        for worker in self._workers:
            worker.tell({"do": "stop", "why": why})
        self._follow(self._all_over, self._agents.stop_seconds)

    def close(self) -> None:
        """Dismiss the agents, and wait a moment until they have left."""
        for worker in self._workers:
            worker.tell({"do": "bye"})
        deadline = time.monotonic() + BYE_SECONDS
        for worker in self._workers:
            worker.wait(deadline - time.monotonic())
            worker.close()

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
        self._follow(lambda: False, self._agents.settle_seconds)
        error = error_of(self._failures)
        print(f"dglrun: {error}: everything is stopped", flush=True)
        self.stop(str(error)[:500])
        raise error

    def _idlest(self) -> list[IdleRank]:
        return self._hang.idlest(time.monotonic())

    def _raise_hang(self, idlest: list[IdleRank], seconds: float) -> None:
        """Show the stacks of all processes, stop everything and raise.

        Raises:
            RunError: always.
        """
        self._hang.want_stacks()
        print("dglrun: the training hangs; the stacks of its processes follow", flush=True)
        for worker in self._workers:
            worker.tell({"do": "stacks"})
        self._follow(lambda: self._hang.has_stacks, seconds)
        error = self._hang.error(idlest)
        print(f"dglrun: {error}: everything is stopped", flush=True)
        self.stop(str(error)[:500])
        raise error

    def _all_over(self) -> bool:
        return all(worker.is_over for worker in self._workers)

    # --- one turn of the loop

    def _turn(self) -> None:
        until = time.monotonic() + _TURN  # a flood of output must not delay the heartbeats
        with contextlib.suppress(queue.Empty):
            worker, record = self._inbox.get(timeout=_TICK)
            self._take(worker, record)
            while time.monotonic() < until:
                worker, record = self._inbox.get_nowait()
                self._take(worker, record)
        self._beat()
        for worker in self._workers:
            self._mend(worker)

    def _beat(self) -> None:
        if time.monotonic() - self._beaten >= self._agents.heartbeat:
            self._beaten = time.monotonic()
            for worker in self._workers:
                worker.tell({"do": "beat"})

    def _take(self, worker: WorkerConnection, record: Record) -> None:
        worker.note(record)
        kind = record["kind"]
        if kind in self._on:
            self._on[kind](worker, record)

    def _handlers(self) -> dict[str, Callable[[WorkerConnection, Record], None]]:
        return {
            "line": self._line,
            "alive": lambda worker, record: self._hang.heard(worker.pod, record["idle"], time.monotonic()),
            "stacks": lambda worker, record: self._hang.told_stacks(worker.pod),
            "note": lambda worker, record: self._print(worker, "supervisor", record["text"]),
            "gap": lambda worker, record: self._print(
                worker, "supervisor", f"{record['lost']} bytes were lost"
            ),
            "hello": self._greeted,
            "started": self._started,
            "ended": self._ended,
            "failed": lambda worker, record: self._failed(worker, ProcessFailure.of(record)),
            "finished": self._finished,
            "broken": self._broken,
            "checked": lambda worker, record: self._checked(worker, record["why"]),
            "refused": lambda worker, record: self._lose(worker, record["what"], exitcodes.UNAVAILABLE),
            "gone": lambda worker, record: self._lose(worker, record["what"], exitcodes.LOST),
        }

    def _greeted(self, worker: WorkerConnection, record: Record) -> None:
        if self._stopping:
            worker.tell({"do": "stop", "why": self._stopping})
        elif self._port and record["state"] == "waiting":  # the stream had broken under the first `start`
            worker.tell({"do": "start", "port": self._port})

    def _line(self, worker: WorkerConnection, record: Record) -> None:
        self._hang.line(worker.pod, record["who"], record["text"])
        self._print(worker, record["who"], record["text"])

    def _started(self, worker: WorkerConnection, record: Record) -> None:
        rank = "" if record["rank"] is None else f", rank {record['rank']}"
        self._print(worker, record["who"], f"started (process {record['pid']}{rank})")

    def _ended(self, worker: WorkerConnection, record: Record) -> None:
        self._print(worker, record["who"], f"ended with {ExitStatus(record['code'])}")
        if record["code"] == 0:
            self._running.discard((worker.pod, record["who"]))

    def _failed(self, worker: WorkerConnection, process: ProcessFailure) -> None:
        failure = WorkerFailure(worker.pod, process, process.time + worker.skew)
        if not self._running and process.rank is None and process.who != "supervisor":
            print(f"dglrun: note: {failure}, but all trainers had ended well", flush=True)
        else:
            self._failures.append(failure)

    def _finished(self, worker: WorkerConnection, record: Record) -> None:
        worker.files = record["files"]
        worker.tell({"do": "beat"})
        if record["left"]:
            self._print(worker, "supervisor", f"{record['left']} processes could not be ended")
        if not record["failed"] and not self._failures and any(pod == worker.pod for pod, _ in self._running):
            self._lose(worker, "was stopped before its trainers had ended", exitcodes.LOST)

    def _print(self, worker: WorkerConnection, who: str, text: str) -> None:
        index = self._workers.index(worker)
        print(f"[worker-{index} {who}] {text}", flush=True)
        if self._progress and index == 0 and who == "trainer 0" and text:
            self._progress(text)

    # --- streams that break

    def _broken(self, worker: WorkerConnection, record: Record) -> None:
        if worker.is_over:
            return
        what = (record["what"].splitlines() or [f"kubectl ended with {record['code']}"])[-1]
        self._print(worker, "supervisor", f"the stream broke: {what}")
        if (
            not worker.greeting
            and worker.attempts >= self._agents.attempts
            and not is_trouble(record["what"])
        ):
            self._lose(worker, f"could not be started: {what}", exitcodes.UNAVAILABLE)
        self._again[worker.pod] = time.monotonic() + worker.pause()

    def _mend(self, worker: WorkerConnection) -> None:
        """Take a broken stream up again, unless the pod is gone."""
        worker.break_if_silent()
        if (
            worker.broken_since
            and not worker.is_over
            and time.monotonic() >= self._again.get(worker.pod, 0.0)
        ):
            self._again[worker.pod] = float("inf")  # until this attempt breaks, too
            worker.check(self._gone)

    def _checked(self, worker: WorkerConnection, why: str | None) -> None:
        if worker.broken_since is None or worker.is_over:
            return
        if why:
            self._lose(worker, f"the pod is gone: {why}", exitcodes.LOST)
        elif not worker.greeting and self._stopping:
            self._lose(worker, "never began", exitcodes.UNAVAILABLE)
        elif not worker.greeting:
            worker.start()
        elif time.monotonic() - worker.broken_since > self._lease:
            self._lose(worker, f"could not be reached for {self._lease:.0f} s", exitcodes.LOST)
        else:
            worker.attach()

    def _lose(self, worker: WorkerConnection, why: str, code: int) -> None:
        if worker.is_over and worker.lost:
            return
        worker.lost = why
        self._failures.append(WorkerFailure(worker.pod, ProcessFailure("supervisor", code, why), time.time()))
