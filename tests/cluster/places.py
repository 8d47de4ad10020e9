"""Where everything lives: the one module that knows folders and file names."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MODULES = Path(__file__).resolve().parent / "tools"


@dataclass(frozen=True)
class Places:
    """The two folders of the tool: `cache` outlives clusters, `state` is one cluster."""

    cache: Path
    state: Path

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "Places":
        """Read the folders from the environment, with the defaults of the XDG convention."""
        home_cache = env.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = env.get("DGL_OPERATOR_CACHE") or f"{home_cache}/dgl-operator"
        own = "/var/lib/dgl-operator-cluster" if os.geteuid() == 0 else f"{cache}/cluster"
        state = env.get("DGL_OPERATOR_CLUSTER_STATE") or own
        return cls(Path(cache).absolute(), Path(state).absolute())

    @classmethod
    def here(cls) -> "Places":
        """Return the places of this process."""
        return cls.of(os.environ)

    @property
    def bin(self) -> Path:
        """Links to the newest build of every program, for a shell's PATH."""
        return self.cache / "bin"

    @property
    def tools(self) -> Path:
        """Built programs, one folder for each content of their module."""
        return self.cache / "tools"

    @property
    def lock(self) -> Path:
        """Held while a cluster goes up or down; outside `state`, which goes away."""
        return self.cache / "cluster.lock"

    @property
    def buildah(self) -> Path:
        """The storage of buildah: images, layers and what builds mount."""
        return self.cache / "buildah"

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.state / "pki"

    @property
    def config(self) -> Path:
        """Rendered configuration files and kubeconfigs."""
        return self.state / "config"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.config / "admin.kubeconfig"

    @property
    def cni(self) -> Path:
        """The container network's configuration; the runtime reads every file in it."""
        return self.state / "cni"

    @property
    def pids(self) -> Path:
        """One file for each daemon that was started."""
        return self.state / "pids"

    @property
    def logs(self) -> Path:
        """One log for each daemon."""
        return self.state / "logs"

    @property
    def containerd(self) -> Path:
        """Root, state and socket of the container runtime; `root` holds imported images."""
        return self.state / "containerd"

    @property
    def socket(self) -> Path:
        """The container runtime's socket; also how its shims are known as ours."""
        return self.containerd / "containerd.sock"

    @property
    def before(self) -> Path:
        """What the host looked like before the first start: what `down` goes back to."""
        return self.state / "before.json"

    @property
    def audit_log(self) -> Path:
        """Every request to the API server but the noise; a folder of its own, as kind mounts it."""
        return self.state / "audit" / "audit.log"


def project_version() -> str:
    """Return the version of the project in this checkout."""
    return str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])
