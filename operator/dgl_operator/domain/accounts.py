"""What `spec.serviceAccountAnnotations` must be: what Kubernetes takes, of accounts that are used."""

import re
from collections.abc import Iterator

from dgl_operator.api import rules
from dgl_operator.api.v1alpha1 import DGLJob, shown
from dglrun.contract import names
from dglrun.contract.names import Role

_WHERE = "spec.serviceAccountAnnotations"
_OURS = ("dgl-operator/", f"{names.GROUP}/")
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"({_LABEL}(\.{_LABEL})*/)?{_NAME}")
_MAX_PREFIX = 253


def problems(job: DGLJob) -> Iterator[str]:
    """Yield one line for each problem."""
    given = job.spec.service_account_annotations
    for key in given:
        if key.startswith(_OURS):
            ours = " or ".join(_OURS)
            yield f"{_WHERE}: expected no key of {ours}, which are the operator's, got {shown(key)}"
        elif not _is_key(key):
            yield f"{_WHERE}: expected the name of an annotation, such as example.org/role, got {shown(key)}"
    for role in Role if given else ():
        if account := _own_account(job, role):
            yield (
                f"{rules.SPECS}.{role.value}.template.spec.serviceAccountName: expected none, since {_WHERE} "
                f"are those of the accounts that the operator makes, got {shown(account)}"
            )


def _is_key(key: str) -> bool:
    prefix, slash, _name = key.rpartition("/")
    return len(prefix) <= _MAX_PREFIX and bool(_KEY.fullmatch(key)) and bool(prefix or not slash)


def _own_account(job: DGLJob, role: Role) -> str | None:
    spec = job.spec.dgl_replica_specs.of(role)
    pod = (spec.template.get("spec") or {}) if spec else {}
    return pod.get("serviceAccountName") or pod.get("serviceAccount") or None
