"""Nodes that exist in the API alone, and the kwok process that reports their pods' lives."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dgl_operator.runtime.cluster import NotFound
from tests.benchmarks.operator_bench import stages
from tests.benchmarks.operator_bench.bodies import NODE, RUN, Json
from tests.cluster import builds
from tests.cluster.places import Places
from tests.support.api_client import ApiServer
from tests.support.wait import wait_for

NODES = 4
PODS = 5000
"""Pods that one node takes."""
CIDR = "10.248.0.0/16"
"""Pod addresses; nothing listens there."""


def node(name: str, run: str) -> Json:
    """A node that only pods with the benchmark's toleration run on."""
    room = {"cpu": "10k", "memory": "10Ti", "ephemeral-storage": "10Ti", "pods": str(PODS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {NODE: "true", RUN: run, "type": "kwok"}},
        "spec": {"taints": [{"key": NODE, "value": "kwok", "effect": "NoSchedule"}]},
        "status": {
            "allocatable": room,
            "capacity": room,
            "addresses": [{"type": "InternalIP", "address": "10.247.0.1"}],
        },
    }


@contextmanager
def running(api: ApiServer, run: str, folder: Path) -> Iterator[int]:
    """Nodes and kwok for the time of the block, which gets kwok's process ID."""
    names = [f"{run}-node-{number}" for number in range(NODES)]
    with _kwok(run, folder) as pid:
        try:
            for name in names:
                api.call("POST", "/api/v1/nodes", node(name, run))
            for name in names:
                wait_for(f"{name} usable", lambda name=name: _is_usable(api, name), 60)  # type: ignore[misc]
            yield pid
        finally:
            for name in names:
                with contextlib.suppress(NotFound):
                    api.call("DELETE", f"/api/v1/nodes/{name}")


def program() -> Path:
    """Build kwok if it is not built yet; returns its path."""
    places = Places.here()
    builds.ensure(["kwok"], places)
    return builds.program("kwok", places)


@contextmanager
def _kwok(run: str, folder: Path) -> Iterator[int]:
    config, log = folder / "kwok.yaml", folder / "kwok.log"
    config.write_text(stages.config())
    argv = [
        *(str(program()), f"--kubeconfig={os.environ['KUBECONFIG']}", f"--config={config}"),
        *(f"--manage-nodes-with-label-selector={RUN}={run}", "--manage-all-nodes=false"),
        *(f"--cidr={CIDR}", "--node-ip=10.247.0.1", "--node-lease-duration-seconds=40", "--node-port=0"),
    ]
    with log.open("ab") as file:
        process = subprocess.Popen(argv, stdout=file, stderr=file)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)


def _is_usable(api: ApiServer, name: str) -> bool | None:
    found = api.call("GET", f"/api/v1/nodes/{name}")
    taints = {taint["key"] for taint in found["spec"].get("taints", ())}
    is_ready = any(each["status"] == "True" for each in found["status"].get("conditions", ()))
    return True if is_ready and taints == {NODE} else None
