"""What a command does to the folder that it writes: locked, replaced whole, the user's files left alone."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from dglrun.commands import chunk, convert, partition, report
from dglrun.contract import exitcodes
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.formats import output_folder
from dglrun.formats.output_folder import OutputError
from dglrun.formats.parmetis import to_parmetis
from dglrun.mpi.collectives import SingleRank
from tests.support.commands import run_command
from tests.support.dglrun_pods import ROOT
from tests.support.heterographs import a_toy
from tests.support.wait import read_until


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def make_chunks(tmp_path: Path, out: Path, relations: int = 1, files: int = 1) -> int:
    np.save(tmp_path / "edges.npy", np.array([[0, 1], [1, 2], [2, 0]]))
    given = [f"--edges=n:r{at}:n={tmp_path}/edges.npy" for at in range(relations)]
    return run_command(
        chunk, "chunk", "--out-dir", str(out), "--name", "g", "--nodes", "n=3", "--files", str(files), *given
    )


def assign(tmp_path: Path, out: Path) -> int:
    source = tmp_path / "source"
    if not source.exists():
        a_toy().write(source)
    flags = ("--in-dir", str(source), "--out-dir", str(out), "--num-parts", "2", "--backend", "random")
    return run_command(partition, "partition", *flags)


def make_text(tmp_path: Path, out: Path, *more: str) -> int:
    source = tmp_path / "source"
    if not source.exists():
        a_toy().write(source)
    return run_command(
        convert, "convert", "to-parmetis", "--in-dir", str(source), "--out-dir", str(out), *more
    )


WRITERS: dict[str, Callable[[Path, Path], int]] = {
    "chunk": make_chunks,
    "partition": assign,
    "convert": make_text,
}


@contextmanager
def held(folder: Path, name: str = output_folder.LOCK) -> Iterator[None]:
    """Another run's lock."""
    folder.mkdir(exist_ok=True)
    with (folder / name).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize("command", WRITERS)
def test_a_second_run_at_the_same_time_ends_with_one_line_and_73(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """It names the folder and leaves it to the first."""
    with held(tmp_path / "out"):
        code = WRITERS[command](tmp_path, tmp_path / "out")

    told = capsys.readouterr().err
    assert code == exitcodes.CANTCREAT
    assert told.count("\n") == 1
    assert f"{tmp_path}/out: another run of dglrun is writing there" in told
    assert contents(tmp_path / "out") == {output_folder.LOCK: b""}


@pytest.mark.parametrize("command", WRITERS)
def test_a_folder_of_somebody_elses_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """Nothing is put among files that no command of ours has written."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("mine")

    code = WRITERS[command](tmp_path, tmp_path / "out")

    assert code == exitcodes.CANTCREAT
    assert "found 'thesis.tex'; name another folder" in capsys.readouterr().err
    assert contents(tmp_path / "out") == {"thesis.tex": b"mine"}


def test_chunk_over_an_older_folder_leaves_nothing_of_the_older_graph(tmp_path: Path) -> None:
    """Files of further relations and shares go, a note that the user has put there stays."""
    assert make_chunks(tmp_path, tmp_path / "out", relations=2, files=2) == 0
    (tmp_path / "out/edges/note").write_text("mine")

    assert make_chunks(tmp_path, tmp_path / "out") == 0

    assert set(contents(tmp_path / "out")) == {"metadata.json", "edges/0-r0-0.csv", "edges/note"}


def test_a_metadata_that_names_the_users_own_files_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A chunked graph that was made by hand is input, not an older output."""
    a_toy().write(tmp_path / "out")
    before = contents(tmp_path / "out")

    assert make_chunks(tmp_path, tmp_path / "out") == exitcodes.CANTCREAT

    assert "out/metadata.json: exists and is not of an earlier run of this command" in capsys.readouterr().err
    assert contents(tmp_path / "out") == before


def test_an_assignment_of_other_types_goes_with_its_metadata(tmp_path: Path) -> None:
    """A text file of a node type that the new graph has not would be taken for a part of it."""
    assert assign(tmp_path, tmp_path / "out") == 0
    a_toy(2, (5,), (7,)).write(tmp_path / "smaller")
    (tmp_path / "source").rename(tmp_path / "larger")
    (tmp_path / "smaller").rename(tmp_path / "source")

    assert assign(tmp_path, tmp_path / "out") == 0

    assert set(contents(tmp_path / "out")) == {"n0.txt", "partition_meta.json"}


def test_text_in_the_other_form_does_not_stay(tmp_path: Path) -> None:
    """from-parmetis would read the one-file form that the lists have replaced."""
    assert make_text(tmp_path, tmp_path / "out") == 0

    assert make_text(tmp_path, tmp_path / "out", "--lists", "2") == 0

    assert not (tmp_path / "out/toy_nodes.txt").exists()
    assert f"{tmp_path}/out/toy_nodes-1.txt" in (tmp_path / "out/toy_nfiles.txt").read_text()


def test_ctrl_c_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file under its final name is cut short."""
    assert make_text(tmp_path, tmp_path / "out") == 0
    before = contents(tmp_path / "out")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(to_parmetis, "_stats", interrupt)
    with pytest.raises(KeyboardInterrupt):
        make_text(tmp_path, tmp_path / "out", "--by-degree")

    assert contents(tmp_path / "out") == before


def replace_by(folder: Path, old: Sequence[str], new: Sequence[str]) -> None:
    """A run that replaces the old files by new ones; the first file is the metadata."""
    with output_folder.replacing(
        folder, lambda _: [Path(name) for name in old], new[:1], among_others=True
    ) as draft:
        for name in new:
            (draft / name).parent.mkdir(exist_ok=True)
            (draft / name).write_text("new")


def test_a_signal_in_the_midst_of_the_swap_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between two renames left old and new files mixed."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "c").write_text("old")
    prepare = output_folder._prepare_swap

    def interrupted(*given: Any) -> None:
        prepare(*given)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(output_folder, "_prepare_swap", interrupted)
    # Python's own, unless SIGINT is ignored: a shell without job control does so for what it starts by `&`.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            replace_by(tmp_path, ("a", "c"), ("a", "b"))
        after = signal.getsignal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, before)

    assert contents(tmp_path) == {"a": b"new", "b": b"new"}
    assert after is signal.default_int_handler


def test_a_folder_in_the_target_on_another_file_system_is_refused(tmp_path: Path) -> None:
    """The swap stuck there, after the old files had gone, and so did each later run."""
    with TemporaryDirectory(dir="/dev/shm") as elsewhere:
        (tmp_path / "part0").symlink_to(elsewhere)
        (tmp_path / "a").write_text("old")
        with pytest.raises(OutputError, match="part0: expected a folder on the file system of"):
            replace_by(tmp_path, ("a",), ("a", "part0/file"))

        assert contents(tmp_path) == {"a": b"old"}


def test_whoever_may_write_the_folder_can_take_a_lock_that_was_left(tmp_path: Path) -> None:
    """The pod that was killed ran as another user."""
    tmp_path.chmod(0o777)

    with output_folder.locked(tmp_path):
        mode = (tmp_path / output_folder.LOCK).stat().st_mode

    assert mode & 0o666 == 0o666


def test_a_report_through_a_link_keeps_the_link(tmp_path: Path) -> None:
    """As every program's output does."""
    (tmp_path / "real").write_text("older")
    (tmp_path / "link").symlink_to("real")

    with output_folder.replacing_file(tmp_path / "link") as draft:
        draft.write_text("newer")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "newer"


def test_what_is_no_plain_file_is_written_as_it_is(tmp_path: Path) -> None:
    """/dev/stdout became a file on the disk of a container."""
    os.mkfifo(tmp_path / "pipe")

    with output_folder.replacing_file(tmp_path / "pipe") as draft:
        assert draft == tmp_path / "pipe"

    assert (tmp_path / "pipe").is_fifo()


LIMITED = """
import resource, sys
from dglrun.__main__ import main
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
sys.exit(main(sys.argv[1:]))
"""


def limited(*argv: str) -> "subprocess.CompletedProcess[str]":
    """A run on a disk that is full after 100 bytes of each file."""
    command = (sys.executable, "-c", LIMITED, *argv)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_a_full_disk_leaves_no_text_under_a_final_name(tmp_path: Path) -> None:
    """Nor the hidden draft."""
    a_toy().write(tmp_path / "in")

    ended = limited("convert", "to-parmetis", "--in-dir", f"{tmp_path}/in", "--out-dir", f"{tmp_path}/out")

    assert ended.returncode != 0
    assert not (tmp_path / "out").exists()


def a_partition(tmp_path: Path) -> str:
    source = a_toy(parts=2).write(tmp_path / "in")
    dispatch(Options(source, source / "parts", tmp_path / "parts"), SingleRank(), lambda _: None)
    return str(tmp_path / "parts/toy.json")


@pytest.mark.parametrize("form", ["json", "html"])
def test_a_full_disk_leaves_the_older_report(tmp_path: Path, form: str) -> None:
    """A reader never finds half of one."""
    (tmp_path / "report").write_text("older")

    ended = limited("report", a_partition(tmp_path), f"--{form}", f"{tmp_path}/report")

    assert ended.returncode == exitcodes.IO
    assert (tmp_path / "report").read_text() == "older"
    assert not list(tmp_path.glob(".*"))


def test_a_report_into_a_folder_that_is_not_there_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the file that was asked for, and makes no folder."""
    code = run_command(report, "report", a_partition(tmp_path), "--json", str(tmp_path / "none/report.json"))

    assert code == exitcodes.IO
    said = capsys.readouterr().err
    assert f"{tmp_path}/none/report.json: cannot be written: {tmp_path}/none is not a folder" in said
    assert not (tmp_path / "none").exists()


def test_two_reports_into_one_file_do_not_mix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is told who is in its way."""
    config = a_partition(tmp_path)

    with held(tmp_path, ".dglrun-report"):
        code = run_command(report, "report", config, "--json", str(tmp_path / "report"))

    assert code == exitcodes.CANTCREAT
    assert f"{tmp_path}/report: another run of dglrun" in capsys.readouterr().err


HOLDER = """
import signal, sys
from pathlib import Path
from dglrun.formats import output_folder
with output_folder.replacing(Path(sys.argv[1]), lambda _: (), ("m",)) as draft:
    (draft / "half").write_text("half")
    print("holds", flush=True)
    signal.pause()
"""


def test_a_killed_run_holds_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    """The kernel gives its lock back, the next run removes its draft."""
    command = (sys.executable, "-c", HOLDER, str(tmp_path / "out"))
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as other:
        read_until(other, "holds")
        with pytest.raises(OutputError), output_folder.locked(tmp_path / "out"):
            pass
        other.kill()

    assert make_chunks(tmp_path, tmp_path / "out") == 0

    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["edges", "metadata.json"]


def test_a_file_system_without_locks_is_written_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Some network file systems have none; to refuse them would help nobody."""

    def unable(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", unable)

    assert make_chunks(tmp_path, tmp_path / "out") == 0

    assert f"note: {tmp_path}/out: cannot be locked: Function not implemented" in capsys.readouterr().err


def test_a_lock_whose_file_went_with_its_holder_is_not_taken_for_the_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened before the holder removed it, locked after: a third run would lock a file of that name, too."""
    flock = fcntl.flock
    files: list[int] = []

    def late(file: int, operation: int) -> None:
        if not files:
            (tmp_path / output_folder.LOCK).unlink()
        files.append(os.fstat(file).st_ino)
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)

    with output_folder.locked(tmp_path):
        assert (tmp_path / output_folder.LOCK).stat().st_ino == files[-1]
        assert len(files) == 2


class Killed(BaseException):
    """A run that is killed cleans nothing up."""


OLD = {"a": b"1", "b": b"1", "g.json": b'{"part-0": 1}'}
NEW = {"a": b"2", "c": b"2", "g.json": b'{"part-0": 2}'}


def write_files(folder: Path, files: dict[str, bytes], older: dict[str, bytes]) -> None:
    with output_folder.replacing(folder, lambda _: map(Path, older), ("g.json",)) as draft:
        for name, data in files.items():
            (draft / name).write_bytes(data)


def dying(left: list[int], method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, of whose calls only so many are made; but a killed run's lock is no more."""

    def act(path: Path, *args: Any, **named: Any) -> Any:
        left[0] -= path.name != output_folder.LOCK
        if left[0] < 0:
            raise Killed
        return method(path, *args, **named)

    return act


@pytest.mark.parametrize("step", range(9))
def test_a_run_killed_in_the_swap_is_completed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """At whatever step: a folder with metadata is whole, and has the files that the metadata describes."""
    out, left = tmp_path / "out", [step]
    write_files(out, OLD, {})
    with monkeypatch.context() as patch:
        for name in ("replace", "unlink"):
            patch.setattr(Path, name, dying(left, getattr(Path, name)))
        patch.setattr("dglrun.formats.output_folder.shutil.rmtree", dying(left, lambda *_, **__: None))
        with pytest.raises(Killed):
            write_files(out, NEW, OLD)
        left[0] = 99
        (out / output_folder.LOCK).unlink(missing_ok=True)
    seen = {name: data for name, data in contents(out).items() if not name.startswith(".")}

    with output_folder.locked(out):
        output_folder.recover(out)

    assert "g.json" not in seen or seen in (OLD, NEW)
    assert contents(out) in (OLD, NEW)
