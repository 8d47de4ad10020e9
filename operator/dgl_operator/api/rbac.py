"""What the operator may do: the one list, rendered into the ClusterRole (or the Roles) of the chart.

Each verb is one that `runtime.kube_cluster` uses, or one that a job's own Role grants: Kubernetes lets
nobody grant a right that they do not hold, and the operator has neither `escalate` nor `bind`. A test
compares the list with the verbs that the code uses.
"""

from dataclasses import dataclass
from typing import Any

from dgl_operator.api import gang
from dgl_operator.api.gang import GangApi
from dglrun.contract import names


@dataclass(frozen=True)
class Rule:
    """Verbs on resources of one API group, and why the operator needs them."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    why: str

    def manifest(self) -> dict[str, Any]:
        """Return the PolicyRule."""
        return {"apiGroups": [self.group], "resources": list(self.resources), "verbs": list(self.verbs)}


RULES = (
    Rule(
        names.GROUP,
        (names.PLURAL,),
        ("get", "list", "watch", "delete"),
        "watch the jobs; delete those whose ttlSecondsAfterFinished has passed",
    ),
    Rule(names.GROUP, (f"{names.PLURAL}/status",), ("patch",), "write the status of the jobs"),
    Rule(
        names.GROUP,
        (f"{names.PLURAL}/finalizers",),
        ("update",),
        "set owner references that block the job's deletion, where admission asks for it",
    ),
    Rule(
        "",
        ("pods",),
        ("get", "list", "watch", "create", "delete", "patch"),
        "run the jobs; patch makes the kubelet sync a ConfigMap, ends a launcher but keeps its logs",
    ),
    Rule(
        "",
        ("configmaps", "services", "serviceaccounts"),
        ("get", "list", "watch", "create", "patch"),
        "address files, reports, stable names and accounts of the jobs",
    ),
    Rule(
        "networking.k8s.io",
        ("networkpolicies",),
        ("get", "list", "watch", "create", "patch", "delete"),
        "close the pods of a job to others, and open them when the job no longer asks for it",
    ),
    Rule(
        "rbac.authorization.k8s.io",
        ("roles", "rolebindings"),
        ("get", "list", "watch", "create", "patch", "delete"),
        "grant a job's accounts rights over its own pods only, and revoke them when it has ended",
    ),
    *(
        Rule(api.group, (gang.PLURAL,), ("get", "create"), why)
        for api, why in (
            (GangApi.KUBERNETES, "make a group of the workers of a job that asks for gang scheduling"),
            (GangApi.COSCHEDULING, "the same where coscheduling is the gang scheduler"),
        )
    ),
    Rule(
        "", ("pods/exec",), ("get", "create"), "granted to the accounts of jobs; never used by the operator"
    ),
    Rule("", ("events",), ("create",), "report each step and each error"),
)

LEADER_RULES = (
    Rule("coordination.k8s.io", ("leases",), ("create",), "make the Lease by which the leader is elected"),
    Rule("coordination.k8s.io", ("leases",), ("get", "update"), "hold and renew it"),
)
"""In the operator's own namespace; the second is for its Lease alone."""

OF_CLUSTER = (
    Rule(
        "",
        ("nodes",),
        ("get",),
        "delete by force a pod whose node is gone; optional, see the value rbac.nodes",
    ),
)
"""What no Role can give; the operator works without."""

KUEUE = (
    Rule(
        "kueue.x-k8s.io",
        ("workloads",),
        ("get", "list", "watch", "create", "delete"),
        "let jobs wait in queues of Kueue; with the value kueue.enabled alone",
    ),
    Rule(
        "kueue.x-k8s.io",
        ("workloads/status",),
        ("patch",),
        "give the quota of an evicted job back, and say that a job has ended; likewise",
    ),
)
"""Of an operator that runs with `--kueue=true`."""

KUEUE_OF_CLUSTER = (
    Rule(
        "kueue.x-k8s.io",
        ("resourceflavors", "workloadpriorityclasses"),
        ("get",),
        "give the pods the nodes that they were admitted for, and the job its priority; likewise",
    ),
    Rule(
        "scheduling.k8s.io", ("priorityclasses",), ("get",), "give the job the priority of its pods; likewise"
    ),
)
"""The same, of objects that belong to no namespace."""


def allows(group: str, resource: str, verb: str) -> bool:
    """Whether the operator may do this."""
    return any(
        rule.group == group and resource in rule.resources and verb in rule.verbs
        for rule in (*RULES, *OF_CLUSTER, *KUEUE, *KUEUE_OF_CLUSTER)
    )
