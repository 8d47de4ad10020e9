"""Ordinary jobs beside the hostile ones: played to Completed over and over, each with its time.

Their pods go on by themselves, as real ones do: a phase that a busy operator shows late holds up no job.
On a machine that is busy with other things the limits grow as two measures beside each job do: how long the
operator and the API server waited for a CPU, and how long the API server takes for requests that no operator
has a part in, by which slow disks and the time that a hypervisor takes away count, too.
"""

import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from dgl_operator.runtime.cluster import ClusterBusy
from tests.fuzz.findings import Finding
from tests.fuzz.run_queue import Waits
from tests.support.api_client import ApiServer
from tests.support.played_job import PlayedJob, a_played_job

FACTOR, SECONDS = 3.0, 5.0
"""An innocent job may take three times its usual time, or five seconds more."""
PLAIN_WRITES = 10
PLAIN_PAUSE = 1.0
"""Seconds between two samples of them."""
SLOWEST = 8.0
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
        cpu: How many times as long as with a CPU of their own operator and API server took before the fuzz.
        slowness: How many times as slow the machine has been since, at worst.
        given_up: How many jobs were not Completed at all.
        unjudged: How many were Completed while the machine was too slow to say in what time.
        unanswered: How many the API server gave the test itself no answer about.
    """

    usual: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    patience: float = 1.0
    slowness: float = 1.0
    given_up: int = 0
    unjudged: int = 0
    unanswered: int = 0

    def limit(self, slowness: float) -> float:
        """The longest time that is allowed while the machine is so many times as slow."""
        return self.patience * slowness * max(FACTOR * _middle(self.usual), _middle(self.usual) + SECONDS)

    def slower(self, plain: Sequence[float], cpu: float) -> float:
        """How many times as slow as before the fuzz the machine was: by these writes' median, or by the CPUs.

        Args:
            plain: Seconds of plain writes, infinite where the API server refused them.
            cpu: How many times as long as with a CPU of its own the operator, or the API server, took.
        """
        by_writes, by_cpu = _middle(plain) / _middle(self.plain), cpu / _middle(self.cpu)
        found = min(max(1.0, by_writes, by_cpu), SLOWEST)
        self.slowness = max(self.slowness, found)
        return found

    def summary(self) -> str:
        """One line."""
        longest = f"longest {max(self.beside, default=0):.1f}, limit {self.limit(1.0):.1f}"
        usual, beside = _middle(self.usual), _middle(self.beside)
        machine = f"the machine up to {self.slowness:.1f} times as slow as before"
        told = f"usual {usual:.1f} s, beside the fuzz {beside:.1f} s ({longest}; {machine})"
        ends = f"{len(self.beside)} Completed, {self.unjudged} unjudged, {self.unanswered} unanswered"
        return f"{told}, {ends}, {self.given_up} given up"


class Innocents:
    """Plays jobs in some namespaces, one at a time in each.

    Attributes:
        now: Name and UID of the job that is under way in each namespace.
        played: How many jobs were begun.
    """

    def __init__(
        self,
        api: ApiServer,
        namespaces: tuple[str, ...],
        tell: Callable[[Finding], None],
        patience: float,
        processes: Callable[[], Sequence[int]],
    ) -> None:
        """Play none yet.

        Args:
            api: Where they are played.
            namespaces: In which ones.
            tell: Called with each finding.
            patience: Factor on all limits.
            processes: IDs of those whose waits for a CPU make jobs late: the operator's and the API server's.
        """
        self.times = {namespace: Times(patience=patience) for namespace in namespaces}
        self.now: dict[str, tuple[str, str]] = {}
        self.played = 0
        self._api = api
        self._tell = tell
        self._processes = processes
        self._numbers = itertools.count()
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def warm_up(self, number: int) -> None:
        """Play so many at once, so that the operator has all threads and connections that it ever has."""
        places = itertools.islice(itertools.cycle(self.times), number)
        with ThreadPoolExecutor(number) as pool:
            list(pool.map(self._warm, places))

    def measure(self, rounds: int) -> None:
        """Play some before anything hostile is there, in all namespaces at once."""
        for _ in range(rounds):
            threads = [threading.Thread(target=self._usual, args=(place,)) for place in self.times]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if not all(times.usual and times.plain for times in self.times.values()):
            raise RuntimeError("an innocent job was not Completed before anything hostile was there")

    def begin(self) -> None:
        """Play them without end, until `stop`."""
        self._stopped.clear()
        self._threads = [
            threading.Thread(target=self._play_to_the_end, args=(place,), name=f"innocent {place}")
            for place in self.times
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for those under way."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _warm(self, namespace: str) -> None:
        with suppress(ClusterBusy, TimeoutError):  # a few of many would be enough
            self._one(namespace)

    def _usual(self, namespace: str) -> None:
        times, before = self.times[namespace], Waits.of(self._processes())
        if math.isfinite(plain := self._plain(namespace)):
            times.plain.append(plain)
        times.usual.append(self._one(namespace))
        times.cpu.append(Waits.of(self._processes()).slowness(before))

    def _play_to_the_end(self, namespace: str) -> None:
        try:
            self._play_on(namespace)
        except Exception as error:  # a thread that ends early would leave all that comes after it unjudged
            self._tell(Finding("innocent jobs were not played to the end", f"{namespace}: {error!r}"))

    def _play_on(self, namespace: str) -> None:
        times = self.times[namespace]
        while not self._stopped.is_set():
            before, error = Waits.of(self._processes()), None
            with self._sampled(namespace) as plain:
                start = time.monotonic()
                try:
                    seconds = self._one(namespace, HUNG_SECONDS)
                except Exception as found:  # whatever it is, the job has noticed something
                    seconds, error = time.monotonic() - start, found
            cpu = Waits.of(self._processes()).slowness(before)
            for finding in judged(namespace, times, seconds, times.slower(plain, cpu), error):
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
        """Seconds of some writes of an object that no operator looks at, infinite where one is refused.

        The seconds until an answer 429 would tell of a server that is quick.
        """
        start = time.monotonic()
        try:
            for number in range(PLAIN_WRITES):
                body = {"kind": "ConfigMap", "metadata": {"name": "plain"}, "data": {"number": f"{number}"}}
                self._api.put(f"/api/v1/namespaces/{namespace}/configmaps", body)
        except ClusterBusy:
            return math.inf
        return time.monotonic() - start

    def _one(self, namespace: str, seconds: float = 60.0) -> float:
        start = time.monotonic()
        number = next(self._numbers)
        self.played = max(self.played, number + 1)
        job = PlayedJob(self._api, namespace, a_played_job(f"innocent-{number}"))
        self.now[namespace] = (job.name, job.raw["metadata"]["uid"])
        try:
            job.complete(seconds)
            return time.monotonic() - start
        finally:
            with suppress(ClusterBusy):  # it goes with its namespace, and is Completed all the same
                job.delete()


def judged(
    namespace: str, times: Times, seconds: float, slowness: float, error: Exception | None
) -> Iterator[Finding]:
    """Count a job, and tell when it ended otherwise, was waited for in vain, or came too late.

    Args:
        namespace: Where it was.
        times: Those of the namespace, to which it is added.
        seconds: How long it took, or was waited for.
        slowness: How many times as slow as before the machine was meanwhile.
        error: Why it was not Completed.
    """
    limit = times.limit(slowness)
    told = f"{namespace}: {seconds:.1f} s, {limit:.1f} s at most (the machine {slowness:.1f} times as slow)"
    if isinstance(error, ClusterBusy):  # nothing is known of the job
        times.unanswered += 1
        return
    if error is not None:
        times.given_up += 1
        yield Finding("an innocent job was not Completed", f"{told}; {type(error).__name__}: {error}")
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
        machine = f"it was {SLOWEST:g} times as slow as before, or slower, or the API server did not answer"
        told = f"{namespace}: {judged_by_time} of {played}; {machine}"
        yield Finding("the machine was too busy to judge innocent jobs", told)


def _middle(times: Sequence[float]) -> float:
    return sorted(times)[len(times) // 2] if times else 0.0
