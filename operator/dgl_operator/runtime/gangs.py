"""Provides the PodGroup of a job's workers in the API that the cluster has.

PodGroups are not watched: their APIs are optional, and a job without a schedulingPolicy costs no request.
"""

import threading

from dgl_operator.api.gang import DEFAULT_SCHEDULER, GangApi
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.domain import gang
from dgl_operator.domain.observed import Problem, controller_uid
from dgl_operator.render import gang as rendered
from dgl_operator.runtime.apply import Applier
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import Cluster, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.view import View
from dglrun.contract import names
from dglrun.contract.names import Role

SERVED_SECONDS = 300.0
"""So long an API that was found counts as served; one that was not is looked for each time."""
KINDS = {GangApi.KUBERNETES: Kind.POD_GROUP, GangApi.COSCHEDULING: Kind.COSCHEDULING_POD_GROUP}


class Gangs:
    """Finds out by which API workers are scheduled together, and makes their group. Safe for threads."""

    def __init__(self, cluster: Cluster, applier: Applier, clock: Clock) -> None:
        self._cluster = cluster
        self._applier = applier
        self._clock = clock
        self._lock = threading.Lock()
        self._served: dict[GangApi, float] = {}

    def provide(self, view: View, roles: frozenset[Role]) -> tuple[GangApi | None, Problem | None]:
        """Make sure that the job's group is there while it counts.

        Returns:
            The API by which workers that are created now join it, None where none join; and what prevents it.

        Raises:
            ClusterBusy: the API server could not answer.
        """
        if not gang.is_needed(view.job, view.seen, roles):
            return None, None
        try:
            return self._provide(view)
        except Refused as error:
            name = names.pod_group(view.key.name)
            return None, Problem(error.reason or "Refused", f"PodGroup {name}: {error}")

    def _provide(self, view: View) -> tuple[GangApi | None, Problem | None]:
        served: list[GangApi] = []
        for api in filter(self._is_served, GangApi):
            found = self._cluster.get(KINDS[api], view.namespace, names.pod_group(view.key.name))
            if found is not None and controller_uid(found) == view.uid:
                return api, self._leaving(view, found)  # which it began with, whatever was installed since
            served.append(api)
        if not served:
            return None, gang.unavailable()
        # A scheduler that is named beside the cluster's own is one of scheduler-plugins, as far as is known;
        # the cluster's own honours the first API, and the second where there is no other.
        usable = served[::-1] if _names_scheduler(view.job) else served[:1]
        best = next((api for api in usable if gang.unsupported(view.job, api) is None), None)
        if best is None:
            return None, gang.unsupported(view.job, served[0])
        return best, self._applier.objects([rendered.pod_group(view.job, best)], view.seen, view.uid)

    @staticmethod
    def _leaving(view: View, found: Json) -> Problem | None:
        """Wait for the end of a group that somebody deletes; workers that are there keep it until then."""
        if "deletionTimestamp" not in found["metadata"] or view.seen.of_role(Role.WORKER):
            return None
        return Problem("PredecessorLeaving", f"PodGroup {found['metadata']['name']} is being deleted")

    def _is_served(self, api: GangApi) -> bool:
        now = self._clock.seconds()
        with self._lock:
            seen_at = self._served.get(api)
        if seen_at is not None and now - seen_at < SERVED_SECONDS:
            return True
        is_served = self._cluster.serves(KINDS[api])
        if is_served:
            with self._lock:
                self._served[api] = now
        return is_served


def _names_scheduler(job: DGLJob) -> bool:
    """Whether the workers' template names another scheduler than the cluster's own."""
    worker = job.spec.dgl_replica_specs.worker
    spec = worker.template.get("spec") if worker else None
    return isinstance(spec, dict) and spec.get("schedulerName") not in (None, "", DEFAULT_SCHEDULER)
