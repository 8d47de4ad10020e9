"""An account for each operator under test, with its rules alone: the audit log tells them apart."""

import contextlib
from pathlib import Path

from dgl_operator.runtime.cluster import NotFound
from tests.benchmarks.operator_bench.bodies import Json
from tests.support.api_client import ApiServer

GROUP = "rbac.authorization.k8s.io"


def install(api: ApiServer, home: str, name: str, rules: list[Json]) -> None:
    """Make the account in its namespace, and a ClusterRole and binding of the same name."""
    metadata = {"name": name}
    api.put(f"/api/v1/namespaces/{home}/serviceaccounts", {"kind": "ServiceAccount", "metadata": metadata})
    api.put(f"/apis/{GROUP}/v1/clusterroles", {"kind": "ClusterRole", "metadata": metadata, "rules": rules})
    subject = {"kind": "ServiceAccount", "name": name, "namespace": home}
    binding = {
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    api.put(f"/apis/{GROUP}/v1/clusterrolebindings", binding)


def remove(api: ApiServer, name: str) -> None:
    """Remove what is not in the namespace."""
    for plural in ("clusterrolebindings", "clusterroles"):
        with contextlib.suppress(NotFound):
            api.call("DELETE", f"/apis/{GROUP}/v1/{plural}/{name}")


def user(home: str, name: str) -> str:
    """The account's user name in the audit log."""
    return f"system:serviceaccount:{home}:{name}"


def kubeconfig(api: ApiServer, home: str, name: str, folder: Path) -> Path:
    """Write credentials of the account and return their path."""
    return api.kubeconfig(home, name, folder)
