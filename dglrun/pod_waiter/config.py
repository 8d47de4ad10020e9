"""What watcher-loop is told by its environment."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from dglrun.contract import env

APPEAR_SECONDS = 600.0
"""Pods that nobody has seen after so long will not come."""


class WaiterConfigError(ValueError):
    """The environment is not usable; the message has one line for each problem."""


class WatchMode(Enum):
    """What is waited for (`WATCHERMODE`)."""

    READY = "ready"
    FINISHED = "finished"


@dataclass(frozen=True)
class WaiterConfig:
    """One wait.

    Attributes:
        namespace: Namespace of the pods.
        file: The mounted address file, hostfile or partfile.
        mode: What is waited for.
        expected: How many lines the file has when it is whole; None: any but zero.
        timeout: Seconds for the whole wait; None: no limit.
        appear_timeout: Seconds until every pod must have been seen; None: no limit.
        pods: Names to watch instead of those in the file: who waits for the end of pods needs no address,
            and the kubelet brings a changed file only once a minute.
    """

    namespace: str
    file: Path
    mode: WatchMode
    expected: int | None = None
    timeout: float | None = None
    appear_timeout: float | None = APPEAR_SECONDS
    pods: tuple[str, ...] = ()

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> "WaiterConfig":
        """Read the environment that the operator sets.

        Raises:
            WaiterConfigError: a variable is missing or has a value that it cannot have; all are named.
        """
        reader = _Reader(environment)
        config = cls(
            namespace=reader.text(env.WATCHER_NAMESPACE),
            file=Path(reader.text(env.WATCHER_FILE)),
            mode=reader.mode(),
            expected=reader.count(env.WATCHER_EXPECTED),
            pods=reader.names(env.WATCHER_PODS),
            timeout=reader.seconds(env.WATCHER_TIMEOUT, None),
            appear_timeout=reader.seconds(env.WATCHER_APPEAR_TIMEOUT, APPEAR_SECONDS),
        )
        if reader.problems:
            raise WaiterConfigError("\n".join(reader.problems))
        return config


class _Reader:
    """Reads variables and gathers what is wrong with them."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self.problems: list[str] = []

    def text(self, name: str) -> str:
        value = self._environment.get(name, "")
        if not value:
            self.problems.append(f"{name} is not set")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(word for word in self._environment.get(name, "").split(",") if word)

    def mode(self) -> WatchMode:
        value = self.text(env.WATCHER_MODE)
        for mode in WatchMode:
            if mode.value == value:
                return mode
        if value:
            self.problems.append(f"{env.WATCHER_MODE}: expected ready or finished, got {value!r}")
        return WatchMode.READY

    def count(self, name: str) -> int | None:
        value = self._environment.get(name, "")
        if not value:
            return None
        if not (value.isascii() and value.isdigit() and int(value) > 0):
            self.problems.append(f"{name}: expected a number of lines from 1 on, got {value!r}")
            return None
        return int(value)

    def seconds(self, name: str, default: float | None) -> float | None:
        """0 switches a deadline off."""
        value = self._environment.get(name, "")
        if not value:
            return default
        if not (value.isascii() and value.isdigit()):
            self.problems.append(f"{name}: expected whole seconds, got {value!r}")
            return default
        return float(value) or None
