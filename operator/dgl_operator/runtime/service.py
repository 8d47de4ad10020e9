"""The parts of the running operator, wired: informers, store, queue, reconciler, probes."""

import gc
import logging
import threading
import time
from http.server import ThreadingHTTPServer

from dgl_operator.render.settings import Rendering
from dgl_operator.runtime import http_server, memory, metrics
from dgl_operator.runtime.cluster import Cluster
from dgl_operator.runtime.http_server import Answer
from dgl_operator.runtime.informer import Feed, Informer
from dgl_operator.runtime.kinds import CHILDREN, Key, Kind
from dgl_operator.runtime.leader_election import LeaderElection
from dgl_operator.runtime.queue import Outcome, Queue
from dgl_operator.runtime.reconcile import Reconciler
from dgl_operator.runtime.settings import RECONCILE_WORKERS, Settings
from dgl_operator.runtime.store import Store

log = logging.getLogger(__name__)

SETTLE_SECONDS = 0.05
"""Events of one job that come within this time are one look."""
MISSED_RELISTS = 3
"""So many periods without a full list, and the operator may be blind: the kubelet restarts it."""
QUIET_SECONDS = 180.0
"""A watch on which nothing happens is heard of once a minute."""
STUCK_SECONDS = 600.0
"""A reconcile that is silent for longer makes the kubelet restart the operator."""
MEMORY_SECONDS = 15.0
"""Memory that is not needed any more goes back to the system so often."""
_POLL_SECONDS = 0.05
_STANDBY_SECONDS = 0.5


class Service:
    """The operator without kopf: `start`, and `stop` at the end."""

    def __init__(self, cluster: Cluster, settings: Settings, election: LeaderElection | None = None) -> None:
        """Wire the parts; with an election this operator acts only while it leads."""
        self._settings, self._election = settings, election
        self._store = Store(hears_kueue=settings.has_kueue)
        self._metrics = metrics.Metrics()
        if election:
            self._metrics.watch_leadership(election.name, lambda: election.is_leader)
        rendering = Rendering(settings.images, settings.has_network_policy, settings.has_kueue)
        self._queue = Queue(self._look, RECONCILE_WORKERS, self._store.is_new, SETTLE_SECONDS)
        self._reconciler = Reconciler(cluster, self._store, rendering, self._metrics, load=self._queue)
        self._metrics.watch_depth(lambda: self._queue.depth)
        feed = Feed(cluster, self._store, self._metrics, self._changed, settings.resync_seconds)
        places = settings.namespaces or (None,)
        self._jobs = [Informer(feed, Kind.JOB, place) for place in places]
        kinds = (*CHILDREN, Kind.WORKLOAD) if settings.has_kueue else CHILDREN
        self._children = [Informer(feed, kind, place) for place in places for kind in kinds]
        self._is_ready = self._acts = self._runs = False
        self._stopped = threading.Event()
        self._starter = threading.Thread(target=self._start, name="start", daemon=True)
        self._servers: list[ThreadingHTTPServer] = []

    def start(self) -> None:
        """Serve the probes and begin to list; reconciling begins when the first lists are complete.

        With an election it begins when this operator leads; until then its lists are kept up to date.

        Raises:
            OSError: a port is not free.
        """
        self._serve()
        self._starter.start()

    def stop(self) -> None:
        """End after the reconciles under way."""
        self._is_ready = False
        self._stopped.set()
        for informer in (*self._jobs, *self._children):
            informer.stop()
        self._queue.stop()
        if self._election:
            self._election.stop(releases=self._queue.has_ended)  # last: the next leader acts at once
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def _start(self) -> None:
        """Bring the informers up: jobs first, since the store keeps only children of jobs that it knows."""
        for group in (self._jobs, self._children):
            for informer in group:
                informer.start()
            # A Kueue that does not answer must not hold up others; a fresh read comes before pods go.
            if not self._await([informer for informer in group if informer.kind is not Kind.WORKLOAD]):
                return
        self._is_ready = True
        log.info("watching %s", ", ".join(self._settings.namespaces) or "all namespaces")
        if not self._is_elected():
            return
        self._acts = True
        for key in sorted(self._store.keys()):
            self._queue.add(key)
        self._queue.start()
        self._runs = True
        gc.collect()
        gc.freeze()  # modules for the most part, which stay: they are not looked through each time
        while not self._stopped.wait(MEMORY_SECONDS):
            self._give_back()
        gc.unfreeze()

    def _give_back(self) -> None:
        """Return the memory to the system that is not needed any more."""
        self._store.forget_deletions()
        gc.collect()
        memory.give_back()

    def _look(self, key: Key) -> Outcome:
        return self._reconciler(key)

    def _is_elected(self) -> bool:
        """Stand by until this operator leads; returns whether it does.

        A standby gives memory back as well: the watches bring it all that they bring to the leader.
        """
        if self._election is None:
            return True
        self._election.start()
        due = time.monotonic() + MEMORY_SECONDS
        while not self._stopped.is_set():
            if self._election.wait_to_lead(_STANDBY_SECONDS):
                return True
            if time.monotonic() >= due:
                self._give_back()
                due = time.monotonic() + MEMORY_SECONDS
        return False

    def _await(self, group: list[Informer]) -> bool:
        """Wait for the first lists; a namespace that may not be read holds up no other."""
        while not all(informer.is_synced or informer.is_forbidden for informer in group):
            if self._stopped.wait(_POLL_SECONDS):
                return False
        return True

    def _changed(self, key: Key) -> None:
        if self._acts:  # a standby looks at all jobs when it begins to act
            self._queue.add(key)

    def _serve(self) -> None:
        probes = {"/healthz": self._health, "/readyz": self._readiness}
        shown = {"/metrics": lambda: Answer(200, self._metrics.text(), metrics.CONTENT_TYPE)}
        for address, routes in ((self._settings.health, probes), (self._settings.metrics, shown)):
            if server := http_server.start(address, routes):
                self._servers.append(server)

    def _health(self) -> Answer:
        if not self._is_ready:
            return Answer(200, b"starting\n")
        if self._runs and not self._queue.is_alive:
            return Answer(500, b"a reconcile thread has ended\n")
        if self._election and not self._election.is_alive:
            return Answer(500, b"the leader election has ended\n")
        if self._queue.oldest_run > STUCK_SECONDS:
            return Answer(500, f"a reconcile runs for {self._queue.oldest_run:.0f} s\n".encode())
        for informer in (*self._jobs, *self._children):
            if informer.silence > max(MISSED_RELISTS * self._settings.resync_seconds, QUIET_SECONDS):
                return Answer(500, f"{informer}: not heard of for {informer.silence:.0f} s\n".encode())
        return Answer(200, b"ok\n")

    def _readiness(self) -> Answer:
        return Answer(200, b"ok\n") if self._is_ready else Answer(503, b"listing\n")
