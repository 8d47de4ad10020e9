"""Parts that are made again: as they were, by the ranks that still have theirs, and nothing else is sent."""

import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dglrun.contract import exitcodes
from dglrun.dispatch.lost_parts import require_same
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.mpi.collectives import AgreedError
from tests.support.heterographs import Toy, a_toy, toys
from tests.support.thread_ranks import ThreadRanks, on_ranks
from tests.unit.dglrun.dispatch.test_failures import contents


def disk(folder: Path, rank: int) -> Path:
    """What a worker has of its own."""
    return folder / f"worker-{rank}"


def make(
    source: Path, folder: Path, size: int, lost: tuple[int, ...] = (), table_bytes: int = 1 << 30
) -> list[str]:
    """Dispatch on workers that share nothing but the graph; returns what it has said."""
    said: list[str] = []
    found = Options(source, source / "parts", folder, save_orig_nids=True, save_orig_eids=True)
    wanted = replace(found, lost_parts=lost, table_bytes=table_bytes)

    def one(ranks: ThreadRanks) -> None:
        own = disk(folder, ranks.rank)
        each = replace(wanted, partitions_dir=own / "assignment", out_dir=own / "workload")
        dispatch(each, ranks, said.append if not ranks.rank else lambda _: None)

    on_ranks(size, one)
    return said


def dispatched(toy: Toy, folder: Path, table_bytes: int = 1 << 30) -> Path:
    """The parts of a graph on the disks of as many workers, each with the assignment; returns the graph."""
    source = toy.write(folder / "in", chunks=3)
    for rank in range(toy.parts):
        shutil.copytree(source / "parts", disk(folder, rank) / "assignment")
    make(source, folder, toy.parts, table_bytes=table_bytes)
    return source


def lose(folder: Path, *parts: int) -> None:
    """Empty the disks of these workers."""
    for part in parts:
        shutil.rmtree(disk(folder, part))


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(toy=toys(), sharded=st.booleans(), data=st.data())
def test_lost_parts_come_back_as_they_were(toy: Toy, sharded: bool, data: st.DataObject) -> None:
    """Any workers but one, with their assignment; again, when those that had it before are lost."""
    size, limit = toy.parts, 0 if sharded else 1 << 30
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = dispatched(toy, folder, limit)
        before = [contents(disk(folder, rank)) for rank in range(size)]
        kept = data.draw(st.integers(0, size - 1))
        for survivor in (kept, (kept + 1) % size):
            lost = tuple(part for part in range(size) if part != survivor)
            lose(folder, *lost)

            make(source, folder, size, lost, limit)

            assert [contents(disk(folder, rank)) for rank in range(size)] == before


def test_nothing_but_the_lost_part_is_sent(tmp_path: Path) -> None:
    """And the assignment, and the numbers of the nodes; no other rank writes its part again."""
    toy = a_toy(1, nodes=(300, 200, 7), edges=(900, 400, 0), parts=3)
    source = dispatched(toy, tmp_path)
    files = [path for path in disk(tmp_path, 0).rglob("part0/*") if path.is_file()]
    before = {path: path.stat().st_ino for path in files}
    lose(tmp_path, 1)

    said = make(source, tmp_path, 3, (1,))

    received = list(map(int, said[-1].removeprefix("bytes received from other ranks: ").split(", ")))
    assert received[1] <= sum(map(len, contents(disk(tmp_path, 1)).values())), said
    numbers = 4 * sum(toy.nodes.values())
    assert max(received[0], received[2]) <= numbers < received[1]
    assert {path: path.stat().st_ino for path in files} == before


def test_an_assignment_that_nobody_has_is_a_loss(tmp_path: Path) -> None:
    """Not a failure of the job's own: another attempt partitions anew."""
    source = dispatched(a_toy(parts=2), tmp_path)
    lose(tmp_path, 0, 1)

    with pytest.raises(AgreedError, match="the assignment is lost with all workers that had it") as told:
        make(source, tmp_path, 2, (0, 1))

    assert told.value.exit_code == exitcodes.LOST


def test_a_graph_that_has_changed_is_a_loss(tmp_path: Path) -> None:
    """Parts of two graphs would train on without a word; another attempt makes all parts of the new one."""
    dispatched(a_toy(1, parts=2), tmp_path)
    changed = a_toy(1, parts=2, edges=(7, 9)).write(tmp_path / "changed", chunks=3)
    lose(tmp_path, 1)

    with pytest.raises(AgreedError, match="the chunked graph has changed since the parts were made") as told:
        make(changed, tmp_path, 2, (1,))

    assert told.value.exit_code == exitcodes.LOST
    assert not (disk(tmp_path, 1) / "workload/part1").exists()


def test_a_feature_file_that_has_changed_is_a_loss(tmp_path: Path) -> None:
    """Though its size and all counts are those of the first dispatch."""
    source = dispatched(a_toy(1, parts=2), tmp_path)
    path = next(path for path in sorted(source.rglob("*.npy")) if path.stat().st_size)
    os.utime(path, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns + 1_000_000))
    lose(tmp_path, 1)

    with pytest.raises(AgreedError, match="a file's name, size or time differs") as told:
        make(source, tmp_path, 2, (1,))

    assert told.value.exit_code == exitcodes.LOST
    assert not (disk(tmp_path, 1) / "workload/part1").exists()


def test_parts_of_an_unknown_source_are_not_completed(tmp_path: Path) -> None:
    """Another attempt makes all parts of one source."""
    source = dispatched(a_toy(1, parts=2), tmp_path)
    (disk(tmp_path, 0) / "workload/source.sums").unlink()
    lose(tmp_path, 1)

    with pytest.raises(AgreedError, match="known to no worker") as told:
        make(source, tmp_path, 2, (1,))

    assert told.value.exit_code == exitcodes.LOST


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("left", [("workload",), ("assignment",), ("assignment", "workload")])
def test_what_an_earlier_job_left_on_the_new_worker_does_not_count(
    tmp_path: Path, lost: int, left: tuple[str, ...]
) -> None:
    """Its assignment of the same graph, its parts, or both are replaced, also on the first rank."""
    toy = a_toy(1, parts=2, nodes=(40, 30, 7), edges=(90, 40, 0))
    source = dispatched(toy, tmp_path)
    before = [contents(disk(tmp_path, rank)) for rank in range(2)]
    earlier = tmp_path / "earlier"
    for rank in range(2):
        shutil.copytree(source / "parts", disk(earlier, rank) / "assignment")
        for path in (disk(earlier, rank) / "assignment").glob("*.txt"):
            path.write_text("".join(f"{1 - int(line)}\n" for line in path.read_text().split()))
    make(source, earlier, 2)
    lose(tmp_path, lost)
    for name in left:
        shutil.copytree(disk(earlier, lost) / name, disk(tmp_path, lost) / name)
    assert contents(disk(tmp_path, lost)) != before[lost]

    make(source, tmp_path, 2, (lost,))

    assert [contents(disk(tmp_path, rank)) for rank in range(2)] == before


def dispatched_on_a_volume(folder: Path, *ranks: int) -> Path:
    """As `dispatched` on three workers, of which these have one folder of parts, and disks of their own."""
    (folder / "volume").mkdir()
    source = a_toy(1, parts=3).write(folder / "in", chunks=3)
    for rank in range(3):
        shutil.copytree(source / "parts", disk(folder, rank) / "assignment")
        if rank in ranks:
            (disk(folder, rank) / "workload").symlink_to(folder / "volume")
    make(source, folder, 3)
    return source


@pytest.mark.parametrize("lost", [(1,), (0, 2)])
def test_parts_on_a_volume_of_all_workers_are_not_lost(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """Nothing is made again, though no `source.sums` lies there; the new worker still gets the assignment."""
    source = dispatched_on_a_volume(tmp_path, 0, 1, 2)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "volume").rglob("*")}
    assignment = contents(disk(tmp_path, 0) / "assignment")
    for part in lost:
        shutil.rmtree(disk(tmp_path, part) / "assignment")

    said = make(source, tmp_path, 3, lost)

    assert "no part is lost" in said[0]
    found = {path: path.stat().st_mtime_ns for path in (tmp_path / "volume").rglob("*")}
    assert found == before
    assert [contents(disk(tmp_path, rank) / "assignment") for rank in range(3)] == [assignment] * 3


def test_of_two_lost_workers_only_the_one_without_its_part_gets_it_made(tmp_path: Path) -> None:
    """One shares its folder with a survivor, the other one had its own disk."""
    source = dispatched_on_a_volume(tmp_path, 0, 1)
    shared = tmp_path / "volume/part1"
    inodes = {path: path.stat().st_ino for path in shared.iterdir()}
    before = contents(disk(tmp_path, 2))
    shutil.rmtree(disk(tmp_path, 1) / "assignment")
    lose(tmp_path, 2)

    make(source, tmp_path, 3, (1, 2))

    assert {path: path.stat().st_ino for path in shared.iterdir()} == inodes
    assert contents(disk(tmp_path, 2)) == before


def test_a_part_that_is_missing_on_the_shared_volume_is_made(tmp_path: Path) -> None:
    """A folder that others see, too, does not prove that the part is in it."""
    source = dispatched_on_a_volume(tmp_path, 0, 1)
    before = contents(tmp_path / "volume")
    shutil.rmtree(tmp_path / "volume/part1")

    make(source, tmp_path, 3, (1,))

    assert contents(tmp_path / "volume") == before


def test_a_json_that_has_changed_is_a_loss(tmp_path: Path) -> None:
    """The parts that are there were made otherwise: no other can be made to go with them."""
    (tmp_path / "g.json").write_text('{"num_parts": 2}')

    with pytest.raises(AgreedError, match=r"g\.json: .*since the parts were made: num_parts differs") as told:
        require_same(tmp_path, "g", {"num_parts": 3})

    assert told.value.exit_code == exitcodes.LOST
