"""Keeps a job's Workload of Kueue as it was decided, and reads what an admission gives to the pods."""

from collections.abc import Mapping

from dgl_operator.api.kueue import (
    API_VERSION,
    KIND,
    OF_PODS,
    OF_WORKLOADS,
    QUEUE_NAME,
    priority_class,
    workload_name,
)
from dgl_operator.domain import admission, fields
from dgl_operator.domain.admission import Assigned, Step
from dgl_operator.domain.observed import Problem, controller_uid
from dgl_operator.domain.verdict import Decision
from dgl_operator.render import workload as rendered
from dgl_operator.render.settings import Images
from dgl_operator.render.workload import POD_SETS, Placement, Priority
from dgl_operator.runtime.apply import Applier, prevented
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import AlreadyExists, Cluster, ClusterBusy, Conflict, NotFound, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.store import Store
from dgl_operator.runtime.view import View
from dglrun.contract.names import Role

NOT_ENABLED, NOT_INSTALLED = "KueueNotEnabled", "KueueNotInstalled"
CLASS_NOT_FOUND, FLAVOR_NOT_FOUND = "PriorityClassNotFound", "ResourceFlavorNotFound"
_WITHOUT_KUEUE = (
    f"label {QUEUE_NAME}: the operator runs without --kueue=true (the chart's value kueue.enabled)"
)
_UNSERVED = f"label {QUEUE_NAME}: the cluster serves no {API_VERSION} Workload"

_CLASSES = {
    OF_WORKLOADS: Kind.WORKLOAD_PRIORITY_CLASS,
    OF_PODS: Kind.PRIORITY_CLASS,
}


class Queueing:
    """Does for a DGLJob what Kueue's own controllers do for the kinds that it knows."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock, *, is_enabled: bool) -> None:
        self._cluster = cluster
        self._store = store
        self._applier = Applier(cluster, store)
        self._now = clock.now
        self._is_enabled = is_enabled

    def create(self, view: View, decision: Decision, images: Images) -> Problem | None:
        """Make the Workload where one is wanted; returns what prevents it."""
        if decision.workload is not Step.CREATE:
            return None
        if not self._is_enabled:
            return Problem(NOT_ENABLED, f"{_WITHOUT_KUEUE}; nobody would admit the job")
        priority = self._priority(view)
        if isinstance(priority, Problem):
            return priority
        return self._made(view, rendered.workload(view.job, images, priority))

    def act(self, view: View, decision: Decision) -> None:
        """Take the step that was decided, but for `CREATE`."""
        found = admission.workload(view.job, view.seen)
        if found is None or decision.workload in (None, Step.CREATE):
            return
        if decision.workload is Step.DELETE:
            self._applier.delete(Kind.WORKLOAD, view.namespace, [(found.name, found.uid)])
            self._store.drop(Kind.WORKLOAD, dict(view.seen.objects[KIND, found.name]))
            return
        raw = self._cluster.get(Kind.WORKLOAD, view.namespace, found.name)
        if raw is None or raw["metadata"]["uid"] != found.uid:
            return  # the watch will say so
        if not self._is_still_due(view, decision, raw):
            return
        now = self._now()
        if decision.workload is Step.RELEASE:
            change = admission.released(raw, now)
        else:
            change = admission.finished(raw, decision.phase, decision.message, now)
        self._store.put(Kind.WORKLOAD, self._cluster.patch_status(raw, change))

    def placements(self, view: View) -> Mapping[Role, Placement] | Problem:
        """What the pods of each role take from their admission; none for a job that waits in no queue."""
        found = admission.workload(view.job, view.seen)
        if not admission.is_counted(view.job, view.seen):
            return {}
        if found is None:
            return self._unheard() if admission.was_admitted(view.job) else {}
        placements = {}
        for role, name in POD_SETS.items():
            placement = self._placement(found.assigned.get(name, Assigned()))
            if isinstance(placement, Problem):
                return placement
            placements[role] = placement
        return placements

    def _unheard(self) -> Problem:
        """Say why a job that was admitted gets no further pods: their flavors are not known any more."""
        reason, words = (NOT_INSTALLED, _UNSERVED) if self._is_enabled else (NOT_ENABLED, _WITHOUT_KUEUE)
        return Problem(reason, f"{words}; the pods that are there stay, and the job gets no others")

    def _is_still_due(self, view: View, decision: Decision, raw: Json) -> bool:
        """Decide again on what was just read: no quota is given back twice for a late watch."""
        self._store.put_alive(Kind.WORKLOAD, raw)
        seen, is_final = self._store.seen(view.key).observed, decision.phase.is_final
        again = admission.next_step(view.job, seen, is_final=is_final, is_held=decision.is_held)
        return again is decision.workload

    def _made(self, view: View, body: Json) -> Problem | None:
        try:
            stored = self._cluster.create(body, strict=False)  # Kueue's schema is older than Kubernetes' own
        except AlreadyExists:
            return self._present(view)
        except NotFound as error:
            return Problem(NOT_INSTALLED, f"{_UNSERVED}; install Kueue or take the label off ({error})")
        except Conflict:
            raise  # the whole look is tried again
        except Refused as error:  # the name of the queue is none, a quota of objects is used up
            return _refused("Workload", body["metadata"]["name"], error)
        except ClusterBusy as error:  # Kueue's webhook cannot be called, perhaps
            if problem := prevented(error):
                return problem
            raise
        self._store.put(Kind.WORKLOAD, stored)
        return None

    def _placement(self, assigned: Assigned) -> Placement | Problem:
        flavors = []
        for name in assigned.flavors:
            try:
                flavor = self._cluster.get(Kind.RESOURCE_FLAVOR, None, name)
            except Refused as error:
                return _refused("ResourceFlavor", name, error)
            if flavor is None:
                return Problem(
                    FLAVOR_NOT_FOUND, f"ResourceFlavor {name}, by which the job was admitted, is gone"
                )
            flavors.append(flavor)
        return rendered.placement(flavors, assigned.updates)

    def _priority(self, view: View) -> Priority | Problem:
        source, name = priority_class(view.job)
        if not name:
            return Priority()
        kind = _CLASSES[source]
        try:
            found = self._cluster.get(kind, None, name)
        except Refused as error:
            return _refused(kind.value[0], name, error)
        if found is None:
            return Problem(CLASS_NOT_FOUND, f"{kind.value[0]} {name}, which the job names, does not exist")
        return Priority(source, name, fields.whole(found.get("value")) or 0)

    def _present(self, view: View) -> Problem | None:
        """Take a Workload that was not seen yet as ours, and leave another's alone."""
        name = workload_name(view.key.name)
        found = self._cluster.get(Kind.WORKLOAD, view.namespace, name)
        if found is not None and controller_uid(found) == view.uid:
            self._store.put_alive(Kind.WORKLOAD, found)
            return None
        return Problem(
            "ObjectConflict", f"Workload {name} exists and is not of this job; delete it or rename the job"
        )


def _refused(kind: str, name: str, error: Refused) -> Problem:
    return Problem(error.reason or "Refused", f"{kind} {name}: {error}")
