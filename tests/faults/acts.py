"""How each fault is brought about on the API server."""

from collections.abc import Callable

from dgl_operator.api.v1alpha1 import Phase
from dgl_operator.runtime.cluster import Conflict
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract.names import Role
from tests.faults import kubelet
from tests.faults.cells import Cell, Fault
from tests.faults.kubelet import FIRST_WATCHER, PREPARE, Step, now
from tests.faults.nodes import Nodes
from tests.faults.world import World
from tests.support.api_client import ApiServer
from tests.support.jobs import ended, waiting
from tests.support.played_job import reported
from tests.support.wait import wait_for

EXIT_CODE, OOM_CODE = 7, 137
LIMIT = 2
"""`startDeadlineSeconds` once a pod cannot start; until then the job has the usual half an hour."""
_MERGE = "application/merge-patch+json"


class Acts:
    """Faults on the pods of a world."""

    def __init__(self, api: ApiServer, world: World, nodes: Nodes) -> None:
        self._api, self._world, self._nodes = api, world, nodes

    def meet(self, cell: Cell, job: str, pod: Json) -> None:
        """Let the pod of a cell meet its fault."""
        acts: dict[Fault, Callable[[Cell, str, Json], None]] = {
            Fault.EXIT: self._exit,
            Fault.OOM: self._exit,
            Fault.INIT: self._init_fails,
            Fault.DELETED: self._delete,
            Fault.EVICTED: self._evict,
            Fault.REJECTED: self._reject,
            Fault.NODE_LOST: self._lose_node,
            Fault.IMAGE: self._no_image,
            Fault.UNSCHEDULABLE: self._no_node,
        }
        acts[cell.fault](cell, job, pod)

    def _exit(self, cell: Cell, job: str, pod: Json) -> None:
        if not any("running" in each["state"] for each in pod["status"].get("containerStatuses") or ()):
            self._world.report(pod, kubelet.status_after(Step.RUN, pod))
        is_oom = cell.fault is Fault.OOM
        end = ended(code=OOM_CODE, reason="OOMKilled", at=now()) if is_oom else _exited()
        self._fail(pod, [end], [ended(PREPARE, at=now())])

    def _init_fails(self, cell: Cell, job: str, pod: Json) -> None:
        name = FIRST_WATCHER if cell.role is Role.LAUNCHER else PREPARE
        self._fail(pod, [waiting()], [ended(name, code=EXIT_CODE, message="told to fail", at=now())])

    def _fail(self, pod: Json, containers: list[Json], init: list[Json]) -> None:
        address = pod["status"].get("podIP")
        self._world.report(pod, reported("Failed", ip=address, containers=containers, init=init))

    def _delete(self, cell: Cell, job: str, pod: Json) -> None:
        self._api.call("DELETE", self._path(pod))

    def _evict(self, cell: Cell, job: str, pod: Json) -> None:
        """As a drain does; the status that an eviction notes may have to be written anew."""
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}

        def post() -> bool | None:
            try:
                self._api.call("POST", f"{self._path(pod)}/eviction", body)
            except Conflict:
                return None
            return True

        wait_for(f"the eviction of {metadata['name']}", post)

    def _reject(self, cell: Cell, job: str, pod: Json) -> None:
        words = "Node didn't have enough resource: cpu"
        self._world.report(pod, reported("Failed", containers=[], reason="OutOfcpu", message=words))

    def _lose_node(self, cell: Cell, job: str, pod: Json) -> None:
        self._nodes.lose(pod["spec"]["nodeName"])

    def _no_image(self, cell: Cell, job: str, pod: Json) -> None:
        """The first image of the pod; of a launcher whose init containers have ended that of its main one."""
        cannot = {"reason": "ImagePullBackOff", "message": "no such image"}
        is_main = cell.role is Role.LAUNCHER and cell.phase is Phase.PARTITIONED
        if is_main:
            init, main = [ended(FIRST_WATCHER, at=now())], [waiting(**cannot)]
        else:
            init, main = [waiting(PREPARE, **cannot)], [waiting()]
        self._world.report(pod, reported("Pending", containers=main, init=init))
        self._set_limit(job)

    def _no_node(self, cell: Cell, job: str, pod: Json) -> None:
        status = reported("Pending", containers=[])
        unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        status["conditions"] = [{**unscheduled, "message": "0/9 nodes are available"}]
        self._world.report(pod, status)
        self._set_limit(job)

    def _set_limit(self, job: str) -> None:
        body = {"spec": {"runPolicy": {"startDeadlineSeconds": LIMIT}}}
        self._api.call("PATCH", Kind.JOB.path(self._world.namespace, job), body, _MERGE)

    def _path(self, pod: Json) -> str:
        return Kind.POD.path(self._world.namespace, pod["metadata"]["name"])


def _exited() -> Json:
    return ended(code=EXIT_CODE, message="told to fail", at=now())
