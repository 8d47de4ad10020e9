"""What stops a dispatch, what it leaves behind, and how the next run takes up the work."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.commands import dispatch as dispatch_command
from dglrun.dispatch import features, pipeline
from dglrun.dispatch.edges import EdgeReader
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.errors import DataError
from dglrun.formats import assignment
from dglrun.formats.chunked import write
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.mpi.collectives import SingleRank
from tests.benchmarks import rusage
from tests.support.commands import run_command, run_program
from tests.support.heterographs import Toy, a_toy
from tests.support.thread_ranks import on_ranks

ROOT = Path(__file__).parents[4]


def options(folder: Path, out: str = "out") -> Options:
    places = folder, folder / "parts", folder.parent / out
    return Options(*places, save_orig_nids=True, save_orig_eids=True, source_sums=True)


def silently(wanted: Options, size: int = 1) -> None:
    on_ranks(size, lambda ranks: dispatch(wanted, ranks, lambda _: None))


def contents(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_line(path: Path, number: int, text: str) -> None:
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")


BAD_INPUTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a missing edge file": (lambda d: (d / "n0-r0-n1-2.csv").unlink(), "n0-r0-n1-2.csv does not exist"),
    "a missing assignment": (lambda d: (d / "parts/n1.txt").unlink(), "n1.txt: cannot be read"),
    "a missing meta": (lambda d: (d / "parts/partition_meta.json").unlink(), "partition_meta.json: cannot"),
    "a part out of range": (
        lambda d: replace_line(d / "parts/n1.txt", 13, "3"),
        r"n1.txt: line 13: expected a part from 0 to 2, got '3'",
    ),
    "a part that is no number": (
        lambda d: replace_line(d / "parts/n0.txt", 30, "-1"),
        r"n0.txt: line 30: expected a part from 0 to 2, got '-1'",
    ),
    "a line too few": (
        lambda d: (d / "parts/n2.txt").write_text("0\n" * 6),
        "n2.txt: expected 7 lines, one for each n2 node, got 6",
    ),
    "an ID out of range": (
        lambda d: replace_line(d / "n0-r0-n1-1.csv", 4, "3 20"),
        r"n0-r0-n1-1.csv: line 4: expected a destination ID from 0 to 19, got 20",
    ),
    "a bad row": (
        lambda d: replace_line(d / "n0-r0-n1-2.csv", 2, "1 x"),
        r"n0-r0-n1-2.csv: line 2: expected 2 integers with ' ' between them, got '1 x'",
    ),
    "a row too few": (
        lambda d: (d / "n1-r1-n0-0.csv").write_text("0 0\n"),
        "edges of n1:r1:n0: the metadata says 40 rows, the files have 27",
    ),
    "features of a strange type": (
        lambda d: np.save(d / "n0-feat-1.npy", np.zeros((10, 3), np.uint32)),
        "n0-feat-1.npy",
    ),
}


def test_a_value_that_the_first_line_did_not_announce_is_told_with_the_remedy(tmp_path: Path) -> None:
    """Features are read last, into the hidden folder: no part and no JSON appear."""
    source = a_toy(parts=2).write(tmp_path / "in")
    (source / "f.csv").write_text("0 1\n" * 12 + "0 0.5\n" + "0 1\n" * 17)
    described = json.loads((source / "metadata.json").read_text())
    described["node_data"]["n0"]["extra"] = {
        "format": {"name": "csv", "delimiter": " "},
        "data": ["f.csv"],
    }
    (source / "metadata.json").write_text(json.dumps(described))

    with pytest.raises(DataError, match=r"f\.csv: line 13: .* '0 0\.5'; dtype int64 inferred from line 1"):
        silently(options(source))

    assert [path.name for path in (tmp_path / "out").iterdir()] == [".dglrun-dispatch-0"]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_bad_input_stops_before_anything_is_written(tmp_path: Path, case: str, size: int) -> None:
    """One clear error on every rank, naming file and line; no output folder."""
    spoil, message = BAD_INPUTS[case]
    source = a_toy().write(tmp_path / "in", chunks=3)
    spoil(source)

    with pytest.raises(DataError, match=message):
        silently(options(source), size)

    assert not (tmp_path / "out").exists()


def test_a_number_of_machines_that_does_not_divide_the_parts_is_refused(tmp_path: Path) -> None:
    """As in DGL's dispatch; blank lines are no machines."""
    source = a_toy(parts=3).write(tmp_path / "in")
    (tmp_path / "ip").write_text("10.0.0.1\n\n10.0.0.2\n\n")
    wanted = Options(source, source / "parts", tmp_path / "out", ip_config=tmp_path / "ip")

    with pytest.raises(DataError, match="divides 3 parts, got 2"):
        silently(wanted)


def interrupted(monkeypatch: pytest.MonkeyPatch, wanted: Options, after: int, size: int = 1) -> None:
    """Run a dispatch that dies after some features."""
    run, done = features.RowStream.run, []

    def dying(self: features.RowStream, *args: Any) -> None:
        if self.name == "n1/label":
            raise MemoryError("died")
        run(self, *args)
        done.append(self.name)

    with monkeypatch.context() as patch:
        patch.setattr(features.RowStream, "run", dying)
        with pytest.raises(MemoryError):
            silently(wanted, size)
    assert len(done) >= after


@pytest.mark.parametrize("size", [1, 2])
def test_an_interrupted_run_resumes_by_finished_stages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Edges are not routed again, finished features not read again, and the bytes are the same."""
    source = a_toy(parts=4).write(tmp_path / "in", chunks=2)
    silently(options(source, "whole"), size)
    interrupted(monkeypatch, options(source), 4, size)
    assert not list((tmp_path / "out").glob("*.json"))
    monkeypatch.setattr(EdgeReader, "read", None)
    said: list[str] = []

    on_ranks(size, lambda ranks: dispatch(options(source), ranks, said.append))

    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert any("resumed: finished before: graph, orig_nids, node:n0/feat" in text for text in said)
    assert not any("n0/feat written" in text for text in said)


def test_work_on_other_input_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed input file makes the next run start anew."""
    source = a_toy(parts=2).write(tmp_path / "in")
    interrupted(monkeypatch, options(source), 4)
    replace_line(source / "n0-r0-n1-0.csv", 1, "0 0")
    said: list[str] = []

    dispatch(options(source), SingleRank(), said.append)
    silently(options(source, "fresh"))

    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert not any("resumed" in text for text in said)


def test_work_with_a_damaged_file_is_not_taken_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of another size than recorded means that nothing is trusted."""
    source = a_toy(parts=2).write(tmp_path / "in")
    interrupted(monkeypatch, options(source), 4)
    (tmp_path / "out/.dglrun-dispatch-0/part1/graph.dgl").write_bytes(b"cut")
    said: list[str] = []

    dispatch(options(source), SingleRank(), said.append)

    assert not any("resumed" in text for text in said)


def test_the_inputs_metadata_is_not_overwritten(tmp_path: Path) -> None:
    """The parts' JSON has the same name beside `<graph>.json`."""
    source = a_toy(parts=2).write(tmp_path / "in")
    before = contents(source)

    with pytest.raises(DataError, match="is the input's metadata; name another"):
        silently(Options(source, source / "parts", source))

    assert contents(source) == before


def test_another_graphs_json_does_not_stay_beside_new_parts(tmp_path: Path) -> None:
    """It would name files that are no longer its own."""
    silently(options(a_toy(1, parts=2).write(tmp_path / "in")))
    (tmp_path / "out/other.json").write_text((tmp_path / "out/metadata.json").read_text())
    (tmp_path / "out/notes.json").write_text("{}")

    silently(options(a_toy(2, parts=2).write(tmp_path / "second")))

    left = sorted(path.name for path in (tmp_path / "out").glob("*.json"))
    assert "other.json" not in left
    assert "notes.json" in left


def test_a_second_dispatch_replaces_the_first(tmp_path: Path) -> None:
    """The folder holds the new parts and nothing of the old ones' making."""
    silently(options(a_toy(seed=1).write(tmp_path / "one")))
    second = a_toy(seed=2).write(tmp_path / "two")

    silently(options(second))
    silently(options(second, "fresh"))

    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_leftovers_of_more_ranks_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted run on three ranks leaves nothing after a run on one."""
    source = a_toy(parts=4).write(tmp_path / "in")
    interrupted(monkeypatch, options(source), 4, size=3)

    silently(options(source))

    assert not list((tmp_path / "out").glob(".*"))


def test_the_command_says_what_is_wrong_and_returns_65(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit codes never lie: bad data is 65, one line on stderr."""
    source = a_toy().write(tmp_path / "in")
    (source / "parts/n0.txt").write_text("0\n")

    code = run_dispatch(source, tmp_path / "out")

    assert code == 65
    assert "n0.txt: expected 30 lines, one for each n0 node, got 1" in capsys.readouterr().err


def test_a_broken_disk_is_74_and_a_bug_70(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The world's errors and ours have their own codes."""
    source = a_toy().write(tmp_path / "in")
    (tmp_path / "file").write_text("")

    assert run_dispatch(source, tmp_path / "file" / "out") == 74
    monkeypatch.setattr(pipeline.Dispatch, "run", lambda self: 1 / 0)
    assert run_dispatch(source, tmp_path / "out") == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_full_disk_is_told_with_the_file_and_publishes_nothing(tmp_path: Path) -> None:
    """Here by the limit of a file's size, which the kernel reports as it does a full disk."""
    toy = Toy(
        {"n": 3000},
        {"n:e:n": np.zeros((1, 2), int)},
        {"n": np.arange(3000) % 2},
        2,
        {"n": {"feat": np.ones((3000, 100), np.float32)}},
    )
    source = toy.write(tmp_path / "in", fmt="numpy")
    flags = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"))
    limited = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000));"
    program = f"{limited} from dglrun.__main__ import main; sys.exit(main(sys.argv[1:]))"

    ended = run_program(
        (sys.executable, "-c", program, "dispatch", *flags, "--out-dir", str(tmp_path / "out"))
    )

    assert ended.returncode == 74
    assert re.search(r"part0/node_feat\.dgl: File too large$", ended.stderr)
    assert not list((tmp_path / "out").glob("*.json"))
    assert not list((tmp_path / "out").glob("part*"))


@pytest.mark.parametrize("limits", [(64, 4096), (64, 64)], ids=["soft", "hard"])
def test_more_parts_than_open_files_are_written(tmp_path: Path, limits: tuple[int, int]) -> None:
    """The soft limit is raised; under the hard one files are opened for each block."""
    source = a_toy(parts=120).write(tmp_path / "in")
    silently(options(source, "whole"))
    flags = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"))
    program = (
        f"import resource, sys; from dglrun.__main__ import main;"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, {limits}); sys.exit(main(sys.argv[1:]))"
    )
    saved = ("--save-orig-nids", "--save-orig-eids", "--source-sums")
    command = (sys.executable, "-c", program, "dispatch", *flags, *saved)

    ended = run_program((*command, "--out-dir", str(tmp_path / "out")))

    assert ended.returncode == 0, ended.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_flags_of_dgls_script_that_need_no_ssh_are_accepted(tmp_path: Path) -> None:
    """A command line written for dispatch_data.py works as it is."""
    source = a_toy(parts=2).write(tmp_path / "in")
    (tmp_path / "ip").write_text("10.0.0.1\n10.0.0.2\n")
    flags = "--ssh-port 22 --master-port 1 --python-path python3 --log-level INFO --process-group-timeout 9"

    code = run_dispatch(source, tmp_path / "out", "--ip-config", str(tmp_path / "ip"), *flags.split())

    assert code == 0
    assert (tmp_path / "out/metadata.json").exists()


@pytest.mark.parametrize("layout", ["numpy", "parquet"])
@pytest.mark.parametrize("kind", ["n", "n:e:n"])
def test_memory_does_not_grow_with_the_width_of_features(tmp_path: Path, kind: str, layout: str) -> None:
    """Twice as many megabytes cost a fraction of the difference: rows pass through in blocks."""
    peaks, number = [], 60_000
    for width in (400, 1200):
        folder, rows = tmp_path / str(width), np.ones((number, width), np.float32)
        edges = np.stack([np.arange(number), np.arange(number)[::-1]], axis=1)
        data = {kind: {"feat": rows}}
        write.graph(
            folder,
            "g",
            {"n": number},
            {"n:e:n": edges},
            data if kind == "n" else None,
            data if kind != "n" else None,
            feature_layout=layout,
        )
        assignment.write(
            folder / "parts",
            ChunkedGraph.load(folder),
            {"n": (np.arange(number) % 2).astype(np.uint16)},
            assignment.AssignmentMeta(2, "random"),
        )
        peaks.append(peak_memory(folder, tmp_path / f"out{width}"))

    assert peaks[1] - peaks[0] < 60 << 20
    assert peaks[1] < 1.2 * number * 1200 * 4 + 7e8


def peak_memory(source: Path, out: Path) -> int:
    """Bytes that a dispatch in a process of its own held at most."""
    flags = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--out-dir", str(out))
    usage = Path(f"{out}.usage")
    argv = (*rusage.noting(usage), sys.executable)
    subprocess.run((*argv, "-m", "dglrun.commands.dispatch_rank", *flags), cwd=ROOT, check=True, timeout=500)
    return int(rusage.used(usage).rss * 2**20)


def run_dispatch(source: Path, out: Path, *more: str) -> int:
    folders = ("--in-dir", str(source), "--partitions-dir", str(source / "parts"), "--out-dir", str(out))
    return run_command(dispatch_command, "dispatch", *folders, *more)
