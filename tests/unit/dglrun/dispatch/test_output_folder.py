"""What a dispatch does to the folder that it writes, with what is in it already."""

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from dglrun.commands import dispatch as dispatch_command
from dglrun.contract import exitcodes
from dglrun.dispatch import earlier_parts, write_part_config
from dglrun.dispatch.checkpoint import Checkpoint
from dglrun.formats import output_folder
from dglrun.mpi import shared_folder
from dglrun.mpi.collectives import AgreedError
from tests.support.commands import run_command
from tests.support.heterographs import a_toy
from tests.support.thread_ranks import ThreadRanks, on_ranks
from tests.unit.dglrun.dispatch.test_failures import contents, options, silently


def test_a_second_dispatch_at_the_same_time_ends_with_73(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line names the folder, and the first run's work is not touched."""
    source = a_toy().write(tmp_path / "in")
    (tmp_path / "out/.dglrun-dispatch-0").mkdir(parents=True)
    (tmp_path / "out/.dglrun-dispatch-0/state.json").write_text("first")
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"))

    with (tmp_path / "out" / output_folder.LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        code = run_command(dispatch_command, "dispatch", *folders, "--out-dir", str(tmp_path / "out"))

    assert code == exitcodes.CANTCREAT
    assert f"{tmp_path}/out: another run of dglrun is writing there" in capsys.readouterr().err
    assert (tmp_path / "out/.dglrun-dispatch-0/state.json").read_text() == "first"


@pytest.mark.parametrize("size", [1, 2])
def test_fewer_parts_leave_no_folder_of_more(tmp_path: Path, size: int) -> None:
    """What the JSON does not name is gone; a file that the user has put into a part stays."""
    silently(options(a_toy(1, parts=4).write(tmp_path / "four")), size)
    for part in (0, 3):
        (tmp_path / f"out/part{part}/note").write_text("mine")

    silently(options(a_toy(1, parts=2).write(tmp_path / "two")), size)
    silently(options(tmp_path / "two", "fresh"), size)

    notes = {Path(f"part{part}/note"): b"mine" for part in (0, 3)}
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh") | notes


@pytest.mark.parametrize("name", ["part1/graph.dgl", "toy.json", "metadata.json"])
def test_what_no_dispatch_has_written_is_not_replaced(tmp_path: Path, name: str) -> None:
    """A part without a JSON that names it, a JSON that describes no parts; other files do not matter."""
    source = a_toy(parts=2).write(tmp_path / "in")
    strange = tmp_path / "out" / name
    strange.parent.mkdir(parents=True)
    strange.write_text("{}")
    (tmp_path / "out/raw.csv").write_text("mine")

    first = Path(name).parts[0]
    with pytest.raises(AgreedError, match=f"{first} exists and is not of an earlier dispatch") as told:
        silently(options(source))

    assert told.value.exit_code == exitcodes.CANTCREAT
    assert contents(tmp_path / "out") == {Path(name): b"{}", Path("raw.csv"): b"mine"}


def another_graphs_partition(out: Path, part: str) -> dict[Path, bytes]:
    """A partition as a user's own script makes it, with one part; returns the folder's contents."""
    (out / part).mkdir(parents=True)
    (out / part / "graph.dgl").write_text("mine")
    files = {"part_graph": f"{part}/graph.dgl"}
    (out / "products.json").write_text(json.dumps({"graph_name": "products", "part-0": files}))
    return contents(out)


def test_the_partition_of_another_graph_by_a_users_own_script_stays(tmp_path: Path) -> None:
    """Its JSON went, and its parts with it, without a word."""
    source = a_toy(parts=2).write(tmp_path / "in")
    before = another_graphs_partition(tmp_path / "out", "part7")

    silently(options(source))

    assert before.items() <= contents(tmp_path / "out").items()


def test_a_part_of_another_graph_is_not_written_over(tmp_path: Path) -> None:
    """Before anything is read or written."""
    source = a_toy(parts=2).write(tmp_path / "in")
    before = another_graphs_partition(tmp_path / "out", "part0")

    with pytest.raises(AgreedError, match="part0 exists and is not of an earlier dispatch"):
        silently(options(source))

    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("size", [1, 2])
def test_parts_that_are_links_to_where_they_are_kept_are_replaced_and_never_followed(
    tmp_path: Path, size: int
) -> None:
    """A worker reads a kept partition by links; the next job in its workspace must not change that one."""
    silently(options(a_toy(1, parts=2).write(tmp_path / "first"), "kept"))
    before = contents(tmp_path / "kept")
    (tmp_path / "out").mkdir()
    for path in (tmp_path / "kept").iterdir():
        (tmp_path / "out" / path.name).symlink_to(path)
    source = a_toy(2, parts=2).write(tmp_path / "second")

    silently(options(source), size)
    silently(options(source, "fresh"), size)

    assert contents(tmp_path / "kept") == before
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_links_to_a_partition_that_is_gone_are_replaced(tmp_path: Path) -> None:
    """Nothing is written to where they lead."""
    source = a_toy(parts=2).write(tmp_path / "in")
    (tmp_path / "out").mkdir()
    (tmp_path / "kept").mkdir()
    for name in ("part0", "part1", "toy.json"):
        (tmp_path / "out" / name).symlink_to(tmp_path / "kept" / name)

    silently(options(source))
    silently(options(source, "fresh"))

    assert list((tmp_path / "kept").iterdir()) == []
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_links_to_another_file_system_are_no_reason_to_refuse(tmp_path: Path) -> None:
    """A store is a volume of its own; the parts are written beside the links, which go."""
    source = a_toy(parts=2).write(tmp_path / "in")
    silently(options(source))
    for name in ("part0", "part1"):
        (tmp_path / "out" / name).rename(tmp_path / f"old-{name}")
        (tmp_path / "out" / name).symlink_to("/proc")

    earlier_parts.refuse_overwriting(tmp_path / "out", "toy", ("toy.json",), 2)


class Killed(BaseException):
    """The end of a run."""


STEPS: dict[str, tuple[Any, str]] = {
    "the old JSON is aside": (earlier_parts, "remove"),
    "the old parts are gone": (Checkpoint, "publish"),
    "the parts are in place": (write_part_config, "write_json"),
    "the JSON is written": (earlier_parts, "forget"),
    "nothing but the hidden folder is left": (Checkpoint, "remove"),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_dispatch_killed_while_it_publishes_is_made_good_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Fewer parts over more: at no step does a JSON describe what is not there, and nothing old remains."""
    silently(options(a_toy(1, parts=4).write(tmp_path / "four")))
    source = a_toy(1, parts=2).write(tmp_path / "two")

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(*STEPS[step], killed)
        with pytest.raises(Killed):
            silently(options(source))
    has_json = (tmp_path / "out/toy.json").exists()
    whole = {path.name for path in (tmp_path / "out").glob("part*")} == {"part0", "part1"}

    silently(options(source))
    silently(options(source, "fresh"))

    assert whole or not has_json
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_tokens_of_a_killed_run_do_not_join_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two hosts with a disk each: with the old token of the other, one would write no assignment at all."""

    def look(ranks: ThreadRanks) -> tuple[int, ...]:
        return shared_folder.see(ranks, tmp_path / str((ranks.rank + swapped) % 2)).ranks

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        swapped = 0
        on_ranks(2, look)
        swapped = 1
        on_ranks(2, look)

    assert on_ranks(2, look) == [(0,), (1,)]


def test_ranks_that_share_a_folder_know_it(tmp_path: Path) -> None:
    """One of them writes what is written once."""
    found = on_ranks(3, lambda ranks: shared_folder.see(ranks, tmp_path / f"out{ranks.rank % 2}"))

    assert [each.ranks for each in found] == [(0, 2), (1,), (0, 2)]
    assert all(each.is_new for each in found)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
