"""One look at one job: read, decide, render, apply, report once; why it was called does not matter."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from dgl_operator.api.v1alpha1 import DGLJob, InvalidJob, JobStatus, Phase, ReplicaStatus
from dgl_operator.domain import decide, events, report, status, validate
from dgl_operator.domain.decide import Decision
from dgl_operator.domain.observed import Observed, Problem
from dgl_operator.domain.report import Report
from dgl_operator.render import config, desired
from dgl_operator.render.config import Addresses
from dgl_operator.render.settings import Images
from dgl_operator.runtime.apply import Applier
from dgl_operator.runtime.cluster import Cluster, ClusterBusy, Conflict, NotFound, Place, Refused
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.notice import notice
from dgl_operator.runtime.nudge import Nudger
from dgl_operator.runtime.queue import Outcome
from dgl_operator.runtime.store import Store
from dglrun.contract import names
from dglrun.contract.names import Mode, Role

log = logging.getLogger(__name__)

REPORT_SECONDS = 3.0
"""A job's progress reaches its status at most so often."""


def utc_now() -> datetime:
    """Whole seconds, as the API server stores times."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True)
class View:
    """A job and what is seen of it, read together."""

    job: DGLJob
    seen: Observed
    said: Report

    @classmethod
    def of(cls, raw: Json, children: tuple[Json, ...]) -> "View":
        """Parse both.

        Raises:
            InvalidJob: the job has another shape.
        """
        job = DGLJob.parse(raw)
        seen = Observed.of(children, raw["metadata"]["uid"], raw["metadata"]["name"])
        return cls(job, seen, report.read(seen.report(names.report(raw["metadata"]["name"]))))

    def decide(self) -> Decision:
        """Decide on what is seen."""
        return decide.decide(self.job, self.seen, self.said)

    def addresses(self) -> Addresses:
        """Addresses of the pods that stay."""
        found = {pod.name: pod.ip for pod in self.seen.pods if not pod.deleting}
        one = {role: next(iter(decide.wanted(self.job, role)), "") for role in Role}
        workers = tuple(found.get(name) for name in decide.wanted(self.job, Role.WORKER))
        return Addresses(found.get(one[Role.LAUNCHER]), found.get(one[Role.PARTITIONER]), workers)


class Reconciler:
    """Brings one job a step on. Safe to call from several threads for different jobs."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        images: Images,
        metrics: Metrics,
        modes: frozenset[Mode] = validate.SUPPORTED_MODES,
        clock: Callable[[], datetime] = utc_now,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._images = images
        self._metrics = metrics
        self._modes = modes
        self._clock = clock
        self._applier = Applier(cluster, store)
        self._nudger = Nudger(cluster, store)
        self._reported: dict[Key, float] = {}

    def __call__(self, key: Key) -> Outcome:
        """Look at a job.

        Raises:
            ClusterBusy: the API server could not answer; try again later.
        """
        with self._metrics.seconds.time():
            try:
                return self._look(key)
            except (NotFound, Conflict) as error:  # deleted or replaced while we looked
                log.info("%s/%s: %s", *key, error)
                return Outcome(retry=True)
            except Refused as error:
                log.exception("%s/%s: refused", *key)
                self._metrics.errors.inc()
                self._show_refusal(key, error)
                return Outcome(retry=True)
            except ClusterBusy:
                self._metrics.errors.inc()
                raise

    def _look(self, key: Key) -> Outcome:
        raw = self._store.job(key)
        if raw is None or _is_leaving(raw):
            self._reported.pop(key, None)
            return Outcome()
        if _status(raw).phase is None and (no := self._objection(raw)):
            return self._report(raw, no, {}, status.NO_REPORT)
        try:
            view = View.of(raw, self._store.children(key))
        except InvalidJob:
            if _has_ended(raw):
                return Outcome()  # refused for its shape, which has not become better
            raise
        decision = view.decide()
        if decision.is_weighty(view.job.status):
            fresh = self._fresh(key)
            if fresh is None:
                return Outcome()
            raw, view = fresh
            decision = view.decide()
        return self._act(raw, view, decision)

    def _show_refusal(self, key: Key, error: Refused) -> None:
        """Say on the job that the operator may not do what it needs, if that at least is allowed."""
        raw = self._store.job(key)
        if raw is None or _has_ended(raw):
            return
        last = _status(raw)
        bare = Decision(last.phase or Phase.PENDING, "")
        hindered = decide.blocked(bare, Problem(error.reason or "Refused", str(error)))
        try:
            self._report(raw, hindered, last.replica_statuses, status.NO_REPORT)
        except (ClusterBusy, Refused) as again:
            log.warning("%s/%s: refusal not shown: %s", *key, again)

    def _objection(self, raw: Json) -> Decision | None:
        """Say why a new job cannot run at all."""
        try:
            job = DGLJob.parse(raw)
            if problems := validate.problems(job):
                return decide.reject(validate.INVALID_SPEC, problems)
            roles = frozenset(role for role in Role if decide.wanted(job, role))
            desired.pods(job, roles, self._images)
        except InvalidJob as error:
            return decide.reject(validate.INVALID_SPEC, error.problems)
        except Exception as error:
            return self._unforeseen(raw, error)
        unsupported = validate.unsupported(job, self._modes)
        return decide.reject(validate.UNSUPPORTED, [unsupported]) if unsupported else None

    def _unforeseen(self, raw: Json, error: Exception) -> Decision:
        """A template that no check foresaw: a bug of ours, loud here, and yet the job must have an end."""
        log.exception("%s/%s: the job's templates cannot be rendered", *Key.of_job(raw))
        self._metrics.errors.inc()
        what = f"the templates cannot be rendered: {type(error).__name__}: {error}"
        return decide.reject(validate.INVALID_SPEC, [what])

    def _fresh(self, key: Key) -> tuple[Json, View] | None:
        """Read past the watches before something ends or is deleted; None when the job is gone."""
        raw = self._cluster.get(Kind.JOB, *key)
        if raw is None:
            self._store.forget(key)
            return None
        self._store.put(Kind.JOB, raw)
        pods = self._cluster.list(Kind.POD, key.namespace, key.name)
        self._store.replace(Kind.POD, pods, lambda listed: listed == key)
        return None if _is_leaving(raw) else (raw, View.of(raw, self._store.children(key)))

    def _act(self, raw: Json, view: View, decision: Decision) -> Outcome:
        problem, recheck, seen = None, None, view.seen
        if not decision.phase.is_final:
            problem, recheck = self._provide(view, decision)
            decision = _with_problem(decision, problem, view.job.status)
            children = self._store.children(Key.of_job(raw))
            seen = Observed.of(children, raw["metadata"]["uid"], raw["metadata"]["name"])
        outcome = self._report(raw, decision, status.count(view.job, seen), view.said)
        for pod in (*decision.drop, *decision.stop):
            self._cluster.delete(Kind.POD, Place(raw["metadata"]["namespace"], pod.name, pod.uid))
        if problem and not decision.phase.is_final:
            return Outcome(recheck, retry=True)
        return outcome.or_sooner(recheck)

    def _provide(self, view: View, decision: Decision) -> tuple[Problem | None, float | None]:
        """Make what is wanted exist; returns what prevents it and when to look again."""
        job, uid = view.job, str(view.job.metadata["uid"])
        present = frozenset(pod.name for pod in view.seen.pods)
        objects = desired.objects(job, view.addresses())
        if problem := self._applier.objects(objects, view.seen, uid):
            return problem, None
        digest = _config_digest(objects)
        lacking = [
            _annotated(pod, digest) for pod in desired.pods(job, decision.roles, self._images, present)
        ]
        if not view.seen.pods and (problem := self._rehearse(job, decision)):
            return problem, None
        problem = self._applier.pods(lacking, uid) if lacking else None
        key = Key(job.metadata["namespace"], job.metadata["name"])
        now = Observed.of(self._store.children(key), uid, key.name)
        own = frozenset(pod.name for pod in now.pods)
        problem = problem or self._applier.objects(desired.rights(job, own), now, uid)
        try:
            return problem, self._nudger.nudge(key, view.seen.one(Role.LAUNCHER), digest)
        except Refused as error:  # the launcher then starts with the kubelet's next refresh, a minute later
            return problem or Problem(error.reason or "Refused", f"annotation of the launcher: {error}"), None

    def _rehearse(self, job: DGLJob, decision: Decision) -> Problem | None:
        """Try a worker before the hours of partitioning, after which the real ones are made."""
        later = frozenset({Role.WORKER}) - decision.roles
        if not later or not job.spec.partition_mode.has_workers:
            return None
        return self._applier.rehearse(desired.pods(job, later, self._images)[0])

    def _report(
        self, raw: Json, decision: Decision, replicas: dict[str, ReplicaStatus], said: Report
    ) -> Outcome:
        """Write the status if it changed, then tell of it."""
        key = Key.of_job(raw)
        old = _status(raw)
        generation = int(raw["metadata"].get("generation", 1))
        new = status.next_status(old, generation, decision, replicas, said, self._clock())
        if new == old:
            return Outcome()
        if wait := self._too_early(key, old, new):
            return Outcome(recheck_after=wait)
        self._store.put(Kind.JOB, self._write(raw, new))
        self._tell(raw, old, new)
        return Outcome(recheck_after=0.0) if new.phase is not old.phase else Outcome()

    def _write(self, raw: Json, new: JobStatus) -> Json:
        """Write the status; what the job reported must never keep its end from being written."""
        try:
            return self._cluster.write_status(raw, new.wire())
        except Refused as error:
            if error.status not in (400, 422):
                raise
            log.exception("%s/%s: status refused, written without the job's report", *Key.of_job(raw))
            bare = new.model_copy(update={"progress": None, "partition": None})
            return self._cluster.write_status(raw, bare.wire())

    def _too_early(self, key: Key, old: JobStatus, new: JobStatus) -> float:
        """Seconds until a change of the progress alone may be written."""
        bare = {"progress": None, "partition": None, "last_reconcile_time": None}
        if old.model_copy(update=bare) != new.model_copy(update=bare):
            return 0.0
        now = time.monotonic()
        wait = self._reported.get(key, now - REPORT_SECONDS) + REPORT_SECONDS - now
        if wait <= 0:
            self._reported[key] = now
        return max(wait, 0.0)

    def _tell(self, raw: Json, old: JobStatus, new: JobStatus) -> None:
        found = events.between(old, new)
        self._metrics.note(old, new, found[-1].reason if found else "")
        for event in found:
            log.info("%s/%s: %s: %s", *Key.of_job(raw), event.reason, event.message)
            try:
                self._cluster.post_event(notice(raw, event, self._clock()))
            except (ClusterBusy, Refused) as error:
                log.warning("%s/%s: event %s not posted: %s", *Key.of_job(raw), event.reason, error)


def _has_ended(raw: Json) -> bool:
    phase = _status(raw).phase
    return phase is not None and phase.is_final


def _status(raw: Json) -> JobStatus:
    """The last status; one that cannot be read is a bug, of this or of a newer operator, and is loud."""
    return JobStatus.model_validate(raw.get("status") or {})


def _is_leaving(raw: Json) -> bool:
    return "deletionTimestamp" in raw["metadata"]


def _with_problem(decision: Decision, problem: Problem | None, last: JobStatus) -> Decision:
    """Turn what prevents the job into its status; a template that is no pod ends it."""
    if problem is None:
        return decision
    if problem.reason == validate.INVALID_SPEC:
        return decide.unblocked(decide.reject(problem.reason, [problem.message]), last)
    return decide.blocked(decision, problem)


def _config_digest(objects: tuple[Json, ...]) -> str | None:
    return next((config.digest(each["data"]) for each in objects if "data" in each), None)


def _annotated(pod: Json, digest: str | None) -> Json:
    """Give a new launcher the hash of the ConfigMap that it starts with."""
    metadata = pod["metadata"]
    if digest is None or metadata["labels"][names.LABEL_REPLICA_TYPE] != Role.LAUNCHER.value:
        return pod
    annotations = {**metadata["annotations"], names.ANNOTATION_CONFIG_HASH: digest}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}
