"""Jobs as the tests write and read them."""

import tomllib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import images
from tests.cluster.other import pulled, registry
from tests.e2e.kubectl import Kubectl, Object
from tests.support.wait import wait_for

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "manifests" / "examples"
SCRIPTS = Path(__file__).parent / "scripts"
VERSION = "v" + tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
REGISTRY = registry()
FINAL = ("Completed", "Failed")


def example(name: str, job: str | None = None, extra_args: tuple[str, ...] = ()) -> Object:
    """An example of manifests/examples, under another name and with more arguments if asked for."""
    body: Object = yaml.safe_load(pulled((EXAMPLES / f"{name}.yaml").read_text()))
    body["metadata"]["name"] = job or body["metadata"]["name"]
    main_container(body, "Launcher")["args"].extend(extra_args)
    return body


def image(name: str) -> str:
    """The full name of an image of the project, on the registry of this run."""
    return pulled(f"{images.REGISTRY}/{name}")


def main_container(body: Object, role: str) -> Object:
    """The container of a role that the operator drives."""
    container: Object = body["spec"]["dglReplicaSpecs"][role]["template"]["spec"]["containers"][0]
    return container


def set_image(body: Object, name: str) -> None:
    """Take an image of the project in launcher and workers."""
    for role in ("Launcher", "Worker"):
        main_container(body, role)["image"] = image(name)


def mount_in_workers(body: Object, source: Object, path: str) -> None:
    """Mount a volume that all workers share; a partitioner has the workers' mounts."""
    pod = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    pod.setdefault("volumes", []).append({"name": "kept", **source})
    mounts = main_container(body, "Worker").setdefault("volumeMounts", [])
    mounts.append({"name": "kept", "mountPath": path})


def set_flag(body: Object, flag: str, value: str) -> None:
    """Replace the value of a flag in the launcher's arguments, which stand as `--flag=value`."""
    args = main_container(body, "Launcher")["args"]
    (at,) = (index for index, word in enumerate(args) if word.startswith(f"{flag}="))
    args[at] = f"{flag}={value}"


def scripts_config_map() -> Object:
    """The scripts of tests/e2e/scripts as a ConfigMap, so that no image is built for a test."""
    data = {path.name: path.read_text() for path in sorted(SCRIPTS.glob("*"))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"}, "data": data}


def tiny(job: str, *script_args: str, workers: int = 2, flags: tuple[str, ...] = ()) -> Object:
    """A job on a graph of a few hundred nodes whose training does what `script_args` say.

    Its scripts are tests/e2e/scripts/partition_tiny.py and train_tiny.py.
    """
    args = [
        *("--graph-name", "tiny", "--num-partitions", str(workers)),
        *("--partition-entry-point", "/scripts/partition_tiny.py"),
        *("--train-entry-point", "/scripts/train_tiny.py"),
        *flags,
        *(("--", *script_args) if script_args else ()),
    ]
    return {
        "apiVersion": "qihoo.net/v1alpha1",
        "kind": "DGLJob",
        "metadata": {"name": job},
        "spec": {
            "dglReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": _template(command=["dglrun"], args=args)},
                "Worker": {"replicas": workers, "template": _template()},
            }
        },
    }


def _template(**container: Any) -> Object:
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "2Gi"}},
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
        **container,
    }
    return {
        "spec": {"containers": [main], "volumes": [{"name": "scripts", "configMap": {"name": "scripts"}}]}
    }


@dataclass(frozen=True)
class Job:
    """A job on the cluster."""

    kubectl: Kubectl
    name: str

    @property
    def launcher(self) -> str:
        """The launcher pod."""
        return f"{self.name}-launcher"

    def worker(self, index: int) -> str:
        """A worker pod."""
        return f"{self.name}-worker-{index}"

    def status(self) -> Object:
        """The status as it is now."""
        body = self.kubectl.get("dgljob", self.name) or {}
        status: Object = body.get("status", {})
        return status

    def phase(self) -> str | None:
        """The phase as it is now."""
        return self.status().get("phase")

    def condition(self, kind: str) -> Object:
        """A condition, empty where it is not there."""
        return next((c for c in self.status().get("conditions", []) if c["type"] == kind), {})

    def wait_phase(self, *phases: str, seconds: float = 300) -> str:
        """Wait for one of these phases; a job that fails first ends the wait with its words."""

        def look() -> str | None:
            phase = self.phase()
            if phase in FINAL and phase not in phases:
                raise AssertionError(self.story())
            return phase if phase in phases else None

        try:
            return wait_for(f"job {self.name} in phase {'/'.join(phases)}", look, seconds)
        except TimeoutError as late:
            raise AssertionError(f"{late}\n{self.story()}") from None

    def story(self) -> str:
        """Status, pods, events and logs: what a person would look at."""
        parts = [yaml.safe_dump(self.status())]
        parts += [self._quietly("get", "pods", "-o", "wide"), self._quietly("get", "events")]
        for pod in (self.launcher, f"{self.name}-partitioner"):
            parts.append(f"--- {pod}\n" + self._quietly("logs", pod, "--all-containers", "--tail=60"))
        return "\n".join(parts)

    def _quietly(self, *argv: str) -> str:
        try:
            return self.kubectl.run(*argv)
        except Exception as gone:
            return f"({gone})"


def moment(text: str) -> datetime:
    """A Kubernetes time as a datetime."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
