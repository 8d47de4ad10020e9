"""One side's run: start the operator, submit all jobs at once, wait, delete everything, read the figures."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dglrun.contract import names
from tests.benchmarks.operator_bench import accounts
from tests.benchmarks.operator_bench.bodies import RUN, Json
from tests.benchmarks.operator_bench.figures import SideFigures
from tests.benchmarks.operator_bench.launcher_driver import LauncherDriver
from tests.benchmarks.operator_bench.requests_count import AuditLog
from tests.benchmarks.operator_bench.resources import CpuSample, Memory
from tests.benchmarks.operator_bench.sides import Side
from tests.benchmarks.operator_bench.watch import Watch
from tests.support.api_client import ApiServer
from tests.support.wait import wait_for

SUBMITTERS = 8
CONTENT = (
    "/api/v1/namespaces/{}/pods",
    "/apis/batch/v1/namespaces/{}/jobs",
    "/api/v1/namespaces/{}/configmaps",
    "/api/v1/namespaces/{}/secrets",
    "/api/v1/namespaces/{}/services",
    "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "/api/v1/namespaces/{}/serviceaccounts",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
)
"""What jobs leave; deleted by the benchmark, since the garbage collector sends 20 requests a second."""
IDLE_SECONDS = 20.0
"""Without any deletion for so long the clean-up is over, whatever is left."""
SPARED = "metadata.name!=default,metadata.name!=kube-root-ca.crt"


@dataclass(frozen=True)
class Size:
    """How much.

    Attributes:
        jobs: All of them submitted at once.
        namespaces: Over which they are spread.
        seconds: Deadline of the run.
        settle: Seconds from the deletion of all jobs to the reading of the memory.
    """

    jobs: int
    namespaces: int
    seconds: float
    settle: float


@dataclass
class Completions:
    """When each job was submitted and completed, on the monotonic clock."""

    submitted: dict[tuple[str, str], float] = field(default_factory=dict)
    completed: dict[tuple[str, str], float] = field(default_factory=dict)
    failure: str = ""

    def seconds(self) -> list[float]:
        """Time to Completed of each job."""
        return [at - self.submitted[key] for key, at in self.completed.items()]


class Measurement:
    """One operator with its namespaces, account and watches; `run` does it all."""

    def __init__(self, api: ApiServer, side: Side, size: Size, run: str, folder: Path) -> None:
        self._api, self._side, self._size = api, side, size
        self._run = f"{run}-{side.label}"
        self._home = f"{self._run}-operator"
        self._namespaces = [f"{self._run}-{number}" for number in range(size.namespaces)]
        self._folder = folder
        self._times = Completions()
        self._driver = LauncherDriver(api, side.needs)

    def run(self, processes: dict[str, int]) -> SideFigures:
        """Measure.

        Args:
            processes: Other processes whose CPU time is told.
        """
        for namespace in (self._home, *self._namespaces):
            self._api.make_namespace(namespace)
        try:
            accounts.install(self._api, self._home, self._run, self._side.install(self._api))
            kubeconfig = accounts.kubeconfig(self._api, self._home, self._run, self._folder)
            log = self._folder / f"{self._side.label}.log"
            pid = self._side.start(kubeconfig, self._home, self._namespaces, log)
            try:
                return self._measure(pid, processes)
            finally:
                self._side.stop()
                self._delete()
        finally:
            accounts.remove(self._api, self._run)
            for namespace in (self._home, *self._namespaces):
                self._api.remove_namespace(namespace)

    def _measure(self, pid: int, processes: dict[str, int]) -> SideFigures:
        pids = {"operator": pid, **processes}
        watches, audit = self._watch(), AuditLog.of_cluster()
        start, before, cpu = time.monotonic(), Memory.of(pid), CpuSample.take(pids)
        self._submit()
        self._await_all()
        seconds, used = max(self._times.completed.values()) - start, CpuSample.take(pids).since(cpu)
        cleaning, left = self._await_clean_up()
        requests = dict(audit.count(accounts.user(self._home, self._run))) if audit else None
        events, peak = self._events(), Memory.of(pid).peak
        for watch in watches:
            watch.stop()
        self._delete()
        time.sleep(self._size.settle)
        return SideFigures(
            name=self._side.name,
            jobs=self._size.jobs,
            seconds=seconds,
            completed=self._times.seconds(),
            cpu=used,
            rss_start=before.now,
            rss_peak=peak,
            rss_after=Memory.of(pid).now,
            cleaning=cleaning,
            left=left,
            requests=requests,
            events=events,
        )

    def _watch(self) -> list[Watch]:
        selector = f"{RUN}={self._run}"
        watches = [
            Watch("/api/v1/pods", selector, self._driver.on_pod).start(),
            Watch(f"/apis/{self._side.group}/{self._side.plural}", selector, self._on_job).start(),
        ]
        if self._side.needs.addresses:
            for namespace in self._namespaces:
                path = f"/api/v1/namespaces/{namespace}/configmaps"
                watches.append(Watch(path, names.LABEL_JOB, self._on_config_map).start())
        return watches

    def _on_job(self, _: str, job: Json) -> None:
        key = (job["metadata"]["namespace"], job["metadata"]["name"])
        try:
            if self._side.is_completed(job):
                self._times.completed.setdefault(key, time.monotonic())
        except RuntimeError as error:
            self._times.failure = str(error)

    def _on_config_map(self, _: str, item: Json) -> None:
        if (item.get("data") or {}).get(names.HOSTFILE):
            metadata = item["metadata"]
            self._driver.on_addresses(metadata["namespace"], metadata["labels"][names.LABEL_JOB])

    def _submit(self) -> None:
        keys = [
            (self._namespaces[number % len(self._namespaces)], f"job-{number}")
            for number in range(self._size.jobs)
        ]
        with ThreadPoolExecutor(SUBMITTERS) as pool:
            list(pool.map(self._submit_one, keys))

    def _submit_one(self, key: tuple[str, str]) -> None:
        namespace, name = key
        self._times.submitted[key] = time.monotonic()
        path = f"/apis/{self._side.group}/namespaces/{namespace}/{self._side.plural}"
        self._api.call("POST", path, self._side.body(name, self._run))

    def _await_all(self) -> None:
        deadline, told, start = time.monotonic() + self._size.seconds, 0.0, time.monotonic()
        while (done := len(self._times.completed)) < self._size.jobs:
            if self._times.failure:
                raise SystemExit(self._times.failure)
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{self._side.name}: {done} of {self._size.jobs} jobs completed within "
                    f"{self._size.seconds:.0f} s; {len(self._driver.failures)} launchers not started: "
                    f"{self._driver.failures[:3]}"
                )
            if time.monotonic() > told + 10:
                told = time.monotonic()
                print(f"{self._side.name}: {told - start:4.0f} s, {done} completed", file=sys.stderr)
            time.sleep(0.1)

    def _await_clean_up(self) -> tuple[float, int]:
        """Wait until all workers are deleted, as `cleanPodPolicy` says, or nothing more happens.

        Returns:
            Seconds to the last deletion, and how many workers stay.
        """
        start = last = time.monotonic()
        gone, workers = self._driver.cleaned(), self._size.jobs * self._side.needs.workers
        while gone < workers and time.monotonic() < last + IDLE_SECONDS:
            time.sleep(0.1)
            if (now := self._driver.cleaned()) > gone:
                gone, last = now, time.monotonic()
        return last - start, workers - gone

    def _events(self) -> int:
        found = 0
        for namespace in self._namespaces:
            items = self._api.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
            found += sum(item.get("count") or 1 for item in items if _source(item) == self._side.component)
        return found

    def _delete(self) -> None:
        """Delete the jobs and what they own, and wait until jobs and pods are gone."""
        jobs = f"/apis/{self._side.group}/namespaces/{{}}/{self._side.plural}"
        for path in (jobs, *CONTENT):
            for namespace in self._namespaces:
                query = f"propagationPolicy=Background&gracePeriodSeconds=0&fieldSelector={SPARED}"
                self._api.call("DELETE", f"{path.format(namespace)}?{query}")
        for path in (jobs, CONTENT[0]):
            for namespace in self._namespaces:
                wait_for(f"no {path.format(namespace)}", partial(self._is_empty, path.format(namespace)), 600)

    def _is_empty(self, path: str) -> bool | None:
        return not self._api.call("GET", f"{path}?limit=1")["items"] or None


def _source(event: Json) -> str | None:
    return (event.get("source") or {}).get("component")
