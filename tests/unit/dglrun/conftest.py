"""Pods for the behaviour tests of dglrun."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from dglrun.commands import program
from tests.support.dglrun_pods import Pods
from tests.support.wait import wait_for

PodsOf = Callable[..., Pods]


@pytest.fixture
def pods_of(tmp_path: Path) -> Iterator[PodsOf]:
    """Makes pods; at the end none of their processes may live on."""
    made: list[Pods] = []

    def make(workers: int = 2, **more: object) -> Pods:
        made.append(Pods(tmp_path / f"pods{len(made)}", workers=workers, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for pods in made:
        wait_for("no process is left", partial(_is_quiet, pods), 60)


@pytest.fixture
def raising() -> Iterator[None]:
    """SIGTERM and SIGINT raise Terminated, as in each command."""
    with program.raising_terminated():
        yield


def _is_quiet(pods: Pods) -> bool:
    return not pods.processes()


@pytest.fixture
def pods(pods_of: PodsOf) -> Pods:
    """Two workers with their parts ready on the launcher."""
    found = pods_of()
    found.give_partition()
    return found
