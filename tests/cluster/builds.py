"""Build the programs of the cluster from pinned Go modules, once for each content of a module."""

import fcntl
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import commands, steps
from tests.cluster.places import MODULES, Places

STRIPPED = "-s -w"


@dataclass(frozen=True)
class Module:
    """Programs that are built together from a folder below `tools/` with a go.mod."""

    name: str
    of: str
    programs: tuple[tuple[str, str], ...]
    tags: str = ""
    stamped: tuple[str, ...] = ()
    """Variables of the linker that the version is written to, as `package.variable`."""
    folder_name: str = ""
    """The folder below `tools/`, where it is not called like this."""
    is_older: bool = False
    """Whether its programs take the place of others only where DGL_OPERATOR_CONTROL_PLANE asks for them."""

    @property
    def folder(self) -> Path:
        """The module's folder in this checkout."""
        return MODULES / (self.folder_name or self.name)

    @property
    def version(self) -> str:
        """The version that go.mod pins."""
        found = re.search(rf"^\s*(?:require )?{re.escape(self.of)} (v\S+)", self.go_mod, re.MULTILINE)
        if found is None:
            raise steps.StepError(f"{self.folder / 'go.mod'} requires no version of {self.of}")
        return found.group(1)

    @property
    def go_mod(self) -> str:
        """The text of go.mod."""
        return (self.folder / "go.mod").read_text()

    def build_flags(self) -> tuple[str, ...]:
        """Return the flags of `go build`."""
        stamps = [f"-X {variable}={self._stamp(variable)}" for variable in self.stamped]
        tags = ("-tags", self.tags) if self.tags else ()
        return ("-trimpath", *tags, "-ldflags", " ".join([STRIPPED, *stamps]))

    def _stamp(self, variable: str) -> str:
        major, minor, _ = self.version.removeprefix("v").split(".", 2)
        return {"gitMajor": major, "gitMinor": minor}.get(variable.rpartition(".")[2], self.version)

    def content(self) -> str:
        """Return a short hash of everything that decides what the programs are."""
        digest = hashlib.sha256(repr((self.build_flags(), self.programs)).encode())
        for path in sorted(self.folder.iterdir()):
            if path.suffix in {".go", ".mod", ".sum"}:
                digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
        return digest.hexdigest()[:12]


KUBERNETES_VERSION = tuple(
    f"{package}.{variable}"
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    for variable in ("gitVersion", "gitMajor", "gitMinor")
)


def _kubernetes(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"k8s.io/kubernetes/cmd/{name}") for name in names)


def _containerd(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"github.com/containerd/containerd/v2/cmd/{name}") for name in names)


MODULE = {
    module.name: module
    for module in (
        Module(
            "kubernetes",
            "k8s.io/kubernetes",
            _kubernetes(
                "kube-apiserver",
                "kube-controller-manager",
                "kube-proxy",
                "kube-scheduler",
                "kubelet",
            ),
            stamped=KUBERNETES_VERSION,
        ),
        Module(
            "kubernetes-1.34",
            "k8s.io/kubernetes",
            _kubernetes("kube-apiserver", "kube-controller-manager"),
            stamped=KUBERNETES_VERSION,
            is_older=True,
        ),
        Module(
            "kubectl",
            "k8s.io/kubernetes",
            _kubernetes("kubectl"),
            stamped=KUBERNETES_VERSION,
            folder_name="kubernetes",
        ),
        Module(
            "containerd",
            "github.com/containerd/containerd/v2",
            _containerd("containerd", "containerd-shim-runc-v2", "ctr"),
            tags="no_btrfs",
            stamped=("github.com/containerd/containerd/v2/version.Version",),
        ),
        Module("etcd", "go.etcd.io/etcd/server/v3", (("etcd", "go.etcd.io/etcd/server/v3"),)),
        Module("coredns", "github.com/coredns/coredns", (("coredns", "."),)),
        Module(
            "helm",
            "helm.sh/helm/v4",
            (("helm", "helm.sh/helm/v4/cmd/helm"),),
            stamped=("helm.sh/helm/v4/internal/version.version",),
        ),
        Module(
            "actionlint",
            "github.com/rhysd/actionlint",
            (("actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),),
        ),
        Module(
            "kubeconform",
            "github.com/yannh/kubeconform",
            (("kubeconform", "github.com/yannh/kubeconform/cmd/kubeconform"),),
        ),
        Module("kind", "sigs.k8s.io/kind", (("kind", "sigs.k8s.io/kind"),)),
        Module("kwok", "sigs.k8s.io/kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),)),
        Module(
            "kube-router",
            "github.com/cloudnativelabs/kube-router",
            (("kube-router", "github.com/cloudnativelabs/kube-router/cmd/kube-router"),),
        ),
        Module(
            "versitygw",
            "github.com/versity/versitygw",
            (("versitygw", "github.com/versity/versitygw/cmd/versitygw"),),
        ),
        Module("kueue", "sigs.k8s.io/kueue", (("kueue", "sigs.k8s.io/kueue/cmd/kueue"),)),
        Module(
            "scheduler-plugins",
            "sigs.k8s.io/scheduler-plugins",
            (("scheduler-plugins", "sigs.k8s.io/scheduler-plugins/cmd/scheduler"),),
        ),
    )
}

CLIENTS = ("kubectl", "helm")
"""What is needed to work with any cluster."""

NODE = ("etcd", "containerd", "coredns", "kubernetes")
"""What a running node consists of."""

POLICIES = ("kube-router",)
"""What enforces NetworkPolicies on it, when it is asked to."""

STORAGE = ("versitygw",)
"""What serves S3 to the tests of object storage."""

QUEUES = ("kueue",)
"""What admits jobs by quota, in the test of it."""

GANGS = ("scheduler-plugins",)
"""What schedules gangs by coscheduling's PodGroup, in the test of it."""

CONTROL_PLANE = "DGL_OPERATOR_CONTROL_PLANE"
"""Environment variable: the older minor of Kubernetes of which API server and controller manager are."""

CHECKS = ("actionlint", "kubeconform")
"""What the checks of the checkout ask for."""


def folder(module: Module, places: Places) -> Path:
    """Return where the programs of a module are, or will be."""
    return places.tools / f"{module.name}-{module.version}-{module.content()}" / "bin"


def older() -> tuple[str, ...]:
    """Return the modules of the older control plane that is asked for, none usually.

    Raises:
        StepError: no module is of that minor.
    """
    minor = os.environ.get(CONTROL_PLANE, "")
    if not minor:
        return ()
    known = [name.rpartition("-")[2] for name, module in MODULE.items() if module.is_older]
    if minor not in known:
        raise steps.StepError(f"{CONTROL_PLANE}: expected one of {', '.join(known)}, got {minor}")
    return (f"kubernetes-{minor}",)


def program(name: str, places: Places) -> Path:
    """Return the path of a program.

    Raises:
        KeyError: no module builds it.
        StepError: an older control plane is asked for that no module builds.
    """
    asked = [MODULE[each] for each in older()]
    for module in (*asked, *(each for each in MODULE.values() if not each.is_older)):
        if name in dict(module.programs):
            return folder(module, places) / name
    raise KeyError(name)


def ensure(names: Iterable[str], places: Places) -> None:
    """Build the named modules that are not built yet, and refresh the links to their programs.

    The lock is for building alone: who needs a program that is there does not wait for another one.
    """
    for name in names:
        module = MODULE[name]
        if not folder(module, places).is_dir():
            with _locked(places):
                _build_unless_there(module, places)
        if not module.is_older:
            _link(module, places)


def _build_unless_there(module: Module, places: Places) -> None:
    if not folder(module, places).is_dir():  # another process may have built it meanwhile
        with steps.step(f"build {module.name} {module.version} from Go modules", long=True):
            _build(module, places)


def _build(module: Module, places: Places) -> None:
    """Build aside and rename: a folder with the final name is always complete."""
    if shutil.which("go") is None:
        raise steps.StepError(f"no `go` on PATH: {module.name} is built from Go modules, by Go 1.26 or newer")
    env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly"}
    with tempfile.TemporaryDirectory(dir=places.tools, prefix=".building-") as aside:
        out = Path(aside) / "out"
        (out / "bin").mkdir(parents=True)
        packages = [package for _, package in module.programs]
        only = module.programs[0][0] if len(packages) == 1 else ""
        argv = ("go", "build", *module.build_flags(), "-o", f"{out}/bin/{only}", *packages)
        commands.run(*argv, cwd=module.folder, env=env)
        final = folder(module, places).parent
        shutil.rmtree(final, ignore_errors=True)
        out.rename(final)


def _link(module: Module, places: Places) -> None:
    places.bin.mkdir(parents=True, exist_ok=True)
    for name, _ in module.programs:
        link, target = places.bin / name, folder(module, places) / name
        if not link.is_symlink() or link.readlink() != target:
            fresh = places.bin / f".{name}-{os.getpid()}"
            fresh.symlink_to(target)
            fresh.replace(link)


@contextmanager
def _locked(places: Places) -> Iterator[None]:
    """Let one process build at a time: two would do everything twice."""
    places.tools.mkdir(parents=True, exist_ok=True)
    with (places.tools / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
