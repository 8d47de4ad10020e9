"""One look at one job: read, decide, render, apply, report; why it was called does not matter."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from dgl_operator.api.gang import GangApi
from dgl_operator.api.v1alpha1 import MANAGER, DGLJob, InvalidJob, JobStatus, Phase
from dgl_operator.domain import clean_up, clocks, decide, status, validate, verdict
from dgl_operator.domain.observed import Observed, Pod, Problem
from dgl_operator.domain.verdict import FAILED, INVALID_NETWORK_POLICY, Decision, wanted
from dgl_operator.render import config, desired, workload
from dgl_operator.render.settings import Rendering
from dgl_operator.render.workload import Placement
from dgl_operator.runtime.apply import Applier, prevented
from dgl_operator.runtime.clock import SYSTEM_CLOCK, Clock
from dgl_operator.runtime.cluster import Cluster, ClusterBusy, Conflict, NotFound, Place, Refused
from dgl_operator.runtime.configmap_sync import ConfigMapSync
from dgl_operator.runtime.creations import Creations
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.fresh_reader import FreshReader
from dgl_operator.runtime.gangs import Gangs
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.nodes import Nodes
from dgl_operator.runtime.queue import Outcome
from dgl_operator.runtime.queueing import Queueing
from dgl_operator.runtime.rehearsal import Rehearsal
from dgl_operator.runtime.status_writer import IDLE, Load, StatusWriter
from dgl_operator.runtime.store import MANAGED_BY, SPEC_BYTES, SPEC_SIZE, Store
from dgl_operator.runtime.view import View, readable
from dglrun.contract import names, report
from dglrun.contract.names import Mode, Role

log = logging.getLogger(__name__)

INTERNAL_ERROR = "InternalError"
UNREADABLE_OBJECT = "UnreadableObject"


class Reconciler:
    """Brings one job a step on. Safe to call from several threads for different jobs."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        rendering: Rendering,
        metrics: Metrics,
        modes: frozenset[Mode] = validate.SUPPORTED_MODES,
        clock: Clock = SYSTEM_CLOCK,
        load: Load = IDLE,
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._rendering = rendering
        self._metrics = metrics
        self._modes = modes
        self._now = clock.now
        self._applier = Applier(cluster, store)
        self._reader = FreshReader(cluster, store, self._applier, reads_workloads=rendering.has_kueue)
        self._queueing = Queueing(cluster, store, clock, is_enabled=rendering.has_kueue)
        self._rehearsal = Rehearsal(self._applier, clock)
        self._writer = StatusWriter(cluster, store, metrics, clock, load)
        self._sync = ConfigMapSync(cluster, store, clock)
        self._nodes = Nodes(cluster, clock)
        self._creations = Creations(clock)
        self._gangs = Gangs(cluster, self._applier, clock)

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
                problem = Problem(error.reason or "Refused", str(error))
                self._show(key, lambda bare: verdict.blocked(bare, problem))
                return Outcome(retry=True)
            except ClusterBusy:
                self._metrics.errors.inc()
                raise
            except Exception as error:  # a bug: shown on its job, counted, logged whole by the queue
                self._metrics.errors.inc()
                what = f"{type(error).__name__}: {error}"
                self._show(key, lambda bare: verdict.stalled(bare, INTERNAL_ERROR, what))
                raise

    def _look(self, key: Key) -> Outcome:
        raw = self._raw(key)
        if raw is None or "deletionTimestamp" in raw["metadata"] or _is_of_another(raw):
            self._forget(key)
            return Outcome()
        rejected = self._rejected(raw)
        return self._reject(raw, rejected) if rejected else self._decide(key, raw)

    def _decide(self, key: Key, raw: Json) -> Outcome:
        """Decide, on a fresh read where something ends, and act on it."""
        try:
            view = View.of(raw, self._store.seen(key), self._now())
        except InvalidJob:
            if _has_ended(raw):
                return Outcome()  # refused for its shape, which has not become better
            raise
        decision = view.decide()
        if decision.needs_fresh_read(view.job.status):
            fresh = self._reader.fresh(view)
            if fresh is None:
                self._forget(key)  # it is gone or going: what the watch brings of it calls for nothing here
                return Outcome()
            if fresh.uid != view.uid:  # a new job of the name, which is to be validated like any other
                return Outcome(recheck_after=0.0)
            view, decision = fresh, fresh.decide()
        elif decision.is_certain:
            view = self._reader.with_report(view)
        if decision.phase.is_final:
            return self._end(view, decision)
        return self._hold(view, decision) if decision.is_held else self._go_on(view, decision)

    def _forget(self, key: Key) -> None:
        """Forget a job that is gone or no concern of ours any more."""
        self._writer.forget(key)
        self._creations.forget(key)
        self._sync.forget(key)

    def _raw(self, key: Key) -> Json | None:
        """The job, with its spec: one too large to be kept is read now, unless it is refused for its size."""
        raw = readable(self._store.job(key))
        if raw is None or SPEC_SIZE not in raw or _is_too_large(raw) or _is_of_another(raw):
            return raw
        found = self._cluster.get(Kind.JOB, *key)
        if found is None:
            self._store.drop(Kind.JOB, raw)
            return None
        self._store.put(Kind.JOB, found)  # a successor of the name has none of the children that are known
        return readable(found)

    def _rejected(self, raw: Json) -> Decision | None:
        """Say why a new job cannot run at all, or why one that we cannot read stalls."""
        phase = _status(raw).phase
        if UNREADABLE in raw:
            if phase is None:
                return decide.reject(validate.INVALID_SPEC, [raw[UNREADABLE]])
            return verdict.stalled(Decision(phase, ""), UNREADABLE_OBJECT, raw[UNREADABLE])
        if phase is not None:
            return None
        if _is_too_large(raw):
            size = f"spec: expected at most {SPEC_BYTES} bytes of JSON, got {raw[SPEC_SIZE]}"
            return decide.reject(validate.INVALID_SPEC, [size])
        return self._objection(raw)

    def _objection(self, raw: Json) -> Decision | None:
        try:
            job = DGLJob.parse(raw)
            if problems := validate.problems(job):
                return decide.reject(validate.INVALID_SPEC, problems)
            roles = frozenset(role for role in Role if wanted(job, role))
            desired.first_pods(job, roles, self._rendering.images)
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

    def _reject(self, raw: Json, decision: Decision) -> Outcome:
        old = _status(raw)
        if old.phase is not None and old.phase.is_final:
            return Outcome()
        self._writer.write(raw, old, self._bare_status(raw, old, decision))
        return Outcome(recheck_after=0.0) if decision.phase.is_final else Outcome()

    def _bare_status(self, raw: Json, old: JobStatus, decision: Decision) -> JobStatus:
        """The status of a job whose pods are not looked at."""
        generation = int(raw["metadata"].get("generation", 1))
        return status.next_status(
            old, generation, decision, old.replica_statuses, status.NO_REPORT, self._now()
        )

    def _show(self, key: Key, show: Callable[[Decision], Decision]) -> None:
        """Say on the job what prevents every look at it, if that at least is possible."""
        try:
            raw = readable(self._store.job(key))
            if raw is None or _has_ended(raw):
                return
            old = _status(raw)
            decision = show(Decision(old.phase or Phase.PENDING, ""))
            self._writer.write(raw, old, self._bare_status(raw, old, decision))
        except Exception as again:  # the first error counts, and is raised or logged by the caller
            log.warning("%s/%s: not shown in the status: %s", *key, again)

    def _end(self, view: View, decision: Decision) -> Outcome:
        """Write the end as it is when the clean-up is done, then clean up: nothing is deleted before."""
        self._creations.forget(view.key)
        failed = next((fact.reason for fact in decision.facts if fact.type == FAILED and fact.is_true), "")
        clean = decision
        if decision.phase is not view.job.status.phase:
            clean = clean_up.clean_up(view.job, decision.phase, view.seen, failed)
        leaving = (pod for pod in view.seen.pods if pod.deleting)
        ended = replace(view, known=view.known.without((*clean.drop, *leaving)))
        decision = clean_up.ended(decision, view.job, ended.seen)
        after = ended.status(decision)
        raw, wait = self._writer.write(view.raw, view.job.status, after)
        _each(
            lambda: self._withdraw(desired.rights_names(view.job), view.seen, view.namespace, keep=()),
            lambda: self._delete(view, clean.drop),
            lambda: self._applier.stop(view.namespace, clean.stop),
            # The Workload goes with a job that is deleted: what refuses its status must not keep the job.
            lambda: None if decision.is_expired else self._queueing.act(view, decision),
        )
        if decision.is_expired:
            log.info("%s/%s: deleted after ttlSecondsAfterFinished", *view.key)
            self._cluster.delete_job(raw)
            return Outcome()
        expiry = clocks.expiry(view.job, after.completion_time)
        return Outcome(recheck_after=wait or None).or_sooner(_seconds(expiry, view.now))

    def _hold(self, view: View, decision: Decision) -> Outcome:
        """Write why the job has no pods for now, then take them away: nothing is deleted before."""
        problem = self._queueing.create(view, decision, self._rendering.images)
        decision = verdict.unstalled(decision, view.job.status)
        decision = _with_problem(decision, problem, view.job.status)
        _, wait = self._writer.write(view.raw, view.job.status, view.status(decision))
        _each(
            lambda: self._withdraw(desired.rights_names(view.job), view.seen, view.namespace, keep=()),
            lambda: self._delete(view, decision.drop),
            lambda: self._force(view, decision.overdue),
            lambda: self._queueing.act(view, decision),
        )
        again = _seconds(decision.look_again, view.now)
        return Outcome(recheck_after=wait or None, retry=problem is not None).or_sooner(again)

    def _delete(self, view: View, pods: Iterable[Pod]) -> None:
        self._applier.delete(Kind.POD, view.namespace, [(pod.name, pod.uid) for pod in pods])

    def _force(self, view: View, overdue: Iterable[Pod]) -> None:
        """Delete what waits on a node that is gone for somebody to say that its containers have ended."""
        nodes = {pod.node for pod in overdue}
        gone = {node for node in nodes if self._nodes.is_gone(node, view.now)}
        doomed = [(pod.name, pod.uid) for pod in overdue if pod.node in gone]
        self._applier.delete(Kind.POD, view.namespace, doomed, force=True)

    def _withdraw(
        self, known: Iterable[tuple[str, str]], seen: Observed, namespace: str, keep: Iterable[Json]
    ) -> None:
        """Delete those of the objects, given by kind and name, that the job must not have (any more)."""
        kept = {(body["kind"], body["metadata"]["name"]) for body in keep}
        for kind, name in known:
            found = seen.objects.get((kind, name))
            if found and (kind, name) not in kept:
                self._applier.delete(Kind.of(found), namespace, [(name, found["metadata"]["uid"])])
                self._store.drop(Kind.of(found), dict(found))  # else the next look would ask again

    def _go_on(self, view: View, decision: Decision) -> Outcome:
        """Provide what the job needs now; what can never be undone is written down before."""
        if status.irrevocable(view.job.status, decision):
            raw, _ = self._writer.write(view.raw, view.job.status, view.status(decision))
            view = View.of(readable(raw), self._store.seen(view.key, view.known), view.now)
            decision = view.decide()  # a pod may be gone since: what was decided would make it anew
            if decision.phase.is_final or decision.is_held or decision.needs_fresh_read(view.job.status):
                return Outcome(recheck_after=0.0)
        self._queueing.act(view, decision)
        self._delete(view, decision.drop)
        self._force(view, decision.overdue)
        for pod in decision.relabel:
            self._applier.relabel(Place(view.namespace, pod.name, pod.uid), pod.attempt)
        try:
            problem, recheck = self._provide(view, decision)
        except ClusterBusy as error:
            if shown := prevented(error):
                self._report(*self._of_one_moment(view, decision, *self._after(view, decision)), shown)
            raise
        after, again = self._after(view, decision)
        # An answer to our own write may show more than it changed. The watch brings the same, which is no
        # news then, so that no event calls for the look that it needs.
        is_behind = (
            again.is_held or again.phase is not decision.phase or after.addresses() != view.addresses()
        )
        decision, wait = self._report(*self._of_one_moment(view, decision, after, again), problem)
        if problem and not decision.phase.is_final and not _is_of_an_edit(problem):
            outcome = Outcome(retry=True)
        else:
            is_next = is_behind or (not wait and decision.phase is not view.job.status.phase)
            outcome = Outcome(recheck_after=0.0) if is_next else Outcome()
        due = _seconds(decision.look_again, view.now)
        return outcome.or_sooner(recheck).or_sooner(wait or None).or_sooner(due)

    def _report(self, view: View, decision: Decision, problem: Problem | None) -> tuple[Decision, float]:
        """Write the status; returns what it says and when a minor change may be written."""
        decision = _with_problem(decision, problem, view.job.status)
        decision = verdict.unstalled(decision, view.job.status)
        return decision, self._writer.write(view.raw, view.job.status, view.status(decision))[1]

    @staticmethod
    def _of_one_moment(view: View, decision: Decision, after: View, again: Decision) -> tuple[View, Decision]:
        """See the pods that were just created; where they lead to another phase, the next look says so.

        Numbers and conditions of a status are of one moment.
        """
        if again.is_held or again.phase is not decision.phase:
            return view, decision
        return after, replace(again, life=decision.life)  # which counts the pods that have just been deleted

    def _after(self, view: View, decision: Decision) -> tuple[View, Decision]:
        """What is seen when our own writes are done, and what would be decided on it."""
        after = replace(view, known=self._store.seen(view.key, view.known))
        return after, decision if after.known is view.known else after.decide()

    def _provide(self, view: View, decision: Decision) -> tuple[Problem | None, float | None]:
        """Make what is wanted exist; returns what prevents it and when to look again."""
        job = view.job
        view = self._with_own_report(view)
        objects = desired.objects(job, view.addresses())
        gang, problem = self._gangs.provide(view, decision.roles)
        problem = problem or self._applier.objects(objects, view.seen, view.uid) or self._guard(view)
        if problem is None and not view.seen.pods:
            problem = self._rehearse(job, decision, gang)
        if problem:
            self._narrow(view)
            return problem, None
        digest = _config_digest(objects)
        problem, wait = self._pods(view, decision, digest, gang)
        problem = self._grant(view) or problem
        try:
            again = self._sync.sync(view.key, view.seen.one(Role.LAUNCHER), digest)
            return problem, Outcome(again).or_sooner(wait).recheck_after
        except Refused as error:  # the launcher then starts with the kubelet's next refresh, a minute later
            return problem or Problem(error.reason or "Refused", f"annotation of the launcher: {error}"), None

    def _pods(
        self, view: View, decision: Decision, digest: str | None, gang: GangApi | None
    ) -> tuple[Problem | None, float | None]:
        """Create pods that are wanted and absent; returns what prevents it and when another may be made."""
        known = view.key, view.uid, view.job.status.attempt
        present = frozenset(pod.name for pod in view.seen.pods)
        self._creations.note(*known, view.seen.pods)
        waits = self._creations.waits(*known)
        held = {name: wait for name, wait in waits.items() if name not in present}
        images = self._rendering.images
        lacking = desired.pods(view.job, decision.roles, images, present | set(held), gang)
        needed = {name for role in decision.roles for name in wanted(view.job, role)}
        placements = self._queueing.placements(view) if needed - present - set(held) else {}
        if isinstance(placements, Problem):
            return placements, None
        pods = (_placed(_annotated(pod, digest), placements) for pod in lacking)
        problem = self._applier.pods(pods, view.uid, strict=not view.is_under_way)
        self._creations.note(*known, self._store.seen(view.key, view.known).observed.pods)
        return problem, min(held.values(), default=None)

    def _with_own_report(self, view: View) -> View:
        """Let the report begin anew with the attempt: what the last one said of its progress goes."""
        key, name = view.key, names.report(view.key.name)
        found = view.seen.objects.get((Kind.CONFIG_MAP.value[0], name))
        attempt = view.job.status.attempt
        if found is None or view.seen.report_attempt(name) == attempt:
            return view
        place = Place(key.namespace, name, found["metadata"]["uid"])
        labels = {"labels": {names.LABEL_ATTEMPT: str(attempt)}}
        if stored := self._cluster.mark(Kind.CONFIG_MAP, place, labels, without=(report.PROGRESS,)):
            self._store.put(Kind.CONFIG_MAP, stored)
        return View.of(view.raw, self._store.seen(key, view.known), view.now)

    def _guard(self, view: View) -> Problem | None:
        """Provide the job's NetworkPolicy before its pods, or delete the one that it wants no longer.

        Rules that cannot be end a job that has had no pods yet. Of a job under way they are an edit, which
        must not cost the work that is done: its pods go on under the rules that it had, and get no others.
        """
        wanted = desired.policies(view.job, self._rendering)
        known = desired.policies_names(view.job)
        self._withdraw(known, view.seen, view.namespace, keep=wanted)
        problem = self._applier.policies(wanted, view.seen, view.uid)
        if problem and problem.reason == validate.INVALID_SPEC and view.is_under_way:
            return Problem(INVALID_NETWORK_POLICY, problem.message)
        return problem

    def _grant(self, view: View) -> Problem | None:
        """Give the job's accounts rights over those pods that are there and the job's own, and no other."""
        seen = self._store.seen(view.key, view.known).observed
        wanted = _rights(view.job, seen)
        self._withdraw(desired.rights_names(view.job), seen, view.namespace, keep=wanted)
        return self._applier.rights(wanted, seen, view.uid)

    def _narrow(self, view: View) -> None:
        """Correct the rights that are there, which an older operator may have given, and give no new ones."""
        wanted = _rights(view.job, view.seen)
        self._withdraw(desired.rights_names(view.job), view.seen, view.namespace, keep=wanted)
        there = [body for body in wanted if (body["kind"], body["metadata"]["name"]) in view.seen.objects]
        self._applier.rights(there, view.seen, view.uid)

    def _rehearse(self, job: DGLJob, decision: Decision, gang: GangApi | None) -> Problem | None:
        """Try a worker before the hours of partitioning, after which the real ones are made."""
        later = frozenset({Role.WORKER}) - decision.roles
        if not later or not job.spec.partition_mode.has_workers:
            return None
        return self._rehearsal(desired.first_pods(job, later, self._rendering.images, gang)[0])


def _rights(job: DGLJob, seen: Observed) -> tuple[Json, ...]:
    return desired.rights(job, frozenset(pod.name for pod in seen.pods if not pod.deleting))


def _each(*steps: Callable[[], None]) -> None:
    """Take every step, whatever becomes of the others, and raise the first error at the end."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except (ClusterBusy, Refused) as error:
            first = first or error
    if first:
        raise first


def _is_of_an_edit(problem: Problem) -> bool:
    """Whether only another edit of the job can solve it, so that it is not tried again before."""
    return problem.reason == INVALID_NETWORK_POLICY


def _is_of_another(raw: Json) -> bool:
    """Whether another controller looks after the job, which this one then leaves alone."""
    return raw.get(MANAGED_BY) not in (None, MANAGER)


def _seconds(due: datetime | None, now: datetime) -> float | None:
    return None if due is None else max(0.0, (due - now).total_seconds())


def _is_too_large(raw: Json) -> bool:
    """Rules for the size of a spec are for new jobs."""
    return _status(raw).phase is None and raw.get(SPEC_SIZE, 0) > SPEC_BYTES


def _has_ended(raw: Json) -> bool:
    phase = _status(raw).phase
    return phase is not None and phase.is_final


def _status(raw: Json) -> JobStatus:
    return JobStatus.model_validate(raw.get("status") or {})


def _with_problem(decision: Decision, problem: Problem | None, last: JobStatus) -> Decision:
    """Turn what prevents the job into its status; a template that is no pod ends it."""
    if problem is None:
        return decision
    if problem.reason == validate.INVALID_SPEC:
        return verdict.unblocked(decide.reject(problem.reason, [problem.message]), last)
    return verdict.blocked(decision, problem)


def _config_digest(objects: tuple[Json, ...]) -> str | None:
    """Hash of the file that a waiting launcher waits for."""
    data = next((each["data"] for each in objects if "data" in each), None)
    return None if data is None else config.digest({names.HOSTFILE: data[names.HOSTFILE]})


def _placed(pod: Json, placements: Mapping[Role, Placement]) -> Json:
    """Give a pod what Kueue's admission of its role adds to it."""
    placement = placements.get(Role(pod["metadata"]["labels"][names.LABEL_REPLICA_TYPE]))
    return workload.placed(pod, placement) if placement else pod


def _annotated(pod: Json, digest: str | None) -> Json:
    """Give a new launcher the hash of the ConfigMap that it starts with."""
    metadata = pod["metadata"]
    if digest is None or metadata["labels"][names.LABEL_REPLICA_TYPE] != Role.LAUNCHER.value:
        return pod
    annotations = {**metadata["annotations"], names.ANNOTATION_CONFIG_HASH: digest}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}
