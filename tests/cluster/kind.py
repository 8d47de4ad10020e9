"""The same suite where a Docker engine runs: a cluster by kind, images by buildx."""

import functools
import json
import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import builds, commands, configs, images, node, steps
from tests.cluster.images import Image
from tests.cluster.places import REPOSITORY, Places

NAME = "dgl-operator"
AUDIT_POLICY = "/etc/kubernetes/audit-policy.json"
AUDIT_LOGS = "/var/log/kubernetes"


@functools.cache
def chosen() -> bool:
    """Tell whether kind is to be used: KIND=1 or KIND=0 says so, else an engine that answers does."""
    asked = os.environ.get("KIND", "")
    if asked:
        return asked != "0"
    return shutil.which("docker") is not None and commands.attempt("docker", "info", timeout=20)[0] == 0


def exists(places: Places) -> bool:
    """Tell whether our kind cluster is there."""
    return NAME in commands.attempt(*command(places, "get", "clusters"))[1].split()


def up(places: Places) -> None:
    """Make the kind cluster unless it is there."""
    builds.ensure(["kind", *builds.CLIENTS], places)
    if exists(places):
        steps.note(f"the kind cluster {NAME} runs already")
    else:
        with steps.step(f"create the kind cluster {NAME}"):
            _create(places)
    text = commands.run(*command(places, "get", "kubeconfig"))
    places.kubeconfig.touch(mode=0o600)
    places.kubeconfig.write_text(text)


def down(places: Places) -> None:
    """Delete the kind cluster and its state folder."""
    builds.ensure(["kind"], places)
    with steps.step(f"delete the kind cluster {NAME}"):
        commands.run(*command(places, "delete", "cluster"))
    shutil.rmtree(places.state, ignore_errors=True)


def command(places: Places, *argv: str) -> list[str]:
    """Return a kind command for our cluster; it never touches the user's own kubeconfig."""
    named = [] if argv[:2] == ("get", "clusters") else ["--name", NAME]
    aside = ["--kubeconfig", str(places.state / "kind.kubeconfig")] if argv[0] in {"create", "delete"} else []
    return [str(builds.program("kind", places)), *argv, *named, *aside]


def _create(places: Places) -> None:
    """Create the cluster; the audit log is made beforehand, so that it belongs to this user."""
    policy = places.config / "audit.json"
    for path, text in ((policy, json.dumps(configs.audit())), (places.audit_log, "")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    argv = command(places, "create", "cluster", "--wait", "180s", "--config", "-")
    commands.run(*argv, stdin=config(policy, places.audit_log))


def config(policy: Path, log: Path) -> str:
    """Return the cluster's configuration: one node whose API server writes an audit log."""
    patch = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        "apiServer": {
            "extraArgs": [
                {"name": "audit-policy-file", "value": AUDIT_POLICY},
                {"name": "audit-log-path", "value": f"{AUDIT_LOGS}/{log.name}"},
                {"name": "audit-log-maxsize", "value": str(node.AUDIT_MEGABYTES)},
            ],
            "extraVolumes": [
                _shared("audit-policy", AUDIT_POLICY, read_only=True, kind="File"),
                _shared("audit-logs", AUDIT_LOGS, read_only=False, kind="Directory"),
            ],
        },
    }
    control_plane = {
        "role": "control-plane",
        "kubeadmConfigPatches": [json.dumps(patch)],
        "extraMounts": [
            {"hostPath": str(policy), "containerPath": AUDIT_POLICY, "readOnly": True},
            {"hostPath": str(log.parent), "containerPath": AUDIT_LOGS},
        ],
    }
    return json.dumps({"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [control_plane]})


def _shared(name: str, path: str, *, read_only: bool, kind: str) -> dict[str, object]:
    paths = {"hostPath": path, "mountPath": path}
    return {"name": name, **paths, "readOnly": read_only, "pathType": kind}


@dataclass(frozen=True)
class Docker:
    """The Docker engine: it has the base image from where everybody has it."""

    places: Places

    def content(self, tag: str) -> str | None:
        """Return the content hash that an image was built from, None when there is no such image."""
        form = f'{{{{index .Config.Labels "{images.CONTENT_LABEL}"}}}}'
        code, out, _ = commands.attempt("docker", "image", "inspect", "--format", form, tag)
        return out.strip() or None if code == 0 else None

    def ready(self) -> AbstractContextManager[None]:
        """Return at once: the engine looks after itself."""
        return nullcontext()

    def base(self) -> str:
        """Return the base image's name: the engine fetches it."""
        return images.BASE

    def build(self, image: Image, content: str) -> None:
        """Build an image and put it among the engine's."""
        commands.run(*build_command(image, content), cwd=REPOSITORY)

    def deliver(self, name: str, tag: str, content: str) -> None:
        """Load an image into the kind node; the engine's store already knows its content."""
        commands.run(*command(self.places, "load", "docker-image", tag))


def build_command(image: Image, content: str) -> list[str]:
    """Return the build of an image by buildx."""
    args = image.build_args()
    return [
        *("docker", "buildx", "build", "--load", "-f", image.dockerfile, "-t", image.tag),
        *(word for name, value in args.items() for word in ("--build-arg", f"{name}={value}")),
        *("--label", f"{images.CONTENT_LABEL}={content}", "."),
    ]
