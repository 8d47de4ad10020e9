"""Installs the operator by its chart, as a user would, and removes it."""

from tests.e2e.jobs import REGISTRY, ROOT
from tests.e2e.kubectl import Kubectl, binary, call

RELEASE = "dgl-operator"
NAMESPACE = "dgl-operator"
CHART = ROOT / "helm" / "dgl-operator"


def operator(*values: str) -> Kubectl:
    """Install or upgrade the chart and wait until the operator is ready.

    Args:
        values: `key=value` settings of the chart.

    Returns:
        kubectl in the operator's namespace.
    """
    sets = [word for value in (f"images.registry={REGISTRY}", *values) for word in ("--set", value)]
    call(
        *(binary("helm"), "upgrade", "--install", RELEASE, str(CHART), "--namespace", NAMESPACE),
        *("--create-namespace", "--take-ownership", "--force-conflicts", "--wait", "--timeout", "3m", *sets),
        timeout=240,
    )
    return Kubectl(NAMESPACE)


def remove() -> None:
    """Uninstall the chart; CRD and jobs stay (the chart keeps them)."""
    call(binary("helm"), "uninstall", RELEASE, "--namespace", NAMESPACE, "--wait")
