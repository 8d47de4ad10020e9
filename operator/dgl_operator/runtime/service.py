"""The parts of the running operator, wired: store, queue, reconciler, resync, probes."""

import asyncio
import logging
import time
from http.server import ThreadingHTTPServer

from dgl_operator.runtime import metrics, serve
from dgl_operator.runtime.cluster import Cluster, ClusterBusy, Refused
from dgl_operator.runtime.kinds import CHILDREN, Json, Key, Kind
from dgl_operator.runtime.queue import Queue
from dgl_operator.runtime.reconcile import Reconciler
from dgl_operator.runtime.serve import Answer
from dgl_operator.runtime.settings import RECONCILE_WORKERS, Settings
from dgl_operator.runtime.store import Store

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 30.0
SETTLED_SECONDS = 10.0
"""After this time the watches stand; what vanished between the first list and theirs is found by one more."""
MISSED_RESYNCS = 3
"""So many periods without a full list, and the operator may be blind: the kubelet restarts it."""
STUCK_SECONDS = 600.0
"""A loop or a reconcile that is silent for longer makes the kubelet restart the operator."""


class Service:
    """The operator without kopf: `start` before the first event, `notice` for each, `stop` at the end."""

    def __init__(self, cluster: Cluster, settings: Settings) -> None:
        self._cluster = cluster
        self._settings = settings
        self._store = Store()
        self._metrics = metrics.Metrics()
        self._queue = Queue(
            Reconciler(cluster, self._store, settings.images, self._metrics), RECONCILE_WORKERS
        )
        self._metrics.watch_depth(lambda: self._queue.depth)
        self._is_ready = False
        self._listed = time.monotonic()
        self._tasks: list[asyncio.Task[None]] = []
        self._servers: list[ThreadingHTTPServer] = []

    async def start(self) -> None:
        """List everything once, then begin to reconcile.

        Raises:
            ClusterBusy: the API server does not answer.
            NotFound: the CRD is not installed.
        """
        self._serve()
        await self._resync()
        self._tasks = [asyncio.create_task(self._queue.serve()), asyncio.create_task(self._resync_forever())]
        self._is_ready = True
        log.info("watching %s", ", ".join(self._settings.namespaces) or "all namespaces")

    async def stop(self) -> None:
        """End after the reconciles under way."""
        self._is_ready = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            server.shutdown()

    def notice(self, kind: Kind, change: str | None, item: Json) -> None:
        """Take one watch event: what is there now, or that it is gone."""
        whole = {**item, "kind": kind.value[0], "apiVersion": kind.api_version}
        key = self._store.drop(kind, whole) if change == "DELETED" else self._store.put(kind, whole)
        if key:
            self._queue.add(key)

    async def _resync_forever(self) -> None:
        wait = min(SETTLED_SECONDS, self._settings.resync_seconds)
        while True:
            await asyncio.sleep(wait)
            wait = self._settings.resync_seconds
            try:
                await self._resync()
            except (ClusterBusy, Refused) as error:
                log.warning("resync: %s; again in %.0f s", error, wait)
            except Exception:  # whatever it is, the next one may go well
                log.exception("resync failed; again in %.0f s", wait)

    async def _resync(self) -> None:
        """List all; look at every job and at every owner of something that vanished unseen."""
        concerned: set[Key] = set()
        for kind in (*CHILDREN, Kind.JOB):
            for namespace in self._settings.namespaces or (None,):
                concerned |= await asyncio.to_thread(self._list, kind, namespace)
        for key in concerned | self._store.keys():
            self._queue.add(key)
        self._listed = time.monotonic()

    def _list(self, kind: Kind, namespace: str | None) -> frozenset[Key]:
        listing = self._cluster.list(kind, namespace)
        return self._store.replace(kind, listing, lambda key: namespace in (None, key.namespace))

    def _serve(self) -> None:
        probes = {"/healthz": self._health, "/readyz": self._readiness}
        shown = {"/metrics": lambda: Answer(200, self._metrics.text(), metrics.CONTENT_TYPE)}
        for address, routes in ((self._settings.health, probes), (self._settings.metrics, shown)):
            if server := serve.start(address, routes):
                self._servers.append(server)

    def _health(self) -> Answer:
        silent = time.monotonic() - self._queue.heartbeat
        if silent > HEARTBEAT_SECONDS:
            return Answer(500, f"event loop silent for {silent:.0f} s\n".encode())
        if self._queue.oldest_run > STUCK_SECONDS:
            return Answer(500, f"a reconcile runs for {self._queue.oldest_run:.0f} s\n".encode())
        unlisted = time.monotonic() - self._listed
        if self._is_ready and unlisted > MISSED_RESYNCS * self._settings.resync_seconds:
            return Answer(500, f"no full list for {unlisted:.0f} s\n".encode())
        return Answer(200, b"ok\n")

    def _readiness(self) -> Answer:
        return Answer(200, b"ok\n") if self._is_ready else Answer(503, b"listing\n")
