"""A namespace whose pods the test plays: every job is brought to the phase that it is held in."""

import contextlib
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from dgl_operator.api.v1alpha1 import Phase
from dgl_operator.runtime.cluster import ClusterBusy, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from dglrun.contract.names import Mode
from tests.faults import kubelet
from tests.faults import nodes as played_nodes
from tests.faults.kubelet import Step
from tests.faults.nodes import Nodes
from tests.support.api_client import ApiServer

PAUSE = 0.1
THREADS = 8


@dataclass(frozen=True)
class Hold:
    """How far the pods of a job get.

    Attributes:
        until: The phase to which the pods of the attempts up to `attempt` bring the job.
        attempt: The last attempt that is held; pods of later ones bring the job to its end.
        untouched: Names or UIDs of pods that no kubelet looks at, except to take them.
        unbound: Names of pods that get no node.
        nodes: Names of nodes by the names of pods; others, and those whose node is lost, get the usual one.
    """

    mode: Mode = Mode.DGL_API
    until: Phase = Phase.COMPLETED
    attempt: int = 0
    untouched: frozenset[str] = frozenset()
    unbound: frozenset[str] = frozenset()
    nodes: Mapping[str, str] = field(default_factory=dict)

    def phase_of(self, pod: Json) -> Phase:
        """How far this pod gets."""
        return self.until if kubelet.attempt(pod) <= self.attempt else Phase.COMPLETED

    def next_step(self, pod: Json, pods: Sequence[Json]) -> Step | None:
        """What a node does with the pod under this hold."""
        metadata = pod["metadata"]
        step = kubelet.next_step(pod, pods, self.mode, self.phase_of(pod))
        if step is Step.BIND:
            return None if metadata["name"] in self.unbound else step
        is_kept = step in (Step.INIT, Step.RUN, Step.SUCCEED)
        return None if is_kept and {metadata["name"], metadata["uid"]} & self.untouched else step


class World:
    """The pods of one namespace, played until `stop`.

    Attributes:
        namespace: Its name.
        node: The usual node.
    """

    def __init__(self, api: ApiServer, namespace: str, nodes: Nodes, node: str) -> None:
        self.namespace, self.node = namespace, node
        self._api, self._nodes = api, nodes
        self._lock = threading.Lock()
        self._holds: dict[str, Hold] = {}
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._play, name="kubelets", daemon=True)

    def start(self) -> None:
        """Play from now on."""
        self._thread.start()

    def stop(self) -> None:
        """Play no longer.

        Raises:
            RuntimeError: the kubelets ended before.
        """
        self._stopped.set()
        self._thread.join(60)
        if self._error:
            raise RuntimeError("the played kubelets ended") from self._error

    def hold(self, job: str, hold: Hold) -> None:
        """Hold a job from now on."""
        with self._lock:
            self._holds[job] = hold

    def of(self, job: str) -> Hold:
        """How a job is held; one of which nothing was said gets to its end."""
        with self._lock:
            return self._holds.get(job, Hold())

    def settled(self, job: str, pod: str) -> Json | None:
        """The pod when its node has done with it all that is to be done, None before."""
        pods = self._api.list(Kind.POD, self.namespace, job)
        found = next((each for each in pods if each["metadata"]["name"] == pod), None)
        if found is None or self.of(job).next_step(found, pods):
            return None
        return found

    def _play(self) -> None:
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                while not self._stopped.is_set():
                    with contextlib.suppress(ClusterBusy):
                        list(pool.map(lambda due: self._take(*due), self._due()))
                    time.sleep(PAUSE)
        except BaseException as error:
            self._error = error

    def _due(self) -> list[tuple[Step, Json, str]]:
        by_job: dict[str, list[Json]] = defaultdict(list)
        for pod in self._api.list(Kind.POD, self.namespace):
            by_job[pod["metadata"]["labels"][names.LABEL_JOB]].append(pod)
        due = []
        for job, pods in by_job.items():
            hold = self.of(job)
            for pod in pods:
                step = hold.next_step(pod, pods)
                if step and self._is_heard_of(pod):
                    due.append((step, pod, self._node_for(hold, pod)))
        return due

    def _is_heard_of(self, pod: Json) -> bool:
        node = pod["spec"].get("nodeName")
        return node is None or self._nodes.is_alive(node)

    def _node_for(self, hold: Hold, pod: Json) -> str:
        own = hold.nodes.get(pod["metadata"]["name"], self.node)
        return own if self._nodes.is_alive(own) else self.node

    def _take(self, step: Step, pod: Json, node: str) -> None:
        """One step; what has changed or gone since then is seen at the next look."""
        metadata = pod["metadata"]
        path = Kind.POD.path(self.namespace, metadata["name"])
        with contextlib.suppress(Refused, ClusterBusy):
            if step is Step.BIND:
                target = {"apiVersion": "v1", "kind": "Node", "name": node}
                known = {"name": metadata["name"], "uid": metadata["uid"]}
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": known, "target": target}
                self._api.call("POST", f"{path}/binding", body)
            elif step is Step.REMOVE:
                only = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                self._api.call("DELETE", path, only)
            else:
                self.report(pod, kubelet.status_after(step, pod))

    def report(self, pod: Json, status: Json) -> None:
        """Write a pod's status as its kubelet does."""
        metadata = pod["metadata"]
        path = Kind.POD.path(self.namespace, metadata["name"]) + "/status"
        body = {"metadata": {"uid": metadata["uid"]}, "status": status}
        self._api.call("PATCH", path, body, "application/merge-patch+json")


@contextmanager
def running(api: ApiServer, prefix: str) -> Iterator[tuple[World, Nodes]]:
    """A namespace of its own with a node, played for the time of the block."""
    name = f"{prefix}-{uuid.uuid4().hex[:6]}"
    api.make_namespace(name)
    try:
        with played_nodes.running(api) as nodes:
            nodes.add(name)
            world = World(api, name, nodes, name)
            world.start()
            try:
                yield world, nodes
            finally:
                world.stop()
    finally:
        api.remove_namespace(name)
