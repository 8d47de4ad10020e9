"""Ordinary jobs beside the hostile ones: played to Completed over and over, each with its time.

How long the API server takes for requests that no operator has a part in is measured beside each job: on a
machine that is busy with other things the limits grow as that does.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dgl_operator.runtime.cluster import ClusterBusy
from tests.fuzz.findings import Finding
from tests.support.api_client import ApiServer
from tests.support.played_job import PlayedJob, a_played_job

FACTOR, SECONDS = 3.0, 5.0
"""An innocent job may take three times its usual time, or five seconds more."""
PLAIN_WRITES = 10
PLAIN_PAUSE = 1.0
"""Seconds between two samples of them."""
SLOWEST = 4.0
"""On a machine that has become slower than so many times no job is judged by its time."""
HUNG_SECONDS = 120.0
"""A step of a job's life that takes longer is a finding on every machine."""
JUDGED = 0.25
"""Share of the jobs that must have been judged by their time, else nothing is known of the usual one."""


@dataclass
class Times:
    """Seconds that innocent jobs, and plain writes, took in one namespace.

    Attributes:
        plain: Those of the writes before the fuzz.
        slowness: How many times as long they have taken since, at worst.
        given_up: How many jobs were not Completed at all.
        unjudged: How many were Completed while the machine was too slow to say in what time.
        unanswered: How many the API server gave the test itself no answer about.
    """

    usual: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    patience: float = 1.0
    slowness: float = 1.0
    given_up: int = 0
    unjudged: int = 0
    unanswered: int = 0

    def limit(self, slowness: float) -> float:
        """The longest time that is allowed while plain writes take so many times as long."""
        return self.patience * slowness * max(FACTOR * _middle(self.usual), _middle(self.usual) + SECONDS)

    def slower(self, *plain: float) -> float:
        """How many times as long as before the fuzz these writes took, by their median."""
        found = min(max(1.0, _middle(list(plain)) / _middle(self.plain)), SLOWEST)
        self.slowness = max(self.slowness, found)
        return found

    def summary(self) -> str:
        """One line."""
        longest = f"longest {max(self.beside, default=0):.1f}, limit {self.limit(1.0):.1f}"
        usual, beside = _middle(self.usual), _middle(self.beside)
        machine = f"plain writes up to {self.slowness:.1f} times slower"
        told = f"usual {usual:.1f} s, beside the fuzz {beside:.1f} s ({longest}; {machine})"
        ends = f"{len(self.beside)} Completed, {self.unjudged} unjudged, {self.unanswered} unanswered"
        return f"{told}, {ends}, {self.given_up} given up"


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
        self.times[namespace].plain.append(self._plain(namespace))
        self.times[namespace].usual.append(self._one(namespace))

    def _play_on(self, namespace: str) -> None:
        times = self.times[namespace]
        while not self._stopped.is_set():
            with self._sampled(namespace) as plain:
                start, error = time.monotonic(), None
                try:
                    self._one(namespace, HUNG_SECONDS)
                except (TimeoutError, AssertionError, ClusterBusy) as found:
                    error = found
                seconds = time.monotonic() - start
            for finding in judged(namespace, times, seconds, plain, error):
                self._tell(finding)
            self._stopped.wait(1)
        for finding in lacking(namespace, times):
            self._tell(finding)

    @contextmanager
    def _sampled(self, namespace: str) -> Iterator[list[float]]:
        """Measure plain writes over and over meanwhile; the list is whole at the end."""
        found, ended = [self._plain(namespace)], threading.Event()

        def go_on() -> None:
            while not ended.wait(PLAIN_PAUSE):
                found.append(self._plain(namespace))

        thread = threading.Thread(target=go_on, name=f"plain writes {namespace}")
        thread.start()
        try:
            yield found
        finally:
            ended.set()
            thread.join()
            found.append(self._plain(namespace))

    def _plain(self, namespace: str) -> float:
        """Seconds of some writes of an object that no operator looks at."""
        start = time.monotonic()
        with suppress(ClusterBusy):  # after as many seconds as it was waited for, which tells enough
            for number in range(PLAIN_WRITES):
                body = {"kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"number": f"{number}"}}
                self._api.put(f"/api/v1/namespaces/{namespace}/configmaps", body)
        return time.monotonic() - start

    def _one(self, namespace: str, seconds: float = 60.0) -> float:
        start = time.monotonic()
        job = PlayedJob(self._api, namespace, a_played_job(f"innocent-{next(self._numbers)}"))
        self.now[namespace] = (job.name, job.raw["metadata"]["uid"])
        try:
            job.reach("Completed", seconds)
            return time.monotonic() - start
        finally:
            job.delete()


def judged(
    namespace: str, times: Times, seconds: float, plain: list[float], error: Exception | None
) -> Iterator[Finding]:
    """Count a job, and tell when it ended otherwise, was waited for in vain, or came too late.

    Args:
        namespace: Where it was.
        times: Those of the namespace, to which it is added.
        seconds: How long it took, or was waited for.
        plain: Seconds of plain writes meanwhile.
        error: Why it was not Completed.
    """
    slowness = times.slower(*plain)
    limit = times.limit(slowness)
    told = f"{namespace}: {seconds:.1f} s, {limit:.1f} s at most"
    if isinstance(error, ClusterBusy):  # nothing is known of the job
        times.unanswered += 1
        return
    if error is not None:
        times.given_up += 1
        yield Finding("an innocent job was not Completed", f"{told}; {error}")
        return
    times.beside.append(seconds)
    if seconds > limit and slowness >= SLOWEST:
        times.unjudged += 1
    elif seconds > limit:
        yield Finding("an innocent job took too long", told)


def lacking(namespace: str, times: Times) -> Iterator[Finding]:
    """Tell when too few jobs were judged to say that they have their usual time."""
    judged_by_time = len(times.beside) - times.unjudged
    played = len(times.beside) + times.given_up + times.unanswered
    if not times.beside:
        told = f"{namespace}: {times.given_up} given up, {times.unanswered} unanswered"
        yield Finding("0 innocent jobs Completed beside the fuzz", told)
    elif judged_by_time < JUDGED * played:
        machine = f"plain writes took {SLOWEST:g} times as long as before, or longer, or had no answer"
        told = f"{namespace}: {judged_by_time} of {played}; {machine}"
        yield Finding("the machine was too busy to judge innocent jobs", told)


def _middle(times: list[float]) -> float:
    return sorted(times)[len(times) // 2] if times else 0.0
