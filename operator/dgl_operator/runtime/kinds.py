"""The kinds of objects that the operator deals with, and the key of a job."""

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

from dgl_operator.api import gang
from dgl_operator.api.gang import GangApi
from dglrun.contract import names

Json = dict[str, Any]


class Key(NamedTuple):
    """A DGLJob by namespace and name."""

    namespace: str
    name: str

    @classmethod
    def of_job(cls, raw: Mapping[str, Any]) -> "Key":
        """Key of a DGLJob object."""
        return cls(raw["metadata"]["namespace"], raw["metadata"]["name"])

    @classmethod
    def of_owner(cls, child: Mapping[str, Any]) -> "Key | None":
        """Key of the DGLJob that controls an object, None for an object of another owner.

        Labels do not count: anybody may change those of a pod.
        """
        owners = child["metadata"].get("ownerReferences") or ()
        owner = next((each for each in owners if each.get("controller")), None)
        if owner is None or owner.get("kind") != names.KIND or not _is_ours(owner):
            return None
        return cls(child["metadata"]["namespace"], owner["name"])


class Kind(Enum):
    """A kind with its place in the API: (kind, API version, plural)."""

    JOB = (names.KIND, f"{names.GROUP}/{names.VERSION}", names.PLURAL)
    POD = ("Pod", "v1", "pods")
    CONFIG_MAP = ("ConfigMap", "v1", "configmaps")
    SERVICE = ("Service", "v1", "services")
    SERVICE_ACCOUNT = ("ServiceAccount", "v1", "serviceaccounts")
    ROLE = ("Role", "rbac.authorization.k8s.io/v1", "roles")
    ROLE_BINDING = ("RoleBinding", "rbac.authorization.k8s.io/v1", "rolebindings")
    NETWORK_POLICY = ("NetworkPolicy", "networking.k8s.io/v1", "networkpolicies")
    EVENT = ("Event", "v1", "events")
    LEASE = ("Lease", "coordination.k8s.io/v1", "leases")
    NODE = ("Node", "v1", "nodes")
    POD_GROUP = (gang.KIND, GangApi.KUBERNETES.value, gang.PLURAL)
    COSCHEDULING_POD_GROUP = (gang.KIND, GangApi.COSCHEDULING.value, gang.PLURAL)
    WORKLOAD = ("Workload", "kueue.x-k8s.io/v1beta1", "workloads")
    RESOURCE_FLAVOR = ("ResourceFlavor", "kueue.x-k8s.io/v1beta1", "resourceflavors")
    WORKLOAD_PRIORITY_CLASS = (
        "WorkloadPriorityClass",
        "kueue.x-k8s.io/v1beta1",
        "workloadpriorityclasses",
    )
    PRIORITY_CLASS = ("PriorityClass", "scheduling.k8s.io/v1", "priorityclasses")

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Kind":
        """The kind of a rendered object; two kinds of one name differ in their API version."""
        version = body.get("apiVersion")
        return next(
            kind for kind in cls if kind.value[0] == body["kind"] and version in (None, kind.api_version)
        )

    @property
    def api_version(self) -> str:
        """`v1` or `<group>/<version>`."""
        return self.value[1]

    @property
    def group(self) -> str:
        """API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def plural(self) -> str:
        """Name in URLs."""
        return self.value[2]

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """URL path of the collection or of one object; all namespaces for None."""
        root = f"/apis/{self.api_version}" if self.group else f"/api/{self.api_version}"
        scope = f"/namespaces/{namespace}" if namespace else ""
        return f"{root}{scope}/{self.plural}" + (f"/{name}" if name else "")


def _is_ours(owner: Mapping[str, Any]) -> bool:
    return str(owner.get("apiVersion", "")).partition("/")[0] == names.GROUP


CHILDREN = (
    Kind.POD,
    Kind.CONFIG_MAP,
    Kind.SERVICE,
    Kind.NETWORK_POLICY,
    Kind.SERVICE_ACCOUNT,
    Kind.ROLE,
    Kind.ROLE_BINDING,
)
"""What a job owns; all of it is watched by the job label."""
