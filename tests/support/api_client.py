"""A real API server as the tests use it: requests, waits with deadlines, accounts. Needs KUBECONFIG."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import yaml

from dgl_operator.api import rbac
from dgl_operator.runtime.cluster import NotFound
from dgl_operator.runtime.kinds import CHILDREN, Json, Kind
from dgl_operator.runtime.kube_cluster import KubeCluster, Request
from tests.support.wait import wait_for

T = TypeVar("T")
ACCOUNT = "dgl-operator-under-test"
CRD = Path(__file__).parents[2] / "crds" / "dgljobs.qihoo.net.yaml"


def _is_about(event: Json, job: str) -> bool:
    about = event["involvedObject"]
    return (about["kind"], about["name"]) == (Kind.JOB.value[0], job)


class ApiServer(KubeCluster):
    """The administrator's view of the cluster."""

    @property
    def authority(self) -> Path:
        """The certificate by which the API server is known."""
        return Path(self._settings.ssl_ca_cert)

    def call(
        self, method: str, path: str, body: Json | None = None, content_type: str = "application/json"
    ) -> Json:
        """One request on a path; errors as `KubeCluster` raises them."""
        return self._call(Request(method, path, None, body, content_type))

    def post_text(self, path: str, text: str) -> None:
        """Create an object that Python could not write itself."""
        url = f"{self._settings.host}{path}"
        answer = self._pool.request("POST", url, body=text, headers={"Content-Type": "application/json"})
        assert answer.status == 201, answer.data[:500]

    def list(self, kind: Kind, namespace: str | None, job: str | None = None) -> tuple[Json, ...]:
        """All pages of a list."""
        return tuple(item for page in self.pages(kind, namespace, job) for item in page.items)

    def install_crd(self) -> None:
        """Apply the CRD of this checkout and wait until it is served."""
        body = yaml.safe_load(CRD.read_text())
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}"
        self.call("PATCH", f"{path}?fieldManager=tests&force=true", body, "application/apply-patch+yaml")
        wait_for("CRD served", lambda: self._is_established(path))

    def install_account(self, namespace: str) -> None:
        """Make an account that holds the operator's rules and nothing else."""
        self.make_namespace(namespace)
        group, subject = (
            "rbac.authorization.k8s.io",
            {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace},
        )
        metadata = {"name": ACCOUNT}
        rules = [
            rule.manifest() for rule in (*rbac.RULES, *rbac.OF_CLUSTER, *rbac.KUEUE, *rbac.KUEUE_OF_CLUSTER)
        ]
        self.put(
            "/api/v1/namespaces/" + namespace + "/serviceaccounts",
            {"kind": "ServiceAccount", "metadata": metadata},
        )
        self.put(
            f"/apis/{group}/v1/clusterroles", {"kind": "ClusterRole", "metadata": metadata, "rules": rules}
        )
        ref = {"apiGroup": group, "kind": "ClusterRole", "name": ACCOUNT}
        binding = {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": ref, "subjects": [subject]}
        self.put(f"/apis/{group}/v1/clusterrolebindings", binding)
        self._allow_leases(namespace, ref, subject)

    def _allow_leases(self, namespace: str, ref: Json, subject: Json) -> None:
        path = f"/apis/{ref['apiGroup']}/v1/namespaces/{namespace}"
        metadata = {"name": f"{ACCOUNT}-leader-election"}
        rules = [rule.manifest() for rule in rbac.LEADER_RULES]
        self.put(f"{path}/roles", {"kind": "Role", "metadata": metadata, "rules": rules})
        own = {**ref, "kind": "Role", **metadata}
        binding = {"kind": "RoleBinding", "metadata": metadata, "roleRef": own, "subjects": [subject]}
        self.put(f"{path}/rolebindings", binding)

    def running_operators(self) -> Sequence[str]:
        """Deployments of an operator that run pods, as `<namespace>/<name>`."""
        items = self.call("GET", "/apis/apps/v1/deployments")["items"]
        return [
            f"{item['metadata']['namespace']}/{item['metadata']['name']}"
            for item in items
            if item["metadata"]["name"] == "dgl-operator" and item["spec"].get("replicas", 1) > 0
        ]

    def put(self, collection: str, body: Json) -> Json:
        """Apply an object by its path."""
        version = collection.removeprefix("/apis/").removeprefix("/api/").split("/namespaces")[0]
        version = "/".join(version.split("/")[:-1]) if "namespaces" not in collection else version
        whole = {"apiVersion": version, **body}
        path = f"{collection}/{body['metadata']['name']}?fieldManager=tests&force=true"
        return self.call("PATCH", path, whole, "application/apply-patch+yaml")

    def kubeconfig(self, namespace: str, account: str, folder: Path) -> Path:
        """Write a kubeconfig for an account and return its path."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = self.call(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        )
        config = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())
        config["users"][0]["user"] = {"token": answer["status"]["token"]}
        config["users"][0]["name"] = config["contexts"][0]["context"]["user"] = account
        written = folder / f"{account}.kubeconfig"
        written.write_text(yaml.safe_dump(config))
        return written

    def make_namespace(self, name: str, labels: dict[str, str] | None = None) -> None:
        """Make a namespace in which pods are admitted."""
        metadata: Json = {"name": name, "labels": labels or {}}
        self.put("/api/v1/namespaces", {"kind": "Namespace", "metadata": metadata})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_for("default account", lambda: self._find(account))

    def remove_namespace(self, name: str) -> None:
        """Begin to delete a namespace."""
        self.call("DELETE", f"/api/v1/namespaces/{name}")

    def everything(self, namespace: str) -> dict[tuple[str, str], Json]:
        """All jobs and children of the namespace by kind and name, those without a job label left out."""
        found = {}
        for kind in (*CHILDREN, Kind.JOB):
            for item in self.list(kind, namespace):
                found[kind.value[0], item["metadata"]["name"]] = item
        return found

    def events(self, namespace: str, job: str) -> Sequence[Json]:
        """The job's Events."""
        items = self.call("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return [item for item in items if _is_about(item, job)]

    def _find(self, path: str) -> Json | None:
        try:
            return self.call("GET", path)
        except NotFound:
            return None

    def _is_established(self, path: str) -> bool | None:
        # A CRD that was made this moment has `conditions: null`.
        conditions: Sequence[Json] = self.call("GET", path).get("status", {}).get("conditions") or []
        known = any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
        return True if known else None
