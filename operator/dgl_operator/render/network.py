"""The network of a job: the Service that gives its pods stable names, and the NetworkPolicy that guards them.

A pod's name is `<pod>.<job>.<namespace>.svc`. DGL's servers run whatever a message makes of them, since they
unpickle it, and torch and MPI know no authentication either: only the job's own pods may reach them.
"""

from typing import Any

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import identity
from dgl_operator.render.merge import Json
from dglrun.contract import names

_LISTS = ("from", "ports", "except", "values", "matchExpressions", "matchLabels")
_VALUES = ("podSelector", "namespaceSelector", "ipBlock", "protocol", "port", "endPort")


def service(job: DGLJob) -> Json:
    """One Service for all pods; names resolve before the pods are Ready."""
    name = identity.job_name(job)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": identity.metadata(job, names.service(name)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB: name},
            "ports": [{"name": names.DGL_PORT_NAME, "port": names.DGL_PORT, "protocol": "TCP"}],
        },
    }


def policy(job: DGLJob) -> Json:
    """Admit the job's own pods on all ports, and beside them whom the job's rules admit.

    The user's rules come first, so that the API server's words on rule i are about the user's rule i.
    """
    name = identity.job_name(job)
    pods = {"matchLabels": {names.LABEL_JOB: name}}
    given = job.spec.network_policy
    rules = [_as_stored(rule) for rule in given.ingress] if given else []
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": identity.metadata(job, names.network_policy(name)),
        "spec": {
            "podSelector": pods,
            "policyTypes": ["Ingress"],
            "ingress": [*rules, {"from": [{"podSelector": pods}]}],
        },
    }


def has_policy(job: DGLJob, by_default: bool) -> bool:
    """Whether the job has a NetworkPolicy: as it says, or else by default."""
    given = job.spec.network_policy
    return by_default if given is None or given.enabled is None else given.enabled


def _as_stored(value: Any) -> Any:
    """Leave out what the API server does not store of a rule, which would look like a difference for ever.

    Keys that are not a rule's stay whatever they hold: of a misspelt `from` without its key an admission of
    everybody would be left, and with it the API server refuses the rule.
    """
    if isinstance(value, dict):
        return {key: _as_stored(inner) for key, inner in value.items() if not _is_nothing(key, inner)}
    return [_as_stored(inner) for inner in value] if isinstance(value, list) else value


def _is_nothing(key: str, value: Any) -> bool:
    """Whether the key means the same as its absence; an empty selector selects all."""
    return (key in _LISTS and value in (None, [], {})) or (key in _VALUES and value is None)
