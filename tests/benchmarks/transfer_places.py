"""Where the benchmark `transfer` runs: pods of a cluster, or folders of this machine without one."""

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl, binary
from tests.support.dglrun_pods import KUBECTL, ROOT
from tests.support.wait import wait_for

PEER = Path(__file__).with_name("transfer_peer.py")
NAMESPACE = "bench-transfer"
PODS = ("bench-partitioner", "bench-launcher", "bench-worker-0", "bench-worker-1")
CONTAINER = "main"


class Ground(ABC):
    """Pods with a folder each, and with kubectl.

    Attributes:
        folder: Where each pod keeps its files.
        peer: Where `transfer_peer.py` lies there.
        python: The interpreter there.
        kubectl: The kubectl there.
        namespace: Of the pods.
        has_api_server: Whether kubectl copies through an API server.
    """

    folder: str
    peer: str
    python: str
    kubectl: str
    namespace: str
    has_api_server: bool

    @abstractmethod
    def start(self, pod: str, *argv: str) -> "subprocess.Popen[str]":
        """Start a command in a pod, with pipes."""

    @abstractmethod
    def ip(self, pod: str) -> str:
        """A pod's address."""

    @abstractmethod
    def close(self) -> None:
        """Remove all pods."""

    def run(self, pod: str, *argv: str, stdin: str = "") -> str:
        """Run a command in a pod; returns its output.

        Raises:
            RuntimeError: it failed.
        """
        with self.start(pod, *argv) as process:
            out, _ = process.communicate(stdin)
        if process.returncode != 0:
            raise RuntimeError(f"{pod}: {' '.join(argv)[:200]}: exit {process.returncode}\n{out}")
        return out


class Local(Ground):
    """Folders of this machine, where kubectl runs commands in place: no cluster, no API server."""

    has_api_server = False

    def __init__(self, root: Path) -> None:
        self._root = root
        for pod in PODS:
            (root / pod).mkdir(parents=True)
        (root / "kubectl").write_text(KUBECTL)
        (root / "kubectl").chmod(0o755)
        self.folder, self.peer, self.python = "data", str(PEER), sys.executable
        self.kubectl, self.namespace = str(root / "kubectl"), "none"

    def start(self, pod: str, *argv: str) -> "subprocess.Popen[str]":
        """As above."""
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return _popen(argv, cwd=self._root / pod, env=env)

    def ip(self, _pod: str) -> str:
        """As above."""
        return "127.0.0.1"

    def close(self) -> None:
        """As above."""
        shutil.rmtree(self._root)


class Cluster(Ground):
    """Pods of the job image, whose account may exec into the others, with the kubectl of this machine."""

    has_api_server = True

    def __init__(self) -> None:
        self._kubectl = Kubectl(NAMESPACE)
        self.folder, self.peer, self.python = "/data", "/data/transfer_peer.py", "python3"
        self.kubectl, self.namespace = "/data/kubectl", NAMESPACE
        self.close()
        self._kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        self._kubectl.apply(*_account(), *(_pod(name) for name in PODS))
        self._kubectl.run("wait", "--for=condition=Ready", "--timeout=300s", *(f"pod/{pod}" for pod in PODS))
        for pod in PODS:
            with PEER.open("rb") as text:
                self._put(pod, text, self.peer)
        for pod in PODS[:2]:
            with Path(binary("kubectl")).open("rb") as program:
                self._put(pod, program, self.kubectl)

    def start(self, pod: str, *argv: str) -> "subprocess.Popen[str]":
        """As above."""
        return _popen((binary("kubectl"), "-n", NAMESPACE, "exec", "-i", pod, "--", *argv))

    def ip(self, pod: str) -> str:
        """As above."""
        return str((self._kubectl.get("pod", pod) or {})["status"]["podIP"])

    def close(self) -> None:
        """As above."""
        self._kubectl.run("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=300s")

    def _put(self, pod: str, content: IO[bytes], path: str) -> None:
        """Write a file in a pod, which may be run."""
        write = ("sh", "-c", 'cat >"$1" && chmod 0755 "$1"', "sh", path)
        argv = (binary("kubectl"), "-n", NAMESPACE, "exec", "-i", pod, "--", *write)
        wait_for(f"{path} on {pod}", lambda: _succeeds(argv, content))


def _succeeds(argv: Sequence[str], content: IO[bytes]) -> bool:
    content.seek(0)
    return subprocess.run(argv, stdin=content, check=False).returncode == 0


def _popen(
    argv: Sequence[str], cwd: Path | None = None, env: dict[str, str] | None = None
) -> "subprocess.Popen[str]":
    pipe = subprocess.PIPE
    return subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True
    )


def _pod(name: str) -> dict[str, object]:
    container = {
        "name": CONTAINER,
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
        "serviceAccountName": NAMESPACE,
        "terminationGracePeriodSeconds": 0,
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _account() -> list[dict[str, object]]:
    """An account that may read pods and exec into them, in this namespace."""
    named, rbac = {"name": NAMESPACE}, "rbac.authorization.k8s.io"
    rules = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]},
    ]
    subject = {"kind": "ServiceAccount", "name": NAMESPACE, "namespace": NAMESPACE}
    role = {"apiGroup": rbac, "kind": "Role", "name": NAMESPACE}
    api = f"{rbac}/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": named},
        {"apiVersion": api, "kind": "Role", "metadata": named, "rules": rules},
        {"apiVersion": api, "kind": "RoleBinding", "metadata": named, "roleRef": role, "subjects": [subject]},
    ]


def as_line(value: object) -> str:
    """A line of JSON."""
    return json.dumps(value) + "\n"
