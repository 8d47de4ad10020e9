"""Makes the kubelet sync a changed ConfigMap into the launcher that waits for it, within a second.

The kubelet refreshes mounted ConfigMaps about once a minute, but syncs a pod's volumes at once when the
pod changes. So after the ConfigMap an annotation of the pod is written. Both travel by separate watches,
and an annotation that overtakes the ConfigMap would sync the old text: a second change follows a second
later. The annotation ends as the hash of what is mounted, so that a restarted operator finds nothing to do.
"""

from dgl_operator.domain.observed import Pod
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import Cluster, Place
from dgl_operator.runtime.kinds import Key, Kind
from dgl_operator.runtime.store import Store
from dglrun.contract import names

AGAIN_SECONDS = 1.0
_FIRST = ".first"


class ConfigMapSync:
    """Annotates waiting launchers."""

    def __init__(self, cluster: Cluster, store: Store, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._clock = clock
        self._annotated: dict[Key, float] = {}

    def sync(self, key: Key, launcher: Pod | None, digest: str | None) -> float | None:
        """Bring the annotation up to the ConfigMap's hash.

        Args:
            key: The job.
            launcher: Its launcher pod.
            digest: Hash of the ConfigMap's data, None for a job without one.

        Returns:
            Seconds after which to call again, None when it is up to date.
        """
        if digest is None or launcher is None or launcher.config_hash == digest or not _is_waiting(launcher):
            self._annotated.pop(key, None)
            return None
        if launcher.config_hash != digest + _FIRST:
            self._annotate(key, launcher, digest + _FIRST)
            self._annotated[key] = self._clock.seconds()
            return AGAIN_SECONDS
        wait = (
            self._annotated.get(key, self._clock.seconds() - AGAIN_SECONDS)
            + AGAIN_SECONDS
            - self._clock.seconds()
        )
        if wait > 0:
            return wait
        self._annotate(key, launcher, digest)
        return None

    def forget(self, key: Key) -> None:
        """Forget a job that is gone."""
        self._annotated.pop(key, None)

    def _annotate(self, key: Key, launcher: Pod, value: str) -> None:
        annotations = {names.ANNOTATION_CONFIG_HASH: value}
        place = Place(key.namespace, launcher.name, launcher.uid)
        if stored := self._cluster.mark(Kind.POD, place, {"annotations": annotations}):
            self._store.put(Kind.POD, stored)


def _is_waiting(launcher: Pod) -> bool:
    return not (launcher.main_started or launcher.stopped or launcher.deleting)
