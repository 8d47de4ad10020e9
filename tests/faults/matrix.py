"""All cells of the matrix, many at a time: each a job of its own that one fault meets."""

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from dgl_operator.api.v1alpha1 import Phase
from dgl_operator.runtime.cluster import ClusterBusy, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from dglrun.contract.names import Role
from tests.faults import world
from tests.faults.acts import Acts
from tests.faults.cells import AT_START, Cell, End, Fault
from tests.faults.nodes import TOLERATIONS, Nodes
from tests.faults.world import Hold, World
from tests.support.api_client import ACCOUNT, ApiServer
from tests.support.jobs import a_template
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, a_played_job
from tests.support.wait import wait_for

HOME = "dgl-operator-under-test"
LIMIT = 30.0
"""Seconds from the fault to the terminal state, or to the attempt or pod that makes it good."""
FORCED = 150.0
"""The same of a pod without work whose node is lost: its name is free a minute after its grace period."""
PATIENCE = 240.0
"""Seconds in which what follows gets to its end: waits between attempts and for lost nodes are in it."""
AT_A_TIME = 16
GRACE = 5
"""Seconds that pods are given to end."""


@dataclass(frozen=True)
class Outcome:
    """What became of the job of a cell.

    Attributes:
        problem: What was not as it must be, "" when all was.
        seconds: From the fault to what it led to.
    """

    cell: Cell
    problem: str
    seconds: float


class Matrix:
    """A namespace with an operator, in which cells are played."""

    def __init__(self, api: ApiServer, played: World, nodes: Nodes) -> None:
        self._api, self._world, self._nodes = api, played, nodes
        self._acts = Acts(api, played, nodes)

    def run(self, cells: Sequence[Cell]) -> list[Outcome]:
        """Play the cells, those that take longest first; returns them in the order given."""
        order = sorted(cells, key=lambda cell: cell.fault is not Fault.NODE_LOST)
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            found = dict(zip(order, pool.map(self._outcome, order), strict=True))
        return [found[cell] for cell in cells]

    def await_nothing(self) -> None:
        """Wait until no object of any job is left."""
        wait_for(
            "the end of all objects",
            lambda: True if not self._api.everything(self._world.namespace) else None,
            PATIENCE,
        )

    def _outcome(self, cell: Cell) -> Outcome:
        name = f"f-{uuid.uuid4().hex[:5]}-{cell.name}"[:50]
        try:
            seconds, problem = self._play(cell, name), ""
        except (AssertionError, TimeoutError, ClusterBusy, Refused) as error:
            seconds, problem = 0.0, str(error) or type(error).__name__
        print(f"{cell.name}: {problem or cell.expected} ({seconds:.1f} s)", flush=True)
        return Outcome(cell, problem, seconds)

    def _play(self, cell: Cell, name: str) -> float:
        hold = self._hold(cell, name)
        self._world.hold(name, hold)
        job = PlayedJob(self._api, self._world.namespace, a_job(cell, name))
        try:
            job.await_phase(cell.phase.value, PATIENCE)
            victim = wait_for("the pod", lambda: self._world.settled(name, f"{name}-{cell.victim}"), PATIENCE)
            uid = victim["metadata"]["uid"]
            if cell.replaces:
                self._say_that_it_goes_on(job)
            if cell.fault not in (Fault.DELETED, Fault.EVICTED, Fault.NODE_LOST):
                hold = replace(hold, untouched=frozenset({uid}))
            self._world.hold(name, hold)
            self._acts.meet(cell, name, victim)
            since = time.monotonic()
            self._await_reaction(cell, job, hold, uid)
            took = time.monotonic() - since
            self._await_end(cell, job)
            return took
        finally:
            self._world.hold(name, Hold(cell.mode))
            job.delete()

    def _say_that_it_goes_on(self, job: PlayedJob) -> None:
        """What a launcher reports while it trains."""
        said = {"data": {"progress.json": json.dumps({"stage": "Training", "replaces": True})}}
        path = Kind.CONFIG_MAP.path(job.namespace, names.report(job.name))
        self._api.call("PATCH", path, said, "application/merge-patch+json")
        wait_for(
            "the report in the status", lambda: (job.status.get("progress") or {}).get("replaces"), LIMIT
        )

    def _hold(self, cell: Cell, name: str) -> Hold:
        pod = f"{name}-{cell.victim}"
        is_main_image = cell.role is Role.LAUNCHER and cell.phase is Phase.PARTITIONED
        is_new = cell.fault in AT_START and not is_main_image
        lost: dict[str, str] = {}
        if cell.fault is Fault.NODE_LOST:
            lost[pod] = f"{name}-node"
            self._nodes.add(lost[pod])
        return Hold(
            cell.mode,
            cell.phase,
            untouched=frozenset({pod} if is_new else ()),
            unbound=frozenset({pod} if cell.fault is Fault.UNSCHEDULABLE else ()),
            nodes=lost,
        )

    def _await_reaction(self, cell: Cell, job: PlayedJob, hold: Hold, uid: str) -> None:
        end, path = cell.expected.end, f"{job.name}-{cell.victim}"
        if end is End.FAILED:
            job.await_phase("Failed", LIMIT)
        elif end is End.RETRIED:
            _wait(job, "another attempt", lambda: job.status.get("attempt"), LIMIT)
        elif end is End.REPLACED:
            limit = FORCED if cell.fault is Fault.NODE_LOST else LIMIT
            _wait(job, "another pod", lambda: self._uid(path) not in (None, uid), limit)
        else:
            _wait(job, "the pod's end", lambda: self._uid(path) is None, LIMIT)
        if end in (End.REPLACED, End.UNDISTURBED):
            self._world.hold(job.name, replace(hold, until=Phase.COMPLETED))

    def _uid(self, pod: str) -> str | None:
        found = self._api.get(Kind.POD, self._world.namespace, pod)
        return str(found["metadata"]["uid"]) if found else None

    def _await_end(self, cell: Cell, job: PlayedJob) -> None:
        wanted = cell.expected
        phase = "Failed" if wanted.end is End.FAILED else "Completed"
        status = job.await_phase(phase, PATIENCE)
        assert restarts(status) == _due_restarts(cell), f"restarts: {restarts(status)}"
        if wanted.end is End.FAILED:
            failed = job.condition("Failed")
            assert failed["reason"] == wanted.reason, f"reason: {failed['reason']}"
            assert f"{job.name}-{cell.victim}" in failed["message"], failed["message"]
        elif wanted.reason:
            told = status["attempts"][0]["reason"]
            assert told == wanted.reason, f"reason: {told}"


def restarts(status: Json) -> dict[str, int]:
    """The attempts beyond the first by their cause, pods that were replaced within one left out."""
    return {key: count for key, count in (status.get("restarts") or {}).items() if count and key != "pods"}


def _due_restarts(cell: Cell) -> dict[str, int]:
    if cell.expected.end is not End.RETRIED:
        return {"workers": 1} if cell.replaces and cell.expected.end is End.REPLACED else {}
    return {"failures" if cell.expected.is_counted else "disruptions": 1}


def _wait(job: PlayedJob, what: str, look: Callable[[], object], seconds: float) -> None:
    """Wait for what does not end the job."""

    def is_there() -> bool:
        status = job.status
        words = f"{status.get('phase')} instead of {what}: {status.get('message')}"
        assert status.get("phase") not in ("Completed", "Failed"), words
        return bool(look())

    wait_for(f"{what} of {job.name}", is_there, seconds)


def a_job(cell: Cell, name: str) -> Json:
    """The job of a cell: two workers, and pods that stand the taint of the played nodes."""
    partitioner = a_template() if cell.mode.has_partitioner else None
    policy = {"backoffLimit": cell.backoff_limit}
    body = a_played_job(name, mode=cell.mode, partitioner=partitioner, runPolicy=policy)
    return on_played_nodes(body)


def on_played_nodes(body: Json) -> Json:
    """Let a job's pods run on nodes that are lost in no time."""
    for role in body["spec"]["dglReplicaSpecs"].values():
        role["template"]["spec"] |= {"tolerations": TOLERATIONS, "terminationGracePeriodSeconds": GRACE}
    return body


@contextmanager
def prepared(api: ApiServer, folder: Path) -> Iterator[Matrix]:
    """A namespace, nodes and an operator for the time of the block."""
    with world.running(api, "faults") as (played, nodes):
        kubeconfig = api.kubeconfig(HOME, ACCOUNT, folder)
        operator = OperatorProcess(kubeconfig, played.namespace, folder / "operator.log")
        try:
            operator.wait_ready()
            yield Matrix(api, played, nodes)
            assert operator.is_running, f"the operator ended: {operator.log.read_text()[-4000:]}"
            assert operator.errors() == 0, f"failed looks: {operator.log.read_text()[-4000:]}"
        finally:
            if operator.is_running:
                operator.stop()


def all_of(cells: Sequence[Cell]) -> list[Outcome]:
    """Play cells on the cluster of KUBECONFIG, and wait until nothing of them is left."""
    api = ApiServer()
    api.install_crd()
    api.install_account(HOME)
    with tempfile.TemporaryDirectory() as folder, prepared(api, Path(folder)) as matrix:
        found = matrix.run(cells)
        matrix.await_nothing()
        return found
