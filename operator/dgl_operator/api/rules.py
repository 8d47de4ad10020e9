"""What a job must be beyond the types of its fields: one rule, two executions.

The API server evaluates `cel` at admission; the operator evaluates `holds` before it starts a job, since
one may have been stored under an older CRD. Both say the same words, and a test holds the two executions
to the same verdict.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dgl_operator.api.v1alpha1 import (
    DGLJob,
    ExitCodeOperator,
    FailureRule,
    ReplicaSpec,
    SchedulingPolicy,
    shown,
)
from dglrun.contract.names import MAX_JOB_NAME, Mode, Role

SPECS = "spec.dglReplicaSpecs"
SCHEDULING = "spec.runPolicy.schedulingPolicy"
NAME = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""DNS label of RFC 1035: the job's Service bears the name, and a Service's name begins with a letter."""
PATH = r"^(/+([^/:.][^/:]*|[.][^/:.][^/:]*|[.][.][^/:]+))+/*$"
"""Absolute and below the root, without `.`, `..` and the colon, which a mount path must not have."""
ROLES = "[" + ", ".join(f"'{role.value}'" for role in Role) + "]"


class Reason(Enum):
    """How the API server introduces the message."""

    INVALID = "FieldValueInvalid"
    REQUIRED = "FieldValueRequired"
    FORBIDDEN = "FieldValueForbidden"


@dataclass(frozen=True)
class Rule:
    """One thing that must hold.

    Attributes:
        at: Field whose schema carries the rule, empty for the whole object; `self` in CEL.
        cel: Expression that is true for a good job.
        holds: The same as a function.
        message: What was expected, and as far as the API server can say it cheaply, what was found.
        found: What was found.
        found_cel: The same as an expression of bounded cost, where there is one.
        field: Field that the error names, relative to `at`.
        reason: Kind of the error.
    """

    at: str
    cel: str
    holds: Callable[[DGLJob], bool]
    message: str
    found: Callable[[DGLJob], str]
    found_cel: str | None = None
    field: str = ""
    reason: Reason = Reason.INVALID

    @property
    def message_cel(self) -> str | None:
        """Expression of the full message; the API server refuses one over strings without a bound."""
        return None if self.found_cel is None else f"{_quoted(f'{self.message}, got ')} + {self.found_cel}"

    def says(self, job: DGLJob) -> str:
        """Return the full message for a job that breaks the rule."""
        return f"{self.at}{self.field}: {self.message}, got {self.found(job)}".removeprefix(".")


def violations(job: DGLJob) -> tuple[str, ...]:
    """Return one line (where, expected, got) for each rule that the job breaks; empty for a good job."""
    broken = tuple(rule.says(job) for rule in RULES if not rule.holds(job))
    return broken + tuple(line for role in Role for line in _container_problems(role, job))


IMMUTABLE = ("partitionMode", "slotsPerWorker", "dglReplicaSpecs")
"""Fields of spec that describe what already runs: pods are not changed under a job, nor published files."""


def _unchanged(field: str) -> str:
    """CEL: an optional field of `self` neither comes, goes nor changes."""
    here, before = f"self.{field}", f"oldSelf.{field}"
    return f"has({here}) == has({before}) && (!has({here}) || {here} == {before})"


_HAS_GANG = "(has({0}.runPolicy) && has({0}.runPolicy.schedulingPolicy))"
_GANG, _GANG_BEFORE = _HAS_GANG.format("self"), _HAS_GANG.format("oldSelf")

IMMUTABLE_OPTIONAL = {
    "failurePolicy": _unchanged("failurePolicy"),
    "datasetVolume": _unchanged("datasetVolume"),
    "serviceAccountAnnotations": _unchanged("serviceAccountAnnotations"),
    "runPolicy.managedBy": "(has(self.runPolicy) && has(self.runPolicy.managedBy) ? "
    "self.runPolicy.managedBy : '') == (has(oldSelf.runPolicy) && has(oldSelf.runPolicy.managedBy) ? "
    "oldSelf.runPolicy.managedBy : '')",
    "runPolicy.schedulingPolicy": f"{_GANG} == {_GANG_BEFORE} && (!{_GANG} || "
    "self.runPolicy.schedulingPolicy == oldSelf.runPolicy.schedulingPolicy)",
}
"""Fields of spec that may be absent, with rules on `spec`: a field's own rule does not see it come or go."""

IMMUTABLE_CEL = "self == oldSelf"
IMMUTABLE_MESSAGE = "field is immutable; delete and recreate the job"


def _one(role: Role) -> Rule:
    """The role has exactly one pod."""
    name = role.value
    return Rule(
        at=SPECS,
        cel=f"!('{name}' in self) || self['{name}'].replicas == 1",
        holds=lambda job: _replicas(job, role) in (0, 1),
        message=f"expected exactly one {name} (replicas: 1)",
        found=lambda job: str(_replicas(job, role)),
    )


def _absent(role: Role, modes: tuple[Mode, ...], why: str) -> Rule:
    """A role that the mode would ignore is refused: nothing the user wrote is dropped silently."""
    named = " or ".join(mode.value for mode in modes)
    listed = "[" + ", ".join(f"'{mode.value}'" for mode in modes) + "]"
    return Rule(
        at="spec",
        cel=f"!(self.partitionMode in {listed}) || !('{role.value}' in self.dglReplicaSpecs)",
        holds=lambda job: job.spec.partition_mode not in modes or job.spec.dgl_replica_specs.of(role) is None,
        message=f"expected no {role.value} with partitionMode {named}, since {why}",
        found=lambda job: f"one with {job.spec.partition_mode.value}",
        found_cel="'one with ' + self.partitionMode",
        field=".dglReplicaSpecs",
        reason=Reason.FORBIDDEN,
    )


POLICY = "spec.failurePolicy"


def _of_failures(cel: str, holds: Callable[[FailureRule], bool], message: str) -> Rule:
    """Something that holds for each rule of the failure policy."""
    return Rule(
        at=POLICY,
        cel=f"!has(self.rules) || self.rules.all(rule, {cel})",
        holds=lambda job: all(map(holds, _failure_rules(job))),
        message=message,
        found=lambda job: (
            "rules " + ", ".join(str(at) for at, rule in enumerate(_failure_rules(job)) if not holds(rule))
        ),
        field=".rules",
    )


def _failure_rules(job: DGLJob) -> tuple[FailureRule, ...]:
    return job.spec.failure_policy.rules if job.spec.failure_policy else ()


def _has_no_zero(rule: FailureRule) -> bool:
    codes = rule.on_exit_codes
    return codes is None or codes.operator is ExitCodeOperator.NOT_IN or 0 not in codes.values


RULES = (
    Rule(
        at="",
        cel=f"self.metadata.name.size() <= {MAX_JOB_NAME} && self.metadata.name.matches('{NAME}')",
        holds=lambda job: len(_name(job)) <= MAX_JOB_NAME and re.fullmatch(NAME, _name(job)) is not None,
        message=f"expected at most {MAX_JOB_NAME} lower-case letters, digits and '-', beginning with a letter"
        " and ending with a letter or digit, since the names and labels of the pods are made from it",
        found=lambda job: f"{shown(_name(job))} with {len(_name(job))} characters",
        field=".metadata.name",
    ),
    Rule(
        at=SPECS,
        cel=f"self.all(role, role in {ROLES})",
        holds=lambda job: not job.spec.dgl_replica_specs.unknown,
        message="expected only the roles " + ", ".join(role.value for role in Role),
        found=lambda job: ", ".join(map(shown, job.spec.dgl_replica_specs.unknown[:8])),
    ),
    Rule(
        at=SPECS,
        cel="'Launcher' in self",
        holds=lambda _: True,  # the models demand it
        message="expected a Launcher, which starts the training and follows it",
        found=lambda _: "none",
        reason=Reason.REQUIRED,
    ),
    _one(Role.LAUNCHER),
    _one(Role.PARTITIONER),
    Rule(
        at="spec",
        cel="self.partitionMode == 'Skip' || 'Worker' in self.dglReplicaSpecs",
        holds=lambda job: not job.spec.partition_mode.has_workers or _replicas(job, Role.WORKER) > 0,
        message="expected a Worker, since only partitionMode Skip trains without workers",
        found=lambda job: f"none with {job.spec.partition_mode.value}",
        found_cel="'none with ' + self.partitionMode",
        field=".dglReplicaSpecs",
        reason=Reason.REQUIRED,
    ),
    _absent(Role.WORKER, (Mode.SKIP,), "the launcher trains alone"),
    _absent(Role.PARTITIONER, (Mode.SKIP, Mode.DIST_PARMETIS), "there is no partitioner pod then"),
    _of_failures(
        "has(rule.role) || has(rule.onExitCodes) || "
        "(has(rule.onPodConditions) && size(rule.onPodConditions) > 0)",
        lambda rule: bool(rule.role or rule.on_exit_codes or rule.on_pod_conditions),
        "expected each rule to have role, onExitCodes or onPodConditions",
    ),
    _of_failures(
        "!has(rule.onExitCodes) || !has(rule.onPodConditions) || size(rule.onPodConditions) == 0",
        lambda rule: not (rule.on_exit_codes and rule.on_pod_conditions),
        "expected each rule to have onExitCodes or onPodConditions, not both",
    ),
    _of_failures(
        "!has(rule.onExitCodes) || rule.onExitCodes.operator != 'In' || !(0 in rule.onExitCodes.values)",
        _has_no_zero,
        "expected no exit code 0 with operator In, since 0 is no failure",
    ),
    Rule(
        at="spec.datasetVolume",
        cel=f"self.mountPath.matches('{PATH}')",
        holds=lambda job: re.fullmatch(PATH, _mount_path(job)) is not None,
        message="expected an absolute path below / without '.', '..' and ':'",
        found=lambda job: shown(_mount_path(job)),
        field=".mountPath",
    ),
    Rule(
        at="spec",
        cel=f"self.partitionMode != 'Skip' || !{_GANG}",
        holds=lambda job: job.spec.partition_mode.has_workers or _gang(job) is None,
        message="expected no schedulingPolicy with partitionMode Skip, since there are no workers",
        found=lambda _: "one",
        field=".runPolicy",
        reason=Reason.FORBIDDEN,
    ),
    Rule(
        at="spec",
        cel=f"!{_GANG} || !has(self.runPolicy.schedulingPolicy.minAvailable) || "
        "!('Worker' in self.dglReplicaSpecs) || "
        "self.runPolicy.schedulingPolicy.minAvailable <= self.dglReplicaSpecs['Worker'].replicas",
        holds=lambda job: _min_available(job) <= max(1, _replicas(job, Role.WORKER)),
        message="expected minAvailable of at most Worker.replicas, since the gang is the workers alone",
        found=lambda job: f"{_min_available(job)} of {_replicas(job, Role.WORKER)}",
        field=".runPolicy.schedulingPolicy.minAvailable",
    ),
    Rule(
        at=SCHEDULING,
        cel="!has(self.queue) || self.queue == ''",
        holds=lambda job: not (gang := _gang(job)) or not gang.queue,
        message="expected no queue, since neither Kubernetes' own gang scheduling nor coscheduling has one",
        found=lambda job: shown(gang.queue if (gang := _gang(job)) else None),
        field=".queue",
        reason=Reason.FORBIDDEN,
    ),
)


def _gang(job: DGLJob) -> SchedulingPolicy | None:
    return job.spec.run_policy.scheduling_policy


def _min_available(job: DGLJob) -> int:
    """The number that the job gives, 0 where it gives none."""
    gang = _gang(job)
    return gang.min_available or 0 if gang else 0


def _mount_path(job: DGLJob) -> str:
    """The dataset volume's, a good one where there is none."""
    return job.spec.dataset_volume.mount_path if job.spec.dataset_volume else "/data"


def _name(job: DGLJob) -> str:
    return str(job.metadata.get("name", ""))


def _replicas(job: DGLJob, role: Role) -> int:
    spec = job.spec.dgl_replica_specs.of(role)
    return 0 if spec is None else spec.replicas


def _container_problems(role: Role, job: DGLJob) -> tuple[str, ...]:
    """What the schema says of `template.spec.containers`, for the operator."""
    spec = job.spec.dgl_replica_specs.of(role)
    if spec is None:
        return ()
    where = f"{SPECS}.{role.value}.template.spec.containers"
    if not spec.containers:
        return (f"{where}: expected at least one container, got none",)
    return tuple(f"{where}{problem}" for problem in _unnamed(spec))


def _unnamed(spec: ReplicaSpec) -> tuple[str, ...]:
    return tuple(
        f"[{index}].{key}: required, got nothing"
        for index, container in enumerate(spec.containers)
        for key in ("name", "image")
        if not (isinstance(container, dict) and container.get(key))
    )


def _quoted(text: str) -> str:
    """Return a CEL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
