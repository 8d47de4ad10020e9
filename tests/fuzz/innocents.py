"""Ordinary jobs beside the hostile ones: played to Completed over and over, each with its time."""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.findings import Finding
from tests.support.api_client import ApiServer
from tests.support.played_job import PlayedJob, a_played_job

FACTOR, SECONDS = 3.0, 5.0
"""An innocent job may take three times its usual time, or five seconds more."""


@dataclass
class Times:
    """Seconds that innocent jobs took in one namespace."""

    usual: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    patience: float = 1.0

    @property
    def limit(self) -> float:
        """The longest time that is allowed."""
        return self.patience * max(FACTOR * _middle(self.usual), _middle(self.usual) + SECONDS)

    def summary(self) -> str:
        """One line."""
        longest = f"longest {max(self.beside, default=0):.1f}, limit {self.limit:.1f}"
        usual, beside = _middle(self.usual), _middle(self.beside)
        return (
            f"usual {usual:.1f} s, beside the fuzz {beside:.1f} s ({longest}), {len(self.beside)} Completed"
        )


class Innocents:
    """Plays jobs in some namespaces, one at a time in each.

    Attributes:
        now: Name and UID of the job that is under way in each namespace.
    """

    def __init__(
        self, api: ApiServer, namespaces: tuple[str, ...], tell: Callable[[Finding], None], patience: float
    ) -> None:
        self.times = {namespace: Times(patience=patience) for namespace in namespaces}
        self.now: dict[str, tuple[str, str]] = {}
        self._api = api
        self._tell = tell
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def measure(self, rounds: int) -> None:
        """Play some before anything hostile is there, in all namespaces at once."""
        for _ in range(rounds):
            threads = [threading.Thread(target=self._usual, args=(place,)) for place in self.times]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if not all(times.usual for times in self.times.values()):
            raise RuntimeError("an innocent job was not Completed before anything hostile was there")

    def begin(self) -> None:
        """Play them without end, until `stop`."""
        self._stopped.clear()
        self._threads = [
            threading.Thread(target=self._play_on, args=(place,), name=f"innocent {place}")
            for place in self.times
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for those under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _usual(self, namespace: str) -> None:
        self.times[namespace].usual.append(self._one(namespace))

    def _play_on(self, namespace: str) -> None:
        times = self.times[namespace]
        while not self._stopped.is_set():
            try:
                seconds = self._one(namespace)
            except (TimeoutError, AssertionError) as error:
                self._tell(Finding("an innocent job was not Completed", f"{namespace}: {error}"))
                self._stopped.wait(2)
                continue
            times.beside.append(seconds)
            if seconds > times.limit:
                told = f"{namespace}: {seconds:.1f} s, usual {times.limit:.1f} s at most"
                self._tell(Finding("an innocent job took too long", told))
            self._stopped.wait(1)

    def _one(self, namespace: str) -> float:
        start = time.monotonic()
        job = PlayedJob(self._api, namespace, a_played_job(f"innocent-{next(self._numbers)}"))
        self.now[namespace] = (job.name, job.raw["metadata"]["uid"])
        try:
            job.reach("Completed")
            return time.monotonic() - start
        finally:
            job.delete()


def _middle(times: list[float]) -> float:
    return sorted(times)[len(times) // 2] if times else 0.0
