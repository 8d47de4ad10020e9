"""A run: an operator, innocent jobs, batches of hostile cases, a verdict."""

import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from dgl_operator.runtime.kinds import CHILDREN, Kind
from dgl_operator.runtime.service import MEMORY_SECONDS
from dgl_operator.runtime.settings import RECONCILE_WORKERS
from tests.fuzz import generator, judge, run_queue, stage, watched
from tests.fuzz.batch import Batch
from tests.fuzz.cases import Case
from tests.fuzz.findings import Finding, Findings, cut
from tests.fuzz.innocents import Innocents
from tests.fuzz.raw_api import Json
from tests.fuzz.stage import Stage
from tests.fuzz.tally import Tally
from tests.support.operator_process import OperatorProcess
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]
BATCH = 125
WARM_UP_ROUNDS = 3
WARM_UP_JOBS = RECONCILE_WORKERS
"""So many at once give the operator all threads and connections that it keeps."""
GROWTH = 1.3
"""Memory at the end, compared with the start."""
SETTLE_SECONDS = 2 * MEMORY_SECONDS
"""Within it the operator gives back what it does not need any more, once at least with nothing to do."""
GONE_SECONDS = 120.0
MOST_DEATHS = 10
MOST_SEARCHES = 2
"""A search for the case that ended an operator takes a minute or two."""
MOST_STORAGE = 1_700_000_000
"""etcd refuses all writes at 2 GiB, and others use it, too."""


@dataclass(frozen=True)
class Options:
    """What the command line asks for.

    Attributes:
        kinds: A regular expression; cases of other kinds are left out.
        patience: Factor on all deadlines.
    """

    seed: int
    numbers: Sequence[int]
    kinds: str = ""
    patience: float = 1.0

    def cases(self) -> Iterator[Case]:
        """The cases that are wanted."""
        made = (generator.case(self.seed, number) for number in self.numbers)
        return (case for case in made if re.search(self.kinds, case.kind))

    def batches(self) -> Iterator[list[Case]]:
        """The same by the hundred and more; few of them are large, but all together would be."""
        batch: list[Case] = []
        for case in self.cases():
            batch.append(case)
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch


class Clock:
    """Seconds of each step, one after the other."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._laps: list[str] = []

    def lap(self, name: str) -> None:
        """End a step."""
        now = time.monotonic()
        self._laps.append(f"{name} {now - self._last:.0f} s")
        self._last = now

    def __str__(self) -> str:
        return ", ".join(self._laps)


class Run:
    """Batches on a stage, and what is found meanwhile."""

    def __init__(self, options: Options, on: Stage) -> None:
        self._options = options
        self._stage = on
        self.findings = Findings(ROOT / "build" / "fuzz" / str(options.seed), options.seed)
        self._tally = Tally()
        self._innocents = Innocents(
            on.api, (on.tenant, on.quiet), self.findings.add, options.patience, self._processes
        )
        self._start_mib = self._end_mib = self._peak_mib = 0.0
        self._deaths = self._searches = 0
        self._counted = 0.0
        self._jobs = 0
        self._cleaner = ThreadPoolExecutor(1, thread_name_prefix="clean-up")
        self._cleaning: Future[None] | None = None

    def warm_up(self) -> None:
        """Play ordinary jobs: the rest is compared with their time and with the memory when they are gone."""
        self._innocents.warm_up(WARM_UP_JOBS)
        self._innocents.measure(WARM_UP_ROUNDS)
        try:
            wait_for(
                "the end of innocent jobs", self._are_innocents_gone, GONE_SECONDS * self._options.patience
            )
        except TimeoutError as error:
            print(error, flush=True)
        self._process.wait_idle()
        self._start_mib = self._steady_mib()

    def fuzz(self) -> None:
        """Submit all cases, batch by batch."""
        self._innocents.begin()
        try:
            for cases in self._options.batches():
                if self._stage.raw.storage_bytes() > MOST_STORAGE:
                    raise RuntimeError("etcd is nearly full: compact and defragment it, then run again")
                self._batch(cases)
                if self._deaths >= MOST_DEATHS:
                    print(f"{self._deaths} operators have ended: no use to go on", flush=True)
                    break
        finally:
            self._innocents.stop()
            self._end_clean_up()
        self._judge({}, {})

    def settle(self) -> None:
        """Compare the memory when everything is gone, and count the looks.

        Another process than at the start has no start. No batch comes any more that would notice that the
        operator has ended.
        """
        limit = GROWTH * self._start_mib
        self._end_mib = self._steady_mib(limit)
        if self._has_ended:
            self._deaths += 1
            self.findings.add(self._unexpected_end())
        if self._deaths:
            return
        if self._end_mib > limit:
            self.findings.add(Finding("memory has not come back", self._memory()))
        for finding in judge.looks_finding(self._process.reconciles(), self._jobs + self._innocents.played):
            self.findings.add(finding)

    def summary(self, seconds: float) -> None:
        """Print the tables."""
        print("\n".join(["", *self._tally.lines()]))
        print(f"operator: {self._deaths} unexpected ends; memory {self._memory()}")
        for namespace, times in self._innocents.times.items():
            where = "other namespace" if namespace == self._stage.quiet else "same namespace"
            print(f"innocent jobs, {where}: {times.summary()}")
        stored = self._stage.raw.storage_bytes() / 1e6
        load = f"load {os.getloadavg()[1]:.0f} on {os.cpu_count()} cores"
        print(f"etcd: {stored:.0f} MB; {load}; in all {seconds:.0f} s; seed {self._options.seed}")
        print("\n".join(["FINDINGS", *self.findings.lines()]) if self.findings else "everything held")

    def _steady_mib(self, enough: float = 0.0) -> float:
        """The least memory until the operator has given back what it can, or the first that is enough; MiB.

        Both the start and the end are measured so: with nothing to do, and after what was played before.
        """
        deadline = time.monotonic() + SETTLE_SECONDS * self._options.patience
        least = self._process.memory_mib()
        while least > enough and time.monotonic() < deadline:
            time.sleep(1)
            least = min(least, self._process.memory_mib())
        return least

    def _are_innocents_gone(self) -> bool:
        places = self._innocents.times
        kinds = (Kind.JOB, *CHILDREN)
        return not any(
            name.startswith("innocent-")
            for place in places
            for kind in kinds
            for name in self._stage.raw.names(kind, place)
        )

    def _processes(self) -> tuple[int, ...]:
        """Those whose waits for a CPU make jobs late; an API server elsewhere is none of them."""
        return (self._process.pid, *run_queue.named("kube-apiserver"))

    @property
    def _process(self) -> OperatorProcess:
        return self._stage.operator.process

    @property
    def _has_ended(self) -> bool:
        return self._stage.operator.problem is not None or not self._process.is_running

    def _memory(self) -> str:
        start, peak, end = (f"{size:.0f} MiB" for size in (self._start_mib, self._peak_mib, self._end_mib))
        return f"{start} at the start, {peak} at its peak, {end} at the end"

    def _batch(self, cases: Sequence[Case]) -> None:
        clock, operator = Clock(), self._stage.operator
        batch = self._new_batch(cases, self._tally)
        for finding in self._play(batch, clock):
            self.findings.add(finding)
        self._peak_mib = max(self._peak_mib, operator.peak_mib)
        self._judge(batch.jobs, batch.statuses())
        self._jobs += len(batch.jobs)
        clock.lap("judge")
        self._end_clean_up()
        clock.lap("clean-up of the batch before")
        self._cleaning = self._cleaner.submit(batch.clean_up)
        told = f"{len(batch.jobs)} jobs accepted, {_size(self._process)}; {clock}"
        print(f"cases {cases[0].number} to {cases[-1].number}: {told}", flush=True)
        if self._has_ended:
            self._end_clean_up()
            self._replace(cases)

    def _judge(
        self, jobs: Mapping[tuple[str, str], Case], statuses: Mapping[tuple[str, str], Json | None]
    ) -> None:
        """Read the log and the counters since the last batch: of its clean-up, too."""
        errors, counted = self._stage.operator.errors(), self._stage.operator.counted_errors()
        grown = None if counted is None else counted - self._counted
        self._counted += grown or 0.0
        for finding in judge.log_findings(errors, jobs, statuses, grown):
            self.findings.add(finding)

    def _end_clean_up(self) -> None:
        """Wait for the clean-up that goes on beside the next batch; its error is one of the run."""
        if self._cleaning is not None:
            self._cleaning.result()
            self._cleaning = None

    def _new_batch(self, cases: Sequence[Case], tally: Tally) -> Batch:
        now, tenant = self._innocents.now, self._stage.tenant
        return Batch(
            self._stage.raw, cases, self._stage.places, lambda: now[tenant], tally, self._options.patience
        )

    def _play(self, batch: Batch, clock: Clock) -> list[Finding]:
        def goes_on() -> bool:
            return not self._has_ended

        batch.submit()
        clock.lap("submit")
        found = batch.await_statuses(goes_on)
        clock.lap("statuses")
        if goes_on():
            batch.act()
        clock.lap("acts")
        found += batch.await_ends(goes_on)
        clock.lap("ends")
        return found

    def _replace(self, cases: Sequence[Case]) -> None:
        """Tell how the operator ended and by which case, and start another."""
        self._deaths += 1
        found = self._unexpected_end()
        if self._searches < MOST_SEARCHES:
            self._searches += 1
            found = replace(found, case=self._culprit(list(cases)))
        self.findings.add(found)
        self._restart()

    def _unexpected_end(self) -> Finding:
        """How the operator ended, with the end of its log."""
        operator = self._stage.operator
        log = watched.tail(operator.process.log)
        told = operator.problem or Finding("the operator's process ended", f"code {operator.process.poll()}")
        kind = f"{told.kind} ({watched.bug_of(log) or 'no traceback'})"
        return Finding(kind, f"{told.details}\n{log}")

    def _culprit(self, cases: list[Case]) -> Case | None:
        """The case that ends an operator by itself, found by halves; None when it takes several."""
        print(f"looking for the one of {len(cases)} cases that ends the operator", flush=True)
        while len(cases) > 1:
            half = cases[: len(cases) // 2]
            cases = half if self._ends_operator(half) else cases[len(half) :]
        return cases[0] if self._ends_operator(cases) else None

    def _ends_operator(self, cases: Sequence[Case]) -> bool:
        self._restart()
        batch = self._new_batch(cases, Tally())
        self._play(batch, Clock())
        ended = self._has_ended
        batch.clean_up()
        return ended

    def _restart(self) -> None:
        """Start another operator, which counts from 0; what the last one has logged is judged before."""
        self._judge({}, {})
        self._counted = 0.0
        self._stage.stop()
        self._stage.start()


def _size(process: OperatorProcess) -> str:
    return f"{process.memory_mib():.0f} MiB" if process.is_running else "the operator has ended"


def fuzz(options: Options) -> int:
    """Run all cases; returns the exit code."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, stage.prepared(Path(folder)) as on:
        run = Run(options, on)
        for step in (run.warm_up, run.fuzz, run.settle):
            step()
            print(f"{time.monotonic() - begun:.0f} s: {step.__name__} done", flush=True)
        run.summary(time.monotonic() - begun)
        return 1 if run.findings else 0


def show(options: Options) -> int:
    """Print cases without a cluster."""
    for case in options.cases():
        print(f"case {case.number}, {case.kind}: {case.what}\n{cut(case)}")
    return 0
