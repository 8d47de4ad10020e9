"""A run: jobs under way, an operator that is killed so many times, a verdict."""

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.images import IMAGE
from tests.cluster.other import pulled
from tests.faults import world
from tests.faults.matrix import HOME
from tests.faults.world import World
from tests.kills import stories
from tests.kills.ledger import Ledger, Slot
from tests.kills.stories import Course
from tests.support.api_client import ACCOUNT, ApiServer
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]
SHARE = 0.2
"""Of the writes of an operator: so many are its last."""
AT_ONCE = 8
"""Jobs under way."""


class Lives:
    """The process of tests.kills.lives."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, kills: int, seed: int) -> None:
        self.log = folder / "operator.log"
        self._deaths = folder / "deaths"
        self._deaths.touch()
        flags = [
            *("--namespace", namespace, "--log-format", "plain"),
            *(f"--{name}-image={pulled(IMAGE[name].tag)}" for name in ("watcher-loop", "kubectl-download")),
            *("--health-probe-bind-address", ":0", "--metrics-bind-address", ":0"),
        ]
        argv = [sys.executable, "-m", "tests.kills.lives", str(kills), str(seed), str(SHARE), "--", *flags]
        path = os.pathsep.join([str(ROOT / "operator"), str(ROOT)])
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": path}
        with self.log.open("ab") as errors, self._deaths.open("ab") as deaths:
            self._process = subprocess.Popen(argv, env=environment, stdout=deaths, stderr=errors)

    def deaths(self) -> list[str]:
        """What was written last in each life that was ended, as `METHOD kind`."""
        lines = self._deaths.read_text().splitlines()
        return [_kind(line.removeprefix("killed after ")) for line in lines if line.startswith("killed")]

    def check(self) -> None:
        """Raise an error if a life ended by itself."""
        code = self._process.poll()
        assert code is None, f"the operator's lives ended with {code}:\n{self.log.read_text()[-4000:]}"

    def stop(self) -> int:
        """End the life under way; returns the exit code."""
        self._process.terminate()
        return self._process.wait(60)


def _kind(write: str) -> str:
    """`POST pods` of `POST /api/v1/namespaces/x/pods`."""
    method, path = write.split(" ", 1)
    parts = path.split("/namespaces/")[-1].split("/")
    return f"{method} {parts[1]}{'/status' if parts[-1] == 'status' else ''}"


class Run:
    """Jobs of many stories until the kills are done, and their ends."""

    def __init__(self, api: ApiServer, played: World, lives: Lives, kills: int, seed: int) -> None:
        self._api, self._world, self._lives, self._kills = api, played, lives, kills
        self._rng = random.Random(seed)  # noqa: S311 - a seed repeats a run
        self._ledger = Ledger(api, played.namespace)
        self._lock = threading.Lock()
        self.told: Counter[str] = Counter()
        self.findings: list[str] = []

    def play(self) -> None:
        """Keep jobs under way until the last kill, then let them get to their ends."""
        names = self._names()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            under_way: set[Future[None]] = set()
            while len(self._lives.deaths()) < self._kills:
                self._lives.check()
                while len(under_way) < AT_ONCE:
                    under_way.add(pool.submit(self._one, *next(names)))
                under_way = wait(under_way, 0.5, FIRST_COMPLETED).not_done
        self._lives.check()

    def settle(self) -> None:
        """Wait until nothing is left, and look at all pods that there ever were."""
        try:
            wait_for("the end of all objects", self._is_empty, stories.PATIENCE)
        except TimeoutError as late:
            left = ", ".join(f"{kind} {name}" for kind, name in self._api.everything(self._world.namespace))
            self.findings.append(f"{late}: {left}")
        self._ledger.check()
        self.findings += self._ledger.made.twice(may_be_made_again)

    def result(self, seconds: float) -> "Result":
        """What was played and found."""
        made, deaths = len(self._ledger.made), Counter(self._lives.deaths())
        return Result(seconds, made, dict(self.told), dict(deaths), tuple(self.findings))

    def _names(self) -> Iterator[tuple[str, str]]:
        """Story and name of the next job: each story once, then by chance."""
        number = 0
        while True:
            order = sorted(stories.STORIES)
            story = order[number] if number < len(order) else stories.drawn(self._rng)
            yield story, f"{story}-{number}"
            number += 1

    def _one(self, story: str, name: str) -> None:
        found = finding(lambda: Course(self._api, self._world, name, stories.STORIES[story]).run())
        if found:
            print(f"{name}: {found}", flush=True)
        with self._lock:
            self.findings += [f"{name}: {found}"] if found else []
            self.told[story] += 1

    def _is_empty(self) -> bool:
        return not self._api.everything(self._world.namespace)


@dataclass(frozen=True)
class Result:
    """What a run has played and found.

    Attributes:
        seconds: That it took.
        pods: That were made.
        jobs: Their number by story.
        deaths: Kills by the operator's last write.
        findings: What was not as it must be.
    """

    seconds: float
    pods: int
    jobs: Mapping[str, int]
    deaths: Mapping[str, int]
    findings: tuple[str, ...]

    def __str__(self) -> str:
        """Return the lines for a terminal."""
        deaths = Counter(self.deaths).most_common()
        return "\n".join(
            [
                f"{sum(self.deaths.values())} kills, {sum(self.jobs.values())} jobs, {self.pods} pods, "
                f"{self.seconds:.0f} s",
                "jobs: " + ", ".join(f"{name} {count}" for name, count in sorted(self.jobs.items())),
                "killed after: " + ", ".join(f"{write} {count}" for write, count in deaths),
                *(["FINDINGS", *self.findings] if self.findings else ["nothing lost, doubled or left"]),
            ]
        )

    def rows(self) -> list[list[str]]:
        """The table of docs/reference/figures.md."""
        deaths = Counter(self.deaths).most_common()
        return [
            ["kills", str(sum(self.deaths.values()))],
            *([f"kills after `{write}`", str(count)] for write, count in deaths),
            ["jobs", str(sum(self.jobs.values()))],
            *([f"jobs, {name}", str(count)] for name, count in sorted(self.jobs.items())),
            ["pods", str(self.pods)],
            ["objects lost, doubled or left, and jobs at a wrong end", str(len(self.findings))],
            ["time", f"{self.seconds:.0f} s"],
        ]


def finding(play: Callable[[], None]) -> str:
    """Play, and say what was not as it must be, "" when all was.

    Any exception is a finding: one that the thread of a pool raises is read by nobody.
    """
    try:
        play()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def may_be_made_again(slot: Slot) -> bool:
    """Whether the story of the pod's job deletes it before it has work."""
    job, _attempt, pod = slot
    return job.rsplit("-", 1)[0] in stories.REPLACING and pod.endswith("-launcher")


@contextmanager
def prepared(api: ApiServer, folder: Path, kills: int, seed: int) -> Iterator[Run]:
    """A namespace, nodes and an operator for the time of the block."""
    with world.running(api, "kills") as (played, _nodes):
        lives = Lives(api.kubeconfig(HOME, ACCOUNT, folder), played.namespace, folder, kills, seed)
        try:
            yield Run(api, played, lives, kills, seed)
        finally:
            lives.stop()


def kills(number: int, seed: int, *, log: Path | None = None) -> Result:
    """Play on the cluster of KUBECONFIG."""
    api, begun = ApiServer(), time.monotonic()
    api.install_crd()
    api.install_account(HOME)
    with tempfile.TemporaryDirectory() as temporary:
        folder = log or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        with prepared(api, folder, number, seed) as run:
            run.play()
            run.settle()
            result = run.result(time.monotonic() - begun)
            print(result, flush=True)
            return result
