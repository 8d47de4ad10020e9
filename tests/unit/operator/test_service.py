"""The running operator's own health: a full list that keeps failing is survived, and then told."""

import asyncio
from dataclasses import replace

from dgl_operator.runtime import service, settings
from dgl_operator.runtime.cluster import Listing
from dgl_operator.runtime.kinds import Kind
from dgl_operator.runtime.service import Service
from tests.support.jobs import IMAGE_FLAGS
from tests.support.memory_cluster import MemoryCluster

PERIOD = 0.02


class BrokenAfterwards(MemoryCluster):
    """Lists well until it is told to break, and then fails as no API server is known to."""

    def __init__(self) -> None:
        super().__init__()
        self.is_broken, self.failures = False, 0

    def list(self, kind: Kind, namespace: str | None, job: str | None = None) -> Listing:
        """See `Cluster`."""
        if self.is_broken:
            self.failures += 1
            raise RuntimeError("an answer that nobody foresaw")
        return super().list(kind, namespace, job)


async def _until(is_so: object) -> None:
    async with asyncio.timeout(10):
        while not is_so():  # type: ignore[operator]
            await asyncio.sleep(PERIOD / 4)


def test_a_full_list_that_fails_is_tried_again_and_ends_the_health_after_three_periods() -> None:
    """Whatever the error is; and one that goes well makes the operator healthy again."""
    cluster = BrokenAfterwards()
    chosen = replace(settings.parse(IMAGE_FLAGS), resync_seconds=PERIOD)
    seen: list[int] = []

    async def live() -> None:
        operator = Service(cluster, chosen)
        operator._serve = lambda: None  # type: ignore[method-assign]
        await operator.start()
        seen.append(operator._health().status)
        cluster.is_broken = True
        await _until(lambda: cluster.failures > service.MISSED_RESYNCS + 1)
        await _until(lambda: operator._health().status == 500)
        seen.append(500)
        cluster.is_broken = False
        await _until(lambda: operator._health().status == 200)
        seen.append(200)
        await operator.stop()

    asyncio.run(live())

    assert seen == [200, 500, 200]
