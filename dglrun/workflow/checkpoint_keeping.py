"""The launcher's part in keeping checkpoints: it starts and serves the keepers, and says what fails."""

import os
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.checkpoints import order as orders
from dglrun.transfer.checkpoints.folder import OWN
from dglrun.transfer.checkpoints.order import KeeperOrder
from dglrun.transfer.checkpoints.server import CheckpointServer, KeeperState
from dglrun.workflow.keeper_process import KeeperProcess
from dglrun.workflow.part_delivery import address_towards
from dglrun.workflow.steps import CheckpointKeeper, KeepCheckpoints

Record = dict[str, Any]

ATTEMPTS = 3
"""How often a keeper is started that ends before it has brought back what was kept."""
PAUSE_SECONDS = 5.0
"""Before a keeper that has ended is started again."""
WATCH_SECONDS = 1.0
"""Between two looks at the keeper of this pod while it trains."""
_TICK = 0.2


def begun(step: KeepCheckpoints) -> "CheckpointKeeping | None":
    """Begin to keep; None, with a note, where the launcher has no room and nobody has given it any.

    Raises:
        RunError: the place that the user has mounted on the launcher cannot be written.
    """
    marker = f"{OWN}shared-{uuid.uuid4().hex}"
    if not step.place:
        is_wanted = Path(step.folder).parent.exists()  # a volume, or what an earlier attempt has left
        try:
            _mark(Path(step.folder), marker)
        except OSError as error:
            what = f"{step.folder}: checkpoints cannot be kept here: {error.strerror}"
            if is_wanted:
                raise RunError(what, exitcodes.IO) from error
            print(f"dglrun: note: {what}; the training goes without", flush=True)
            return None
    return CheckpointKeeping(step, marker)


class CheckpointKeeping:
    """The keepers of one training, from what they bring back to their last round.

    Args:
        step: Who keeps what, and where.
        marker: Name of the file by which a worker recognises that its folders are the launcher's own.
    """

    def __init__(self, step: KeepCheckpoints, marker: str) -> None:
        from dglrun.workflow import run_keys  # noqa: PLC0415 - costs 50 ms, and a dry run needs none

        self._step, self._marker = step, marker
        self._keepers = {keeper.pod: keeper for keeper in step.keepers}
        own, self._keys = run_keys.for_transfer(step.owner, self._keepers)
        ranks = {keeper.pod: tuple(keeper.folders) for keeper in step.keepers}
        self._server = CheckpointServer(own, Path(step.folder), ranks, self._marker, step.every)
        self._deadline = time.monotonic() + step.seconds
        self._ends = dict.fromkeys(self._keepers, 0)
        self._failure = ""
        self._start_at: dict[str, float] = {}
        self._said: dict[str, str] = {}
        self._here: KeeperProcess | None = None
        self._watch: threading.Thread | None = None
        self._is_over = threading.Event()

    def command(self, pod: str) -> Record:
        """What an agent is told, which then starts the keeper of its worker unless that runs."""
        return {"do": "keep", "argv": list(self._keepers[pod].argv), "order": self._order(self._keepers[pod])}

    def keep_here(self) -> None:
        """Start the keeper as a process of this pod, and wait until what was kept is back.

        From then on a thread looks after it, as an agent and `Training` do where there are any.

        Raises:
            RunError: it cannot be brought back.
        """
        (keeper,) = self._step.keepers
        for folder in keeper.folders.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        self._here = KeeperProcess(keeper.argv, self._order(keeper), os.environ)
        while not self.is_restored():
            code = self._here.poll()
            if code is not None:
                self.is_restored()  # says why, if the keeper has
                raise RunError(f"the keeper of checkpoints ended with {code}", exitcodes.UNAVAILABLE)
            time.sleep(_TICK)
        self._watch = threading.Thread(target=self._watch_here, args=(keeper,), name="keeper", daemon=True)
        self._watch.start()

    def ended(self, pod: str, what: str) -> None:
        """A keeper has ended; it is started again, unless it ends again and again before it has begun."""
        state = self._server.states()[pod]
        if state.has_left or state.failure:
            return
        self._ends[pod] += 1
        if not state.is_ready and self._ends[pod] >= ATTEMPTS:
            self._failure = f"the keeper of checkpoints on {pod} {what}"
            return
        self._say(pod, f"the keeper of checkpoints {what}; it is started again")
        self._start_at[pod] = time.monotonic() + PAUSE_SECONDS

    def due(self) -> list[str]:
        """The pods whose keeper is to be started again now."""
        now = time.monotonic()
        found = [pod for pod, at in self._start_at.items() if now >= at]
        for pod in found:
            del self._start_at[pod]
        return found

    def is_restored(self) -> bool:
        """Whether all that was kept is where it was.

        Raises:
            RunError: it cannot be brought back.
        """
        if self._failure:
            raise RunError(self._failure, exitcodes.UNAVAILABLE)
        states = self._server.states()
        for pod, state in states.items():
            if state.failure:
                what, code = state.failure
                raise RunError(f"{pod}: checkpoints cannot be brought back: {what}", code)
        missing = [pod for pod, state in states.items() if not state.is_ready]
        if missing and time.monotonic() > self._deadline:
            what = f"checkpoints were not brought back within {self._step.seconds:g} s on {missing}"
            raise RunError(what, exitcodes.TIMEOUT)
        if not missing:
            self._tell_restored(states)
            self._server.begin()
        return not missing

    def say_troubles(self) -> None:
        """Say once of each pod why its files are not kept, and when they are again."""
        for pod, state in self._server.states().items():
            if state.trouble != self._said.get(pod, ""):
                self._said[pod] = state.trouble
                self._say(
                    pod,
                    f"checkpoints are not kept: {state.trouble}"
                    if state.trouble
                    else "checkpoints are kept again",
                )

    def finish(self, lost: tuple[str, ...] = (), seconds: float | None = None) -> None:
        """Keep what the ranks have left at the end, which no longer runs, and say what is kept.

        Args:
            lost: Pods of which nothing is to be expected.
            seconds: How long at most; None: as long as the step says.
        """
        limit = self._step.seconds if seconds is None else seconds
        late = self._server.finish(limit, self._step.absent_seconds, lost)
        self._end_watch()
        self.say_troubles()
        for pod in late if seconds is None else ():  # else its files stay there, and it goes on
            self._say(pod, "its last checkpoints are not kept: the last round has not ended there")
        states = self._server.states().values()
        files, size = sum(each.files for each in states), sum(each.size for each in states)
        if files:
            where = self._step.place or self._step.folder
            print(f"kept {files} checkpoint files, {size / 1e6:.1f} MB, in {where}", flush=True)

    def close(self) -> None:
        """End everything; nothing more is kept."""
        self._end_watch()
        self._server.close()
        if self._here:
            self._here.end()
        Path(self._step.folder, self._marker).unlink(missing_ok=True)

    def _watch_here(self, keeper: CheckpointKeeper) -> None:
        while not self._is_over.wait(WATCH_SECONDS):
            if self._here and (code := self._here.poll()) is not None:
                self._here = None
                self.ended(keeper.pod, f"ended with {code}")
            if self.due():
                self._restart_here(keeper)
            self.say_troubles()

    def _restart_here(self, keeper: CheckpointKeeper) -> None:
        try:
            self._here = KeeperProcess(keeper.argv, self._order(keeper), os.environ)
        except OSError as error:  # no process or no memory is left now
            self.ended(keeper.pod, f"cannot be started: {error.strerror}")

    def _end_watch(self) -> None:
        # The kernel kills a keeper with the thread that started it, so only once nothing is left to keep.
        self._is_over.set()
        if self._watch:
            self._watch.join()

    def _order(self, keeper: CheckpointKeeper) -> str:
        return orders.encode(
            KeeperOrder(
                self._step.owner,
                address_towards(keeper.ip),
                self._server.port,
                self._keys[keeper.pod],
                keeper.folders,
                self._step.ranks,
                self._step.place,
                self._step.rate,
                self._step.seconds,
            )
        )

    def _tell_restored(self, states: dict[str, KeeperState]) -> None:
        files = sum(state.restored[0] for state in states.values())
        size = sum(state.restored[1] for state in states.values())
        if files:
            print(f"brought back {files} checkpoint files, {size / 1e6:.1f} MB", flush=True)

    def _say(self, pod: str, text: str) -> None:
        print(f"dglrun: note: {pod}: {text}", flush=True)


def _mark(folder: Path, marker: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / marker).touch()
