"""Keeps the store up to date with one kind of one namespace: list, watch, list again when that is needed.

kopf's watches are not used, since one object that Python cannot decode ends them and the process, and
since they hold every object whole (docs/adr). A thread for each kind and namespace; whatever happens in it
is logged and tried again, and never ends the operator or the watching of another namespace.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from dgl_operator.runtime.cluster import Change, Cluster, ClusterBusy, Refused, WatchExpired
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.kinds import Json, Key, Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.store import Store

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between two attempts; they double from the first to the longest."""


@dataclass(frozen=True)
class Feed:
    """Where an informer takes objects from and where it brings them.

    Attributes:
        changed: Called with each job that something changed for.
        relist_seconds: Time between two full lists.
    """

    cluster: Cluster
    store: Store
    metrics: Metrics
    changed: Callable[[Key], None]
    relist_seconds: float


class Informer:
    """Follows one kind in one namespace (None: in all)."""

    def __init__(self, feed: Feed, kind: Kind, namespace: str | None) -> None:
        self.kind = kind
        self.namespace = namespace
        self.is_forbidden = False
        self._feed = feed
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._contact = self._listed = time.monotonic()
        self._told = ""
        self._version: int | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {self}", daemon=True)

    def __str__(self) -> str:
        """What is watched, for log lines."""
        return f"{self.kind.plural} of {self.namespace or 'all namespaces'}"

    def start(self) -> None:
        """Begin to list and watch."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end; it may sit in a read, and ends with the process."""
        self._stopped.set()

    @property
    def is_synced(self) -> bool:
        """Whether one full list has come."""
        return self._synced.is_set()

    @property
    def silence(self) -> float:
        """Seconds since the API server was last heard of, or since the last full list is overdue.

        A namespace whose reading is forbidden counts as heard, and so does Kueue, if away: a restart
        would not change that.
        """
        if not self._thread.is_alive():
            return float("inf")
        now = time.monotonic()
        overdue = now - self._listed - self._feed.relist_seconds
        is_excused = self.is_forbidden or self.kind is Kind.WORKLOAD
        return 0.0 if is_excused else max(now - self._contact, overdue)

    def _run(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            heard = self._contact
            try:
                if self._version is None:
                    self._list()
                else:
                    self._watch(self._version)
                self.is_forbidden, failures, self._told = False, 0, ""
            except WatchExpired as error:
                log.info("%s: %s; listing again", self, error)
                self._version = None
            except (ClusterBusy, Refused) as error:
                # A watch that is cut after it has brought something is an ordinary end of it.
                failures = 1 if self._contact > heard else failures + 1
                if isinstance(error, Refused) or self._is_list_due():
                    self._version = None
                self._failed(error, failures)
            except Exception:  # a bug, loud; the next list may go well, and the others go on
                self._version, failures = None, failures + 1
                self._feed.metrics.watch_errors.labels(self.kind.plural).inc()
                log.exception("watch of %s failed; again in %.0f s", self, _wait(failures))
                self._stopped.wait(_wait(failures))

    def _failed(self, error: ClusterBusy | Refused, failures: int) -> None:
        hopeless = (403, 404) if self.kind is Kind.WORKLOAD else (403,)  # Kueue may come later, or never
        self.is_forbidden = isinstance(error, Refused) and error.status in hopeless
        self._feed.metrics.watch_errors.labels(self.kind.plural).inc()
        if str(error) != self._told:
            log.warning("watch of %s: %s; again in %.0f s", self, error, _wait(failures))
            self._told = str(error)
        self._stopped.wait(_wait(failures))

    def _list(self) -> None:
        """Take a full list page by page; the watch begins at its version."""
        present: set[str] = set()
        version = 0
        for page in self._feed.cluster.pages(self.kind, self.namespace):
            version = version or page.version
            for item in page.items:
                present.add(item["metadata"]["uid"])
                self._take("ADDED", item)
            self._contact = time.monotonic()
        gone = self._feed.store.drop_missing(self.kind, present, version, self._is_within)
        everyone = filter(self._is_within, self._feed.store.keys()) if self.kind is Kind.JOB else ()
        for key in gone.union(everyone):  # each job is looked at now and then, whatever the watches brought
            self._feed.changed(key)
        self._version, self._listed = version, time.monotonic()
        self._contact = self._listed
        self._synced.set()

    def _watch(self, version: int) -> None:
        """Follow until the API server ends the answer or a full list is due."""
        for change in self._feed.cluster.watch(self.kind, self.namespace, version):
            self._contact = time.monotonic()
            self._see(change)
            self._version = change.version
            del change  # else each watch would hold its last object until the next: hundreds of small pieces
            if self._stopped.is_set() or self._is_list_due():
                break
        self._contact = time.monotonic()
        if self._is_list_due():
            self._version = None

    def _is_within(self, key: Key) -> bool:
        return self.namespace in (None, key.namespace)

    def _is_list_due(self) -> bool:
        return time.monotonic() - self._listed > self._feed.relist_seconds

    def _see(self, change: Change) -> None:
        if change.type != "BOOKMARK":
            self._take(change.type, change.item)

    def _take(self, change: str, item: Json) -> None:
        """Bring one object to the store; one that cannot be kept is named and left out."""
        try:
            store = self._feed.store
            key = store.drop(self.kind, item) if change == "DELETED" else store.put(self.kind, item)
        except Exception:
            self._feed.metrics.quarantine(self.kind.plural)
            metadata = item.get("metadata") or {}
            what = (self.kind.value[0], metadata.get("namespace"), metadata.get("name"))
            log.exception("%s %s/%s cannot be kept and is ignored", *what)
            return
        if UNREADABLE in item and key:
            self._feed.metrics.quarantine(self.kind.plural)
            log.warning("%s %s/%s: %s", self.kind.value[0], *key, item[UNREADABLE])
        if key:
            self._feed.changed(key)


def _wait(failures: int) -> float:
    return float(min(FIRST_WAIT * 2.0 ** min(failures - 1, 10), LONGEST_WAIT))
