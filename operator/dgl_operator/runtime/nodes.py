"""Whether a node is gone, so that a pod that waits there for its end may be deleted by force.

The right to read nodes is optional: without it no pod is deleted by force, and Kubernetes' own pod collector
or the administrator has to do it.
"""

import logging
import threading
from datetime import datetime

from dgl_operator.domain import nodes
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import Cluster, Refused
from dgl_operator.runtime.kinds import Kind

log = logging.getLogger(__name__)

REFUSED_SECONDS = 300.0
"""So long a refusal to read nodes holds: rights change seldom, and many pods may be stuck for days."""


class Nodes:
    """Reads nodes one by one, and only when a pod is stuck on one. Safe for threads."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._lock = threading.Lock()
        self._refused_at: float | None = None
        self._is_told = False

    def is_gone(self, name: str, now: datetime) -> bool:
        """Whether nothing can be heard of a node; False where that cannot be known.

        Args:
            name: The node's name, "" of a pod without one.
            now: The clock's value.

        Raises:
            ClusterBusy: the API server could not answer.
        """
        if not name or self._is_refused():
            return False
        try:
            return nodes.is_gone(self._cluster.get(Kind.NODE, None, name), now)
        except Refused as error:
            with self._lock:
                self._refused_at = self._clock.seconds()
                is_told, self._is_told = self._is_told, True
            if not is_told:
                log.warning("nodes cannot be read, no pod is deleted by force: %s", error)
            return False

    def _is_refused(self) -> bool:
        with self._lock:
            return self._refused_at is not None and self._clock.seconds() - self._refused_at < REFUSED_SECONDS
