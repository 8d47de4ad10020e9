"""The training on all workers: start agents, then servers and trainers; follow; say how it really ended."""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import NoReturn

from dglrun.agent.exit_status import ProcessFailure
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.streams import Streams
from dglrun.workflow.agent_connections import AgentAddress, AgentConnections
from dglrun.workflow.agent_start import AgentStarter
from dglrun.workflow.checkpoint_keeping import CheckpointKeeping
from dglrun.workflow.hang_watch import HangWatch, IdleRank
from dglrun.workflow.output_collection import OutputCollection, Wanted
from dglrun.workflow.output_printer import OutputPrinter
from dglrun.workflow.root_cause import WorkerFailure, error_of
from dglrun.workflow.steps import StartAgents, Train
from dglrun.workflow.worker_connection import Record, WorkerConnection
from dglrun.workflow.worker_pods import Fate, WorkersLostError

BYE_SECONDS = 3.0
"""Until the agents that were told to leave have closed their connections."""
PRINT_SECONDS = 3.0
"""Until what has come is printed, before others go on printing."""
CHECK_SECONDS = 5.0
"""Between questions to the API server about a pod that cannot be reached."""
START_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds before each new start of an agent, the last one again and again: each is a kubectl."""
JUDGE_SECONDS = 5.0
"""How long the API server is asked whether a worker that cannot be reached was lost with its pod."""
ASK_SECONDS = 0.5
"""Between two such questions."""
_TICK = 0.2

Hopeless = Callable[[str], RunError | None]
"""Says of a pod why no exec into it will work, None if one may or if nobody knows."""
FateOf = Callable[[str], tuple[Fate, str]]
"""Says what has become of a pod, and why it is lost if it is."""


class Training:
    """One training as its launcher follows it, from the start of the agents on.

    Control records of all agents come through one queue; their output goes to the printer, not through here.

    Args:
        step: The agents.
        streams: Opens streams, on which the agents are started.
        hopeless: Asks the API server whether a pod is gone, or out of this account's reach.
        fate: Asks it, once the processes have been started, whether a pod was lost, so that another one takes
            its place; None: none does.
    """

    def __init__(
        self, step: StartAgents, streams: Streams, hopeless: Hopeless, fate: FateOf | None = None
    ) -> None:
        from dglrun.workflow import run_keys  # noqa: PLC0415 - costs 50 ms, and a dry run needs none

        self._inbox: queue.SimpleQueue[tuple[WorkerConnection, Record]] = queue.SimpleQueue()
        self._workers = [WorkerConnection(index, agent) for index, agent in enumerate(step.agents)]
        own, others = run_keys.make(worker.pod for worker in self._workers)
        first = self._workers[0]
        self._printer = OutputPrinter(lambda error: self._inbox.put((first, {"kind": "bug", "error": error})))
        self._connections = AgentConnections(own, step.heartbeat, self._printer)
        self._starter = AgentStarter(streams, others, step.limit)
        self._agents, self._hopeless, self._fate = step, hopeless, fate
        self._failures: list[WorkerFailure] = []
        self._ranks = {
            (agent.host.name, process.name): process.rank
            for agent in step.agents
            for process in agent.spec.processes
            if process.rank is not None
        }
        self._running = set(self._ranks)
        self._hang = HangWatch(self._ranks, self.pods, None)
        self._port: int | None = None
        self._stopping: str | None = None
        self._on = self._handlers()
        self._start_at: dict[str, float] = {}
        self._check_at: dict[str, float] = {}
        self._keeping: CheckpointKeeping | None = None
        self._lease = max((agent.spec.lease for agent in step.agents), default=0.0)
        self._collection: OutputCollection | None = None
        self._collection_lock = threading.Lock()  # workers are collected side by side

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
            self._start(worker)
        while not all(worker.greeting for worker in self._workers):
            self._turn()
            self._raise_failure()
            if time.monotonic() > deadline:
                missing = [worker for worker in self._workers if not worker.greeting]
                words = "\n".join(f"{worker.pod}: {worker.start_trouble}" for worker in missing)
                what = f"no agent within {seconds:g} s on {[worker.pod for worker in missing]}"
                raise RunError(what, exitcodes.UNAVAILABLE, words)

    def keep(self, keeping: CheckpointKeeping) -> None:
        """Let the agents start the keepers of checkpoints, and wait until what was kept is back.

        Raises:
            RunError: it cannot be brought back, or a worker fails meanwhile.
        """
        self._keeping = keeping
        for worker in self._workers:
            self._connections.tell(worker.pod, keeping.command(worker.pod))
        while not keeping.is_restored():
            self._turn()
            self._raise_failure()

    @property
    def silent(self) -> tuple[str, ...]:
        """The workers whose agents have not said that all has ended there: nothing is to be had of them."""
        return tuple(worker.pod for worker in self._workers if not worker.has_finished)

    @property
    def outputs(self) -> dict[str, bool | None]:
        """Whether the output folder of each worker has files; None where no agent has looked."""
        return {worker.pod: worker.has_files for worker in self._workers}

    @property
    def shared_outputs(self) -> dict[str, tuple[str, ...]]:
        """For each worker those with a lower number whose output folder is the same, ascending."""
        pods = self.pods
        groups = {pod: {pod} for pod in pods}
        for worker in self._workers:
            for other in worker.shared_with:
                if other < len(pods) and groups[worker.pod] is not groups[pods[other]]:
                    joined = groups[worker.pod] | groups[pods[other]]
                    groups |= dict.fromkeys(joined, joined)
        return {pod: tuple(each for each in pods[:at] if each in groups[pod]) for at, pod in enumerate(pods)}

    def run(
        self, step: Train, progress: Callable[[str], None], values: Callable[[Mapping[str, object]], None]
    ) -> None:
        """Tell all agents to start the training, and follow it to its end.

        Args:
            step: When it is over.
            progress: Takes the lines of worker 0's trainer 0.
            values: Takes what the script of rank 0 tells by `dglrun.progress`.

        Raises:
            RunError: a trainer, server, sampler or worker failed; with its exit code and last log lines.
        """
        self._printer.observe(lambda index, who, text: self._see(index, who, text, progress))
        self._on["progress"] = lambda _worker, record: values(record["values"])
        self._hang = HangWatch(self._ranks, self.pods, step.hang_seconds)
        self._port = (self._workers[0].greeting or {})["port"]
        self._tell_all({"do": "start", "port": self._port})
        self._follow(lambda: not self._running or bool(self._failures or self._idlest()))
        self._raise_failure()
        if self._running and (idlest := self._idlest()):
            self._raise_hang(idlest, step.stacks_seconds)
        self._printer.say(f"dglrun: all {step.world_size} trainers have ended well")
        if not self._follow(self._all_over, step.servers_seconds):
            self._printer.say("dglrun: note: servers outlived the trainers and are stopped")
            self.stop("the trainers have ended")
        self._raise_failure()
        self._follow(self._all_silent)
        self._raise_failure()
        self._printer.flush(PRINT_SECONDS)

    def stop(self, why: str) -> None:
        """End everything on every worker, and wait until that is so and its output is printed."""
        self._stopping = why
        for worker in self._workers:
            if self._start_at.pop(worker.pod, None) or self._starter.cancel(worker.pod):
                self._lose(worker, "never began", exitcodes.UNAVAILABLE)
        self._tell_all({"do": "stop", "why": why})
        self._follow(lambda: self._all_over() and self._all_silent(), self._agents.stop_seconds)
        self._printer.flush(PRINT_SECONDS)

    def collect(self, wanted: Wanted, deadline: float) -> list[str] | None:
        """Bring a worker's output folder here; see `OutputCollection.collect`.

        Returns:
            Names of the files; None if the worker has no agent that could send it.

        Raises:
            RunError: it cannot be had.
        """
        worker = next(each for each in self._workers if each.pod == wanted.pod)
        if not worker.sends_output:
            return None
        with self._collection_lock:
            if self._collection is None:
                ips = {each.pod: each.agent.host.ip for each in self._workers}
                connections = self._connections
                self._collection = OutputCollection(
                    ips, connections.tell, connections.is_connected, self._lease
                )
        return self._collection.collect(wanted, deadline)

    def close(self) -> None:
        """Dismiss the agents, and wait a moment until they have left."""
        with self._collection_lock:
            if self._collection:
                self._collection.close()
        self._starter.close()
        self._connections.close(BYE_SECONDS)
        self._printer.close(PRINT_SECONDS)

    def _tell_all(self, command: Record) -> None:
        for worker in self._workers:
            self._connections.tell(worker.pod, command)

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
            WorkersLostError: workers were lost with their pods, and others may take their places.
            RunError: if anything failed.
        """
        if not self._failures:
            return
        self._follow(lambda: False, self._agents.settle_seconds)
        lost, cause = self._lost_pods(), error_of(self._failures)
        for worker in self._workers:
            if worker.pod in lost:
                self._lose(worker, lost[worker.pod], exitcodes.LOST)
        self._stop_for(WorkersLostError(lost, cause) if lost else cause)

    def _lost_pods(self) -> dict[str, str]:
        """Which of the workers that cannot be reached were lost with their pods, and why.

        Their peers fail within milliseconds, and a kubelet may say later than that why it ended a pod.
        """
        suspects = [worker for worker in self._workers if worker.is_missing]
        if self._fate is None or self._port is None or not suspects:
            return {}
        fate, answers, over = self._fate, queue.SimpleQueue[dict[str, str]](), threading.Event()

        def ask() -> None:  # a thread of its own: while the API server is away each question takes minutes
            while not over.is_set():
                fates = {worker.pod: fate(worker.pod) for worker in suspects}
                has_failed = any(found is Fate.ENDED for found, _why in fates.values())
                lost = {pod: why for pod, (found, why) in fates.items() if found.is_loss}
                if lost or has_failed:
                    answers.put({} if has_failed else lost)
                    return
                over.wait(ASK_SECONDS)

        threading.Thread(target=ask, daemon=True).start()
        self._follow(
            lambda: not answers.empty() or not any(worker.is_missing for worker in suspects), JUDGE_SECONDS
        )
        over.set()
        return {} if answers.empty() else answers.get()

    def _idlest(self) -> list[IdleRank]:
        return self._hang.idlest(time.monotonic())

    def _raise_hang(self, idlest: list[IdleRank], seconds: float) -> None:
        """Show the stacks of all processes, stop everything and raise.

        Raises:
            RunError: always.
        """
        self._hang.want_stacks()
        self._printer.say("dglrun: the training hangs; the stacks of its processes follow")
        self._tell_all({"do": "stacks"})
        self._follow(lambda: self._hang.has_stacks, seconds)
        self._stop_for(self._hang.error(idlest))

    def _stop_for(self, error: RunError) -> NoReturn:
        self._printer.say(f"dglrun: {error}: everything is stopped")
        self.stop(str(error)[:500])
        raise error

    def _all_over(self) -> bool:
        return all(worker.is_over for worker in self._workers)

    def _all_silent(self) -> bool:
        return all(worker.is_silent for worker in self._workers)

    # --- one turn of the loop

    def _turn(self) -> None:
        with contextlib.suppress(queue.Empty):
            worker, record = self._inbox.get(timeout=_TICK)
            self._take(worker, record)
            while True:
                worker, record = self._inbox.get_nowait()
                self._take(worker, record)
        for worker in self._workers:
            self._mend(worker)
        if self._keeping:
            self._keeping.say_troubles()
            for pod in self._keeping.due():
                self._connections.tell(pod, self._keeping.command(pod))

    def _take(self, worker: WorkerConnection, record: Record) -> None:
        was_broken = worker.broken_since is not None
        worker.note(record)
        kind = record["kind"]
        if kind == "broken" and not was_broken and not worker.is_silent:
            self._print(worker, f"the connection broke: {record['what']}")
        elif kind in self._on:
            self._on[kind](worker, record)

    def _handlers(self) -> dict[str, Callable[[WorkerConnection, Record], None]]:
        return {
            "note": lambda worker, record: self._print(worker, record["text"]),
            "listening": lambda worker, record: self._connect(worker, record["port"]),
            "not_started": self._not_started,
            "alive": lambda worker, record: self._hang.heard(worker.pod, record["idle"], time.monotonic()),
            "stacks": lambda worker, record: self._hang.told_stacks(worker.pod),
            "hello": self._greeted,
            "ended": self._ended,
            "failed": lambda worker, record: self._failed(worker, ProcessFailure.of(record)),
            "finished": self._finished,
            "checked": lambda worker, record: self._checked(worker, record["why"]),
            "keeper": lambda worker, record: self._keeper_ended(worker, record["what"]),
            "refused": lambda worker, record: self._lose(worker, record["what"], record["code"]),
            "bug": _raise_bug,
        }

    def _greeted(self, worker: WorkerConnection, record: Record) -> None:
        if self._stopping:
            self._connections.tell(worker.pod, {"do": "stop", "why": self._stopping})
        elif self._port and record["state"] == "waiting":  # the connection had broken under the first `start`
            self._connections.tell(worker.pod, {"do": "start", "port": self._port})
        if self._keeping:  # as above; an agent whose keeper runs does nothing
            self._connections.tell(worker.pod, self._keeping.command(worker.pod))

    def _keeper_ended(self, worker: WorkerConnection, what: str) -> None:
        if self._keeping:
            self._keeping.ended(worker.pod, what)

    def _see(self, index: int, who: str, text: str, progress: Callable[[str], None]) -> None:
        """Look at a line that has been printed; called by the printer's thread."""
        self._hang.line(self._workers[index].pod, who, text)
        if index == 0 and who == "trainer 0" and text:
            progress(text)

    def _ended(self, worker: WorkerConnection, record: Record) -> None:
        if record["code"] == 0:
            self._running.discard((worker.pod, record["who"]))

    def _failed(self, worker: WorkerConnection, process: ProcessFailure) -> None:
        failure = WorkerFailure(worker.pod, process, process.time + worker.skew)
        if not self._running and process.rank is None and process.who != "agent":
            self._printer.say(f"dglrun: note: {failure}, but all trainers had ended well")
        else:
            self._failures.append(failure)

    def _finished(self, worker: WorkerConnection, record: Record) -> None:
        if record["left"]:
            self._print(worker, f"{record['left']} processes could not be ended")
        if not record["failed"] and not self._failures and any(pod == worker.pod for pod, _ in self._running):
            self._lose(worker, "was stopped before its trainers had ended", exitcodes.LOST)

    def _print(self, worker: WorkerConnection, text: str) -> None:
        """What the agent, or its connection, has to say for itself."""
        self._printer.say(f"[worker-{worker.index} agent] {text}")

    # --- starts, and connections that break

    def _start(self, worker: WorkerConnection) -> None:
        worker.start_attempts += 1
        self._starter.start(worker.agent, lambda record: self._inbox.put((worker, record)))

    def _connect(self, worker: WorkerConnection, port: int) -> None:
        host = worker.agent.host
        address = AgentAddress(host.name, host.ip, port)
        self._connections.connect(worker.index, address, lambda record: self._receive(worker, record))

    def _receive(self, worker: WorkerConnection, record: Record) -> None:
        """Take a record in the thread of the connections.

        No turn is made while output is collected, and who waits for a sender has to know that it has ended.
        """
        if record["kind"] != "output":
            self._inbox.put((worker, record))
        elif self._collection:
            self._collection.sender_ended(worker.pod, record["number"], record["what"])

    def _not_started(self, worker: WorkerConnection, record: Record) -> None:
        """Try again what did not reach the worker, and what failed there a few times."""
        last = (record["what"].splitlines() or [""])[-1]
        if last != worker.start_trouble:  # else an outage fills the log
            self._print(worker, f"not started: {last}")
        worker.start_trouble = last
        worker.start_failures += record["has_reached"]
        if worker.start_failures >= self._agents.attempts:
            self._lose(worker, f"could not be started: {last}", exitcodes.UNAVAILABLE)
        elif self._stopping:
            self._lose(worker, "never began", exitcodes.UNAVAILABLE)
        else:
            pause = START_PAUSES[min(worker.start_attempts, len(START_PAUSES)) - 1]
            self._start_at[worker.pod] = time.monotonic() + pause
            self._check(worker)

    def _mend(self, worker: WorkerConnection) -> None:
        """Start an agent again whose start has failed; give one up that cannot be reached."""
        now = time.monotonic()
        if now >= self._start_at.get(worker.pod, float("inf")):
            del self._start_at[worker.pod]
            self._start(worker)
        if worker.broken_since is not None and not worker.is_silent:
            self._check(worker)
        if why := worker.why_lost(self._lease):
            self._lose(worker, why, exitcodes.LOST)

    def _check(self, worker: WorkerConnection) -> None:
        """Ask in a thread now and then whether a pod can be reached at all; the answer is a record `checked`.

        One question at a time: while the API server is away each takes minutes.
        """
        if time.monotonic() < self._check_at.get(worker.pod, 0.0):
            return
        self._check_at[worker.pod] = float("inf")

        def ask() -> None:
            self._inbox.put((worker, {"kind": "checked", "why": self._why_unreachable(worker.pod)}))

        threading.Thread(target=ask, daemon=True).start()

    def _why_unreachable(self, pod: str) -> RunError | None:
        if self._fate is not None and self._port is not None:
            fate, why = self._fate(pod)
            if fate in (Fate.LOST, Fate.GOING):
                return RunError(why, exitcodes.LOST)
        return self._hopeless(pod)

    def _checked(self, worker: WorkerConnection, why: RunError | None) -> None:
        self._check_at[worker.pod] = time.monotonic() + CHECK_SECONDS
        is_connected = worker.greeting is not None and worker.broken_since is None
        if why and not is_connected and not worker.is_over:
            self._start_at.pop(worker.pod, None)
            self._lose(worker, str(why), why.code)

    def _lose(self, worker: WorkerConnection, why: str, code: int) -> None:
        if worker.lost:
            return
        worker.lost = why
        if not worker.has_finished:
            self._failures.append(WorkerFailure(worker.pod, ProcessFailure("agent", code, why), time.time()))


def _raise_bug(_worker: WorkerConnection, record: Record) -> None:
    raise record["error"]
