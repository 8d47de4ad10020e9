"""The agent's loop: one thread, woken by output, ends of processes, the launcher's connection and a tick.

States: waiting for `start`, running, stopping, finished. A failure or a lost lease ends the whole group,
SIGTERM first (DGL then removes its segments), SIGKILL after the grace. Nothing is left: no process below
this one, no segment that appeared since its start.
"""

import contextlib
import json
import os
import selectors
import signal
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from dglrun import cgroup
from dglrun.agent import LAST_SECONDS, folder_mark, host_info, process_group, procfs, shared_memory
from dglrun.agent.activity import ActivityMonitor
from dglrun.agent.connections import STRANGERS, Connection
from dglrun.agent.exit_status import ExitStatus, ProcessFailure
from dglrun.agent.forked_program import KEEPER, SENDER, ForkedProgram
from dglrun.agent.outbox import Outbox
from dglrun.agent.process_group import Child
from dglrun.agent.sampler_monitor import SamplerDeath, SamplerMonitor
from dglrun.agent.script_progress import ProgressFile
from dglrun.agent.spec import Spec
from dglrun.agent.stacks import StackRequest
from dglrun.contract import exitcodes

TICK = 0.25
LOOK_EVERY = 0.5
"""Seconds between looks at the samplers."""
BEAT_EVERY = 3.0
"""Seconds between heartbeats to the launcher."""
GOODBYE_SECONDS = 3.0
"""Seconds that the last records of a run have to reach a launcher that is not there any more."""
KILL_PATIENCE = 10.0
"""Seconds after SIGKILL; a process that the kernel does not end by then is reported and left."""


class State(Enum):
    """What the agent is at."""

    WAITING = "waiting"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"


class Daemon:
    """Serves one run.

    Args:
        spec: What to do.
        folder: Its run folder: causes of death.
        listener: Socket on which the launcher connects.
        context: TLS with the run's keys.
        before: Segments that were there before the run.
    """

    def __init__(
        self,
        spec: Spec,
        folder: Path,
        listener: socket.socket,
        context: ssl.SSLContext,
        before: frozenset[str],
    ) -> None:
        self.spec, self._folder, self._before = spec, folder, before
        self._context = context
        self._outbox = Outbox()
        self._causes = folder / "causes"
        self._causes.mkdir(exist_ok=True)
        self._progress_path = folder / "progress.json"
        self._progress = ProgressFile(self._progress_path)
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connection] = []
        self._children: dict[int, Child] = {}
        self._keeper: ForkedProgram | None = None
        self._sender: ForkedProgram | None = None
        self._sent = 0
        self._samplers = SamplerMonitor()
        self._activity = ActivityMonitor(spec.watched, time.monotonic())
        self._stacks: StackRequest | None = None
        self._state = State.WAITING
        self._failure: ProcessFailure | None = None
        self._heard = self._looked = self._told = time.monotonic()
        self._kill_at = self._give_up_at = self._leaving_until = 0.0
        self._dismissed = False
        self._ended_by = 0
        self._is_drained = False
        self._finished_at = 0.0
        self._oom_kills = cgroup.oom_kills()
        self._listen(listener)
        self._catch_signals()

    def run(self) -> None:
        """Serve until the launcher says goodbye or its lease has run out."""
        while not self._may_leave():
            try:
                self._turn()
            except Exception as error:
                if self._failure:  # it cannot even stop
                    raise
                import traceback  # noqa: PLC0415 - 3 ms of each start, and needed here only

                what = f"a bug in dglrun: {type(error).__name__}: {error}"
                self._fail(ProcessFailure("agent", exitcodes.SOFTWARE, what, traceback.format_exc()))
        for program in (self._keeper, self._sender):
            if program:
                program.kill()
        self._remove_mark()

    def _turn(self) -> None:
        for key, mask in self._selector.select(TICK):
            key.data(mask)
        self._obey_signal()
        self._look_at_causes()
        self._reap()
        self._look_at_samplers()
        self._look_at_progress()
        self._watch_lease()
        self._watch_stacks()
        self._go_on_stopping()
        self._beat()
        self._drain()
        self._pump()

    # --- the launcher

    def _listen(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._selector.register(listener, selectors.EVENT_READ, self._accept)

    def _accept(self, _mask: int) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:  # it has gone again
            return
        self._connections = [each for each in self._connections if each.is_open]
        strangers = [each for each in self._connections if each.is_stranger]
        if len(strangers) >= STRANGERS:
            strangers[0].close()  # the oldest one: silent ones must not keep the launcher out
        try:
            new = Connection(connection, self._context, self._outbox, self._selector, self._obey)
        except OSError:  # it has gone meanwhile
            connection.close()
            return
        self._connections.append(new)

    def _obey(self, connection: Connection, command: dict[str, Any]) -> None:
        self._heard = time.monotonic()
        match command["do"]:
            case "attach":
                self._attach(connection, command)
            case "printed":
                self._outbox.acknowledge(command["control"], command["printed"])
            case "start" if self._state is State.WAITING:
                self._start(command["port"])
            case "keep" if self._keeper is None:
                self._keep(command["argv"], command["order"])
            case "output" if self._state is State.FINISHED:
                self._send_output(command["number"], command["module"], command["order"])
            case "stop":
                self._stop(f"told to stop: {command['why']}")
            case "stacks":
                self._stacks = StackRequest(self._children.values(), time.monotonic())
            case "bye":
                self._dismissed = True

    def _attach(self, connection: Connection, command: dict[str, Any]) -> None:
        for other in self._connections:
            if other is not connection and other.is_attached:
                other.close()
        connection.attach(command, self._hello())

    def _hello(self) -> dict[str, Any]:
        return {
            "kind": "hello",
            "run": self.spec.run,
            "state": self._state.value,
            "time": time.time(),
            "port": host_info.free_port() if self._state is State.WAITING else None,
            "sends_output": True,
        }

    def _beat(self) -> None:
        if time.monotonic() - self._told >= BEAT_EVERY:
            self._told = time.monotonic()
            alive = {"kind": "alive", "idle": self._activity.look(self._children.values(), self._told)}
            for connection in self._connections:
                connection.close_if_late()
                if connection.is_attached:
                    connection.tell(alive)

    def _drain(self) -> None:
        """Tell that nothing more comes: each line has been printed."""
        if self._state is State.FINISHED and not self._is_drained and self._outbox.is_printed:
            self._is_drained = True
            self._record("drained")

    def _pump(self) -> None:
        for connection in self._connections:
            connection.pump()

    def _may_leave(self) -> bool:
        if self._state is not State.FINISHED:
            return False
        now = time.monotonic()
        is_told = self._outbox.is_acknowledged or now - self._finished_at > GOODBYE_SECONDS
        return (self._dismissed and is_told) or now - self._heard > self.spec.lease

    def _record(self, kind: str, **values: object) -> None:
        self._outbox.record({"kind": kind, **values})

    def _say(self, child: Child, text: str) -> None:
        """A line about a process, in order with its own."""
        self._outbox.line(child.process.name, text)

    # --- processes

    def _start(self, master_port: int) -> None:
        self._state = State.RUNNING
        known = host_info.known(
            self.spec.ip, self.spec.trainers, master_port, self._causes, self._progress_path
        )
        for process in self.spec.processes:
            wanted = {**process.env, process_group.RUN_FOLDER_VARIABLE: str(self._folder)}
            try:
                child = Child(process, host_info.environment(os.environ, wanted, known))
            except OSError as error:
                what = f"could not be started: {error}"
                self._fail(ProcessFailure(process.name, exitcodes.USAGE, what, "", process.rank))
                return
            self._children[child.pid] = child
            self._selector.register(child, selectors.EVENT_READ, lambda _mask, c=child: self._read(c))
            rank = "" if process.rank is None else f", rank {process.rank}"
            self._say(child, f"started (process {child.pid}{rank})")

    def _keep(self, argv: list[str], order: str) -> None:
        """Start the process that keeps checkpoints, which the launcher follows by itself."""
        try:
            self._keeper = ForkedProgram(argv[argv.index("-m") + 1], order, KEEPER)
        except OSError as error:
            self._record("keeper", what=f"could not be started: {error}")
            return
        with contextlib.suppress(OSError):  # the kernel ends it with this process in any case
            process_group.record_keeper(self._folder, self._keeper.pid)

    def _send_output(self, number: int, module: str, order: str) -> None:
        """Start the process that sends the output folder, unless the one of this attempt runs.

        The launcher repeats what it has told: a broken connection may have lost it, or the process has ended.
        """
        if self._sender and number == self._sent:
            return
        if self._sender:
            self._sender.kill()
        try:
            self._sender, self._sent = ForkedProgram(module, order, SENDER, is_heard=True), number
        except OSError as error:  # no process is left now; it is told again
            self._record("output", number=number, what=f"could not be started: {error}")

    def _read(self, child: Child) -> None:
        lines, ended = child.read()
        self._lines(child, lines)
        if ended:
            self._selector.unregister(child)
            child.close()

    def _lines(self, child: Child, lines: list[str]) -> None:
        for line in lines:
            self._say(child, line)

    def _reap(self) -> None:
        for pid, end in process_group.reap():
            child = self._children.get(pid)
            if child:
                self._lines(child, self._last_output(child, end))
                self._ended(child, end)
            elif self._keeper and pid == self._keeper.pid:
                self._keeper = None
                self._record("keeper", what=f"ended with {end}{self._why(end)}")
            elif self._sender and pid == self._sender.pid:
                words, self._sender = self._sender.last_words(), None
                what = f"ended with {end}{self._why(end)}{': ' if words else ''}{words}"
                self._record("output", number=self._sent, what=what)

    def _last_output(self, child: Child, end: ExitStatus) -> list[str]:
        try:
            return child.has_ended(end)
        except ValueError:  # the output had ended, and was closed, before the process
            return []

    def _ended(self, child: Child, end: ExitStatus) -> None:
        self._look_at_progress(is_last=child.process.rank is not None)
        self._say(child, f"ended with {end}")
        self._record("ended", who=child.process.name, rank=child.process.rank, code=end.code)
        if self._state is State.RUNNING and not end.is_good:
            # Its exit handlers may have ended it in another way than it wanted.
            cause = self._cause(child.pid)
            self._fail(self._failure_of(child, ExitStatus(cause["code"]) if cause else end))
        if self._state is State.RUNNING and all(c.end for c in self._children.values()):
            self._stop("all processes have ended")

    def _look_at_causes(self) -> None:
        """A process that has recorded a cause has failed; that is told before its peers fail of it."""
        if next(self._causes.iterdir(), None) is None:  # in each turn: one look, not a file for each process
            return
        for child in self._children.values():
            if self._state is State.RUNNING and not child.end and (cause := self._cause(child.pid)):
                with contextlib.suppress(ValueError):  # its output has ended
                    self._read(child)
                self._leaving_until = time.monotonic() + LAST_SECONDS
                self._fail(self._failure_of(child, ExitStatus(cause["code"])))

    def _failure_of(self, child: Child, end: ExitStatus) -> ProcessFailure:
        words = self._words(child.pid, child)
        what = f"ended with {end}{self._why(end)}"
        return ProcessFailure(child.process.name, end.code, what, words, child.process.rank)

    def _cause(self, pid: int) -> dict[str, Any] | None:
        try:
            cause: dict[str, Any] = json.loads((self._causes / f"{pid}.json").read_text())
        except (OSError, ValueError):
            return None
        return cause

    def _words(self, pid: int, child: Child) -> str:
        """The traceback of a process, or the last lines of output and the cause it has told, if any."""
        cause = (self._cause(pid) or {"words": ""})["words"]
        return cause if "\n" in cause else "\n".join([*child.tail, cause]).rstrip()

    def _why(self, end: ExitStatus) -> str:
        """Who sent SIGKILL, as far as the kernel tells."""
        is_oom = end.code == 128 + signal.SIGKILL and cgroup.oom_kills() > self._oom_kills
        return ": out of memory (the container's limit)" if is_oom else ""

    def _look_at_progress(self, is_last: bool = False) -> None:
        if values := self._progress.news(time.monotonic(), is_last):
            self._record("progress", values=values)

    def _look_at_samplers(self) -> None:
        now = time.monotonic()
        if self._state is not State.RUNNING or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        trainers = frozenset(c.pid for c in self._children.values() if c.is_trainer and not c.end)
        for death in self._samplers.look(trainers, procfs.table()):
            self._look_at_causes()  # a trainer that leaves ends its samplers
            self._fail(self._failure_of_sampler(death))

    def _failure_of_sampler(self, death: SamplerDeath) -> ProcessFailure:
        child = self._children[death.trainer]
        words = self._words(death.pid, child)
        who = f"sampler of {child.process.name}"
        what = f"(process {death.pid}) ended with {death.end}{self._why(death.end)}"
        return ProcessFailure(who, death.end.code, what, words, child.process.rank)

    # --- the end

    def _fail(self, failure: ProcessFailure) -> None:
        if self._failure or self._state not in (State.WAITING, State.RUNNING):
            return
        self._failure = failure
        raw: Mapping[str, object] = {**vars(failure), "time": time.time()}
        self._record("failed", **raw)
        self._stop(f"{failure.who} {failure.what}")

    def _watch_stacks(self) -> None:
        """Say that the stacks which the launcher has asked for have been printed."""
        if self._stacks and self._stacks.is_answered(time.monotonic()) and self._outbox.is_printed:
            self._stacks = None
            self._record("stacks")

    def _watch_lease(self) -> None:
        silent = time.monotonic() - self._heard
        if silent > self.spec.lease and self._state in (State.WAITING, State.RUNNING):
            what = f"heard nothing of the launcher for {silent:.0f} s"
            self._fail(ProcessFailure("agent", exitcodes.LOST, what))

    def _stop(self, why: str) -> None:
        if self._state in (State.STOPPING, State.FINISHED):
            return
        self._state = State.STOPPING
        self._record("stopping", why=why)
        self._kill_at = max(time.monotonic() + self.spec.grace, self._leaving_until)
        self._give_up_at = self._kill_at + KILL_PATIENCE
        process_group.signal_all(signal.SIGTERM, self._spared())

    def _go_on_stopping(self) -> None:
        if self._state is not State.STOPPING:
            return
        now = time.monotonic()
        alive = process_group.signal_all(signal.SIGKILL if now >= self._kill_at else 0, self._spared())
        if alive and now < self._give_up_at:
            return
        self._reap()
        self._finish(alive)

    def _spared(self) -> tuple[int, ...]:
        """The keeper: what was written last is still to be kept."""
        return (self._keeper.pid,) if self._keeper else ()

    def _finish(self, alive: int) -> None:
        self._state, self._finished_at = State.FINISHED, time.monotonic()
        segments = shared_memory.remove_new(Path(self.spec.shm), self._before)
        unlisted = list[OSError]()
        has_files = _has_files(self.spec.output, unlisted.append)
        for error in [] if has_files else unlisted:  # else whoever collects the files says so
            if not isinstance(error, FileNotFoundError):
                what = f"{error.filename!r} cannot be listed and counts as empty: {error.strerror}"
                self._record("note", text=what)
        self._record(
            "finished",
            failed=self._failure is not None,
            left=alive,
            segments=len(segments),
            has_files=has_files,
            shared_with=self._mark_output() if has_files else (),
        )

    def _mark_output(self) -> tuple[int, ...]:
        """Leave a mark in the output folder until this agent leaves; the workers whose mark is there already.

        Of two that share a folder the later one sees the mark of the earlier, which waits for the launcher.
        """
        folder, beginning = Path(self.spec.output), f"{folder_mark.PREFIX}{self.spec.run}-of-"
        if not folder_mark.leave(folder, f"{beginning}{self.spec.index}"):
            return ()
        found = {int(each) for each in folder_mark.seen(folder, beginning) if each.isdigit()}
        return tuple(sorted(found - {self.spec.index}))

    def _remove_mark(self) -> None:
        if self.spec.output:
            name = f"{folder_mark.PREFIX}{self.spec.run}-of-{self.spec.index}"
            folder_mark.remove(Path(self.spec.output), name)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(reader, selectors.EVENT_READ, lambda _mask: _empty(reader))
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        # A signal wakes the loop by the descriptor only if it has a handler; the default ignores SIGCHLD.
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the stream that started it may end at any moment

    def _on_signal(self, number: int, _frame: object) -> None:
        self._ended_by = number  # anywhere in the loop's work, which goes on; the loop is woken

    def _obey_signal(self) -> None:
        if self._ended_by and not self._dismissed:
            name = signal.Signals(self._ended_by).name
            self._fail(ProcessFailure("agent", 128 + self._ended_by, f"was ended by {name}"))
            self._dismissed = True  # whoever has sent it does not wait for the launcher's goodbye


def _empty(reader: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(reader, 4096):
            continue


def _has_files(folder: str, on_error: Callable[[OSError], None]) -> bool:
    """Without counting them: nothing else goes on meanwhile."""
    return bool(folder) and any(
        any(not name.startswith(folder_mark.PREFIX) for name in files)
        for _path, _folders, files in os.walk(folder, onerror=on_error)
    )
