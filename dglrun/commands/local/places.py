"""Where a pod finds what the operator, the kubelet and the image would give it."""

from dataclasses import dataclass
from pathlib import Path

from dglrun.contract import names

PROGRAMS = "/opt/dglrun"
ACCOUNT = "/opt/dglrun-account"


@dataclass(frozen=True)
class Places:
    """Folders as a pod sees them.

    Attributes:
        config: The ConfigMap's files.
        kube: kubectl.
        account: The service account.
        programs: dglrun.
    """

    config: str
    kube: str
    account: str
    programs: str


IN_NAMESPACES = Places(names.CONFIG_DIR, names.KUBE_DIR, ACCOUNT, PROGRAMS)


def below(folder: Path) -> Places:
    """The places where nothing can be mounted: the very folders of this machine."""
    return Places(*(str(folder / name) for name in ("config", "kube", "account", "programs")))
