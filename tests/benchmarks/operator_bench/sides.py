"""The two operators under test: how each is installed, started and stopped, and what its jobs look like."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import yaml

from dgl_operator.api import rbac
from dglrun.contract import names
from tests.benchmarks.operator_bench import bodies
from tests.benchmarks.operator_bench.bodies import Json
from tests.benchmarks.operator_bench.launcher_driver import Needs
from tests.support.api_client import ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.wait import wait_for

MANY = "10000"
"""Requests a second that the peer may send: its client's own limit shall not count."""
THREADS = "16"
"""The peer's workers; its default is 2."""


class Side(Protocol):
    """One operator.

    Attributes:
        name: As the tables call it.
        label: A short name for namespaces and accounts.
        group: API group and version of its jobs.
        plural: Their plural.
        needs: What its launchers wait for.
        component: Source of its Events.
    """

    name: str
    label: str
    group: str
    plural: str
    needs: Needs
    component: str

    def body(self, name: str, run: str) -> Json:
        """A job."""

    def is_completed(self, job: Json) -> bool:
        """Whether the job has succeeded.

        Raises:
            RuntimeError: it has failed.
        """

    def install(self, api: ApiServer) -> list[Json]:
        """Install the CRD; returns the RBAC rules of the operator's account."""

    def start(self, kubeconfig: Path, home: str, namespaces: Sequence[str], log: Path) -> int:
        """Start it and wait until it works; returns its process ID."""

    def stop(self) -> None:
        """End it."""


class DglOperator:
    """Ours, from this checkout, for the benchmark's namespaces."""

    name = "DGL Operator"
    label = "dgl"
    group = f"{names.GROUP}/{names.VERSION}"
    plural = names.PLURAL
    needs = Needs(workers=2, partitioner=True, addresses=True)
    component = "dgl-operator"

    def __init__(self, flags: Sequence[str] = ()) -> None:
        self._flags = flags

    def body(self, name: str, run: str) -> Json:
        """A DGLJob."""
        return bodies.dgl_job(name, run)

    def is_completed(self, job: Json) -> bool:
        """By its phase."""
        status = job.get("status") or {}
        if status.get("phase") == "Failed":
            raise RuntimeError(f"job {job['metadata']['name']} Failed: {status.get('message')}")
        return status.get("phase") == "Completed"

    def install(self, api: ApiServer) -> list[Json]:
        """The CRD and the rules of this checkout."""
        api.install_crd()
        return [rule.manifest() for rule in rbac.RULES]

    def start(self, kubeconfig: Path, home: str, namespaces: Sequence[str], log: Path) -> int:
        """The operator's process as the integration tests start it."""
        more = [word for namespace in namespaces[1:] for word in ("--namespace", namespace)]
        self._process = OperatorProcess(kubeconfig, namespaces[0], log, *more, *self._flags)
        self._process.wait_ready().wait_idle()
        return self._process.pid

    def stop(self) -> None:
        """As the kubelet does."""
        self._process.stop()


class MpiOperator:
    """The peer: a binary and its manifests; watches all namespaces, as it takes no list of them."""

    name = "mpi-operator"
    label = "mpi"
    group = "kubeflow.org/v2beta1"
    plural = "mpijobs"
    needs = Needs(workers=3)
    component = "mpi-job-controller"

    def __init__(self, program: Path, manifests: Path) -> None:
        self._program = program
        self._manifests = manifests

    def body(self, name: str, run: str) -> Json:
        """An MPIJob."""
        return bodies.mpi_job(name, run)

    def is_completed(self, job: Json) -> bool:
        """By its condition."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        true = {each["type"]: each.get("message") for each in conditions if each["status"] == "True"}
        if "Failed" in true:
            raise RuntimeError(f"job {job['metadata']['name']} Failed: {true['Failed']}")
        return "Succeeded" in true

    def install(self, api: ApiServer) -> list[Json]:
        """The CRD and the rules of its manifests."""
        crd = yaml.safe_load((self._manifests / "kubeflow.org_mpijobs.yaml").read_text())
        api.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{crd['metadata']['name']}"
        wait_for("MPIJob served", lambda: _is_established(api, path))
        documents = yaml.safe_load_all((self._manifests / "cluster-role.yaml").read_text())
        role = next(each for each in documents if each["metadata"]["name"] == "mpi-operator")
        return list(role["rules"])

    def start(self, kubeconfig: Path, home: str, namespaces: Sequence[str], log: Path) -> int:
        """With limits that do not bind and many threads; elected at once, since nobody else asks."""
        flags = ("--kube-api-qps", MANY, "--kube-api-burst", MANY, "--threadiness", THREADS)
        queue = ("--controller-queue-rate-limit", MANY, "--controller-queue-burst", MANY)
        argv = (str(self._program), "--lock-namespace", home, *flags, *queue)
        with log.open("ab") as file:
            env = {**os.environ, "KUBECONFIG": str(kubeconfig)}
            self._process = subprocess.Popen(argv, env=env, stdout=file, stderr=file)
        wait_for("mpi-operator working", lambda: self._is_working(log), 60)
        return self._process.pid

    def stop(self) -> None:
        """As the kubelet does."""
        self._process.terminate()
        self._process.wait(30)

    def _is_working(self, log: Path) -> bool | None:
        if self._process.poll() is not None:
            raise RuntimeError(f"mpi-operator ended with {self._process.returncode}:\n{log.read_text()}")
        return True if "Started workers" in log.read_text() else None


def _is_established(api: ApiServer, path: str) -> bool | None:
    conditions = api.call("GET", path).get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions) or None
