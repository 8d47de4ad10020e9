"""What a watch holds on to while nothing happens."""

import weakref
from collections.abc import Iterator
from typing import Any

from dgl_operator.runtime.cluster import Change
from dgl_operator.runtime.informer import Feed, Informer
from dgl_operator.runtime.kinds import Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.store import Store
from tests.support.jobs import a_raw_job
from tests.support.memory_cluster import MemoryCluster
from tests.support.wait import wait_for


class ReferableObject(dict[str, Any]):
    """An object that can be referred to weakly."""


class OneChangeCluster(MemoryCluster):
    """Its watches bring one change, and note whether it is still held when the next is asked for.

    Attributes:
        held: One answer for each watch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held: list[bool] = []

    def watch(self, kind: Kind, namespace: str | None, version: int) -> Iterator[Change]:
        """See `Cluster`."""
        item = ReferableObject(a_raw_job())
        reference = weakref.ref(item)
        changes = [Change("MODIFIED", item)]
        del item
        yield changes.pop()
        self.held.append(reference() is not None)


def test_a_watch_that_waits_holds_no_object() -> None:
    """Each of 32 watches held the hundreds of small pieces of its last one, from all over the memory."""
    cluster = OneChangeCluster()
    feed = Feed(cluster, Store(), Metrics(), lambda _key: None, 300.0)
    informer = Informer(feed, Kind.JOB, None)
    informer.start()
    try:
        wait_for("a second change asked for", lambda: bool(cluster.held))
    finally:
        informer.stop()
        informer._thread.join()

    assert not any(cluster.held)
