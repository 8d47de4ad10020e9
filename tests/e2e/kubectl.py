"""kubectl as the tests use it: argv lists, JSON in and out, waits with deadlines."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

T = TypeVar("T")
Object = dict[str, Any]


class Refused(Exception):
    """kubectl ended non-zero; carries its words."""


def binary(name: str) -> str:
    """The path of a tool: from PATH, else from the cache of the test cluster."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(os.environ.get("DGL_OPERATOR_CACHE") or Path(cache) / "dgl-operator")
    found = shutil.which(name) or shutil.which(str(root / "bin" / name))
    if not found:
        raise FileNotFoundError(f"{name}: neither on PATH nor in {root}/bin; run 'make cluster-up' first")
    return found


def call(*argv: str, stdin: str | None = None, timeout: float = 300) -> str:
    """Run a command and return its stdout.

    Raises:
        Refused: it ended non-zero.
    """
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@dataclass(frozen=True)
class Kubectl:
    """kubectl in one namespace."""

    namespace: str

    def run(self, *argv: str, stdin: str | None = None, timeout: float = 300) -> str:
        """Run `kubectl -n <namespace> ...` and return its stdout."""
        return call(binary("kubectl"), "-n", self.namespace, *argv, stdin=stdin, timeout=timeout)

    def get(self, kind: str, name: str) -> Object | None:
        """One object, or None where there is none."""
        text = self.run("get", kind, name, "--ignore-not-found", "-o", "json")
        return json.loads(text) if text.strip() else None

    def list(self, kind: str, *argv: str) -> list[Object]:
        """The objects of a kind."""
        items: list[Object] = json.loads(self.run("get", kind, "-o", "json", *argv))["items"]
        return items

    def apply(self, *objects: Object) -> None:
        """Apply objects."""
        self.run("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def logs(self, pod: str, container: str | None = None) -> str:
        """What a container has printed so far."""
        which = ["-c", container] if container else []
        return self.run("logs", pod, *which)

    def exec(self, pod: str, *argv: str, container: str | None = None) -> str:
        """Run a command in a pod."""
        which = ["-c", container] if container else []
        return self.run("exec", pod, *which, "--", *argv)
