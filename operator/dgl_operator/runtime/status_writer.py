"""Writes a job's status when it changed, once for many small changes, and tells of each transition."""

import logging
from typing import Protocol

from dgl_operator.api.v1alpha1 import JobStatus
from dgl_operator.domain import events, status
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import Cluster, ClusterBusy, Refused
from dgl_operator.runtime.event_manifest import manifest
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.store import Store

log = logging.getLogger(__name__)

MINOR_SECONDS = 2.0
"""Counts of pods and progress reach a job's status at most so often."""
BUSY_SECONDS = 10.0
"""While many jobs of a namespace wait for a look, so do counts, progress and phases: a status is the dearest
write of all, and the next one holds what this one would have said. Sooner once no job at all waits."""


class OutdatedSchema(Exception):
    """The CRD is older than the operator: without the number of its attempt a job would be tried for ever."""


class Load(Protocol):
    """How busy the operator is."""

    def is_busy(self, key: Key) -> bool:
        """Whether many jobs of this one's namespace wait for a look."""

    def wait_for_quiet(self, key: Key) -> None:
        """Ask, within a look at a job, for the next one as soon as no job waits."""


class _Idle:
    """An operator that never has too much to do."""

    def is_busy(self, key: Key) -> bool:
        """Never."""
        return False

    def wait_for_quiet(self, key: Key) -> None:
        """Nobody asks."""


IDLE = _Idle()


class StatusWriter:
    """The only writer of statuses and events."""

    def __init__(
        self,
        cluster: Cluster,
        store: Store,
        metrics: Metrics,
        clock: Clock,
        load: Load,
    ) -> None:
        """Write nothing yet.

        Args:
            cluster: Where the jobs are.
            store: What was seen of them, to which what is written is added.
            metrics: Counts what is written.
            clock: The time.
            load: How busy the operator is.
        """
        self._cluster = cluster
        self._store = store
        self._metrics = metrics
        self._clock = clock
        self._load = load
        self._written: dict[Key, float] = {}

    def write(self, raw: Json, old: JobStatus, new: JobStatus) -> tuple[Json, float]:
        """Write the status if it changed, then tell of what changed.

        Args:
            raw: The job as it was last seen.
            old: Its status.
            new: What is to stand there.

        Returns:
            The job as it is stored now, and the seconds after which a minor change may be written: 0 when
            there is nothing more to write.

        Raises:
            OutdatedSchema: the API server has dropped what the job cannot do without.
        """
        key = Key.of_job(raw)
        if new == old:
            return raw, 0.0
        if wait := self._too_early(key, old, new):
            return raw, wait
        stored = self._stored(raw, new)
        self._written[key] = self._clock.seconds()
        self._store.put(Kind.JOB, stored)
        if new.attempt and (stored.get("status") or {}).get("attempt") != new.attempt:
            raise OutdatedSchema("the CRD drops status.attempt; apply the CRD of this operator's release")
        counted = (stored.get("status") or {}).get("restarts") or {}
        if new.restarts and new.restarts.workers != counted.get("workers", 0):
            raise OutdatedSchema(
                "the CRD drops status.restarts.workers; apply the CRD of this operator's release"
            )
        self._tell(raw, old, new)
        return stored, 0.0

    def forget(self, key: Key) -> None:
        """Forget a job that is gone."""
        self._written.pop(key, None)

    def _too_early(self, key: Key, old: JobStatus, new: JobStatus) -> float:
        """Seconds until a change that may wait is written."""
        is_busy = self._load.is_busy(key)
        if not (status.is_minor(old, new) or (is_busy and status.can_wait(old, new))):
            return 0.0
        pause = BUSY_SECONDS if is_busy else MINOR_SECONDS
        now = self._clock.seconds()
        wait = max(0.0, self._written.get(key, now - pause) + pause - now)
        if wait and is_busy:
            self._load.wait_for_quiet(key)
        return wait

    def _stored(self, raw: Json, new: JobStatus) -> Json:
        """Write the status; what the job reported must never keep its end from being written."""
        try:
            return self._cluster.write_status(raw, new.wire())
        except Refused as error:
            if error.status not in (400, 422):
                raise
            log.exception("%s/%s: status refused, written without the job's report", *Key.of_job(raw))
            self._metrics.errors.inc()
            bare = new.model_copy(update={"progress": None, "partition": None})
            return self._cluster.write_status(raw, bare.wire())

    def _tell(self, raw: Json, old: JobStatus, new: JobStatus) -> None:
        found = events.between(old, new)
        self._metrics.note(old, new, found[-1].reason if found else "")
        for event in found:
            log.info("%s/%s: %s: %s", *Key.of_job(raw), event.reason, event.message)
            try:
                self._cluster.post_event(manifest(raw, event, self._clock.now()))
            except (ClusterBusy, Refused) as error:
                log.warning("%s/%s: event %s not posted: %s", *Key.of_job(raw), event.reason, error)
