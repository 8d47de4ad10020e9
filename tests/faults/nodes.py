"""Nodes that are nothing but objects: the test renews their leases, and lets some be lost."""

import contextlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from dgl_operator.runtime.cluster import ClusterBusy, Conflict, NotFound
from dgl_operator.runtime.kinds import Json
from tests.support.api_client import ApiServer
from tests.support.wait import wait_for

TAINT = "faults.dgl-operator/played"
"""Keeps all pods but those that the test binds away."""
UNREACHABLE = "node.kubernetes.io/unreachable"
TOLERATIONS = [
    {"key": TAINT, "operator": "Exists"},
    {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0},
]
"""A pod of a lost node is deleted at once, and not after the five minutes that are the default."""
RENEWAL = 5.0
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MERGE = "application/merge-patch+json"


class Nodes:
    """Nodes by name, kept alive until they are lost."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._alive: set[str] = set()
        self._all: set[str] = set()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="leases", daemon=True)

    def add(self, name: str) -> None:
        """Make a node that is Ready."""
        self._api.call("POST", "/api/v1/nodes", _node(name))
        self._api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": _status("True")}, _MERGE)
        self._api.call("POST", LEASES, _lease(name))
        with self._lock:
            self._alive.add(name)
            self._all.add(name)

    def lose(self, name: str) -> None:
        """Say of a node what the control plane says of one that it has not heard of for long enough."""
        with self._lock:
            self._alive.discard(name)
        self._api.call("PATCH", f"/api/v1/nodes/{name}/status", {"status": _status("Unknown")}, _MERGE)
        wait_for(f"the taint of {name}", lambda: self._taint(name))

    def is_alive(self, name: str) -> bool:
        """Whether its kubelet reports its pods."""
        with self._lock:
            return name in self._alive

    def start(self) -> None:
        """Renew the leases from now on."""
        self._thread.start()

    def remove(self) -> None:
        """Delete all nodes."""
        self._stopped.set()
        self._thread.join(30)
        for name in self._all:
            for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
                with contextlib.suppress(NotFound):
                    self._api.call("DELETE", path)

    def _taint(self, name: str) -> Json | None:
        """As the node controller does, which takes one node in ten seconds; it may write at the same time."""
        node = self._api.call("GET", f"/api/v1/nodes/{name}")
        taints = node["spec"].get("taints", [])
        if any((each["key"], each["effect"]) == (UNREACHABLE, "NoExecute") for each in taints):
            return node
        taint = {"key": UNREACHABLE, "effect": "NoExecute", "timeAdded": _time()}
        body = {
            "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
            "spec": {"taints": [*taints, taint]},
        }
        with contextlib.suppress(ClusterBusy, Conflict):
            self._api.call("PATCH", f"/api/v1/nodes/{name}", body, _MERGE)
        return None

    def _keep(self) -> None:
        while not self._stopped.wait(RENEWAL):
            with self._lock:
                alive = sorted(self._alive)
            for name in alive:
                with contextlib.suppress(ClusterBusy):
                    self._api.call("PATCH", f"{LEASES}/{name}", {"spec": {"renewTime": _micro()}}, _MERGE)


@contextmanager
def running(api: ApiServer) -> Iterator[Nodes]:
    """Nodes for the time of the block."""
    nodes = Nodes(api)
    nodes.start()
    try:
        yield nodes
    finally:
        nodes.remove()


def _node(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [{"key": TAINT, "effect": "NoSchedule"}]},
    }


def _status(ready: str) -> Json:
    room = {"cpu": "10k", "memory": "10Ti", "pods": "5000"}
    condition = {
        "type": "Ready",
        "status": ready,
        "reason": "Played",
        "message": "",
        "lastTransitionTime": _time(),
    }
    return {
        "allocatable": room,
        "capacity": room,
        "conditions": [{**condition, "lastHeartbeatTime": _time()}],
    }


def _lease(name: str) -> Json:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _micro()},
    }


def _time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
