"""Keepers and launchers within the test's own process."""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dglrun.agent import tls
from dglrun.transfer.checkpoints.limit import Limit
from dglrun.transfer.checkpoints.link import Link
from dglrun.transfer.checkpoints.order import KeeperOrder
from dglrun.transfer.checkpoints.server import CheckpointServer
from dglrun.workflow import run_keys

PODS = ("worker-0", "worker-1")
UNLIMITED = 1e12


@functools.cache
def keys() -> tuple[tls.Keys, dict[str, tls.Keys]]:
    """Those of a launcher and of its keepers; made once, as that takes a while."""
    return run_keys.for_transfer("launcher", PODS)


@contextmanager
def a_server(folder: Path, every: float = 1e9) -> Iterator[CheckpointServer]:
    """A launcher's server for two keepers of one rank each."""
    ranks = {pod: (f"rank-{index}",) for index, pod in enumerate(PODS)}
    server = CheckpointServer(keys()[0], folder, ranks, "marker", every)
    try:
        yield server
    finally:
        server.close()


def an_order(pods_folder: Path, index: int, port: int = 0, place: str = "") -> KeeperOrder:
    """What the keeper of a worker is told, whose rank has its folder in `pods_folder`."""
    rank = f"rank-{index}"
    folders = {rank: str(pods_folder / rank)}
    return KeeperOrder(
        "launcher", "127.0.0.1", port, keys()[1][PODS[index]], folders, len(PODS), place, UNLIMITED, 20.0
    )


def no_limit() -> Limit:
    """As much as the machine gives."""
    return Limit(UNLIMITED)


@contextmanager
def a_link(order: KeeperOrder) -> Iterator[Link]:
    """A keeper's connection."""
    link = Link(order)
    try:
        yield link
    finally:
        link.close()
