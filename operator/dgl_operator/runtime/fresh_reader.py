"""Reads a job and its children past the watches, which may be late: what ends a job rests on it."""

from dataclasses import replace

from dgl_operator.api import kueue
from dgl_operator.domain import admission
from dgl_operator.runtime.apply import Applier
from dgl_operator.runtime.cluster import Cluster
from dgl_operator.runtime.kinds import Key, Kind
from dgl_operator.runtime.store import Store
from dgl_operator.runtime.view import View, readable
from dglrun.contract import names


class FreshReader:
    """Reads into the store, so that later looks know what was read."""

    def __init__(
        self, cluster: Cluster, store: Store, applier: Applier, *, reads_workloads: bool = False
    ) -> None:
        self._cluster = cluster
        self._store = store
        self._applier = applier
        self._reads_workloads = reads_workloads

    def fresh(self, view: View) -> View | None:
        """Read past the watches before something ends or is deleted; None when the job is gone."""
        key = view.key
        raw = readable(self._cluster.get(Kind.JOB, *key))
        if raw is None:
            self._store.drop(Kind.JOB, view.raw)
            return None
        self._store.put(Kind.JOB, raw)
        self._read_report(key)
        self._read_pods(key)
        is_heard = self._hears_kueue(view)
        if "deletionTimestamp" in raw["metadata"]:
            return None
        known = self._store.seen(key)
        fresh = View.of(raw, known if is_heard else known.without_kueue(), view.now)
        return fresh if fresh.uid != view.uid else self._with_unlabelled(fresh)

    def with_report(self, view: View) -> View:
        """Read the last that the job reported of itself: its watch may be later than that of the pods."""
        self._read_report(view.key)
        return View.of(view.raw, self._store.seen(view.key), view.now)

    def _read_report(self, key: Key) -> None:
        if found := self._cluster.get(Kind.CONFIG_MAP, key.namespace, names.report(key.name)):
            self._store.put_alive(Kind.CONFIG_MAP, found)

    def _hears_kueue(self, view: View) -> bool:
        """Look whether Kueue still admits the job: its pods must not go for a watch that is late.

        Returns:
            Whether a Workload that is absent or leaving is Kueue's word. It is not where the cluster does not
            serve Workloads, or no longer in this version: then the last one that was known counts. While
            their definition is being deleted, all of them go, whatever Kueue has admitted.
        """
        if not (self._reads_workloads and admission.is_counted(view.job, view.seen)):
            return view.seen.hears_kueue
        key, name = view.key, kueue.workload_name(view.key.name)
        found = self._cluster.get(Kind.WORKLOAD, key.namespace, name)
        if found:
            self._store.put_alive(Kind.WORKLOAD, found)
            if "deletionTimestamp" not in found["metadata"]:
                return True
        is_served = self._cluster.serves(Kind.WORKLOAD, "create")
        known = view.seen.objects.get((kueue.KIND, name))
        if is_served and known and not found:
            self._store.drop(Kind.WORKLOAD, dict(known))
        return is_served

    def _read_pods(self, key: Key) -> None:
        present: set[str] = set()
        version = 0
        for page in self._cluster.pages(Kind.POD, key.namespace, key.name):
            version = version or page.version
            for pod in page.items:
                present.add(pod["metadata"]["uid"])
                self._store.put(Kind.POD, pod)
        self._store.drop_missing(Kind.POD, present, version, lambda listed: listed == key)

    def _with_unlabelled(self, view: View) -> View:
        """Look for each pod that seems lost: one without its label is not in the list."""
        tried: set[str] = set()
        while names_left := [name for name in view.decide().lost if name not in tried]:
            tried.update(names_left)
            if not all(self._applier.find(view.namespace, name, view.uid) for name in names_left):
                break  # one is really gone
            view = replace(view, known=self._store.seen(view.key, view.known))
        return replace(view, known=self._store.seen(view.key, view.known))
