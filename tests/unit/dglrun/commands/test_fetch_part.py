"""A worker takes its part from a store: a process that talks to the launcher as each receiver does."""

import shlex
import sys
from pathlib import Path

import pytest

from dglrun.commands import fetch_part
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.formats.kept import reference
from dglrun.formats.kept.fingerprint import PartitionInput
from dglrun.formats.kept.kept_partition import KeptPartition
from dglrun.formats.kept.partition_store import PartitionStore
from dglrun.formats.kept.reference import Reference
from dglrun.formats.store.file_backend import PARTIAL
from dglrun.transfer.kept_files import KeptFiles
from dglrun.transfer.partition_files import PartitionFiles
from dglrun.transfer.streams import Streams
from dglrun.workflow import part_delivery
from dglrun.workflow.part_delivery import PartDelivery
from dglrun.workflow.steps import Puller, Serve
from tests.support.dglrun_pods import ROOT, write_partition

pytestmark = pytest.mark.timeout(120)

INPUT = PartitionInput({}, {"parts": "2"})
FETCH = """
import sys
from dglrun.commands import fetch_part
from dglrun.formats.kept.partition_store import PartitionStore
{more}
sys.exit(fetch_part.main(["--part", sys.argv[1], "--deadline", "5", "--detach"]))
"""
AS_FROM_AFAR = "PartitionStore.local_folder = lambda store, kept: None"
"""The folder is used as a store that cannot be read in place."""


def keep(tmp_path: Path) -> KeptPartition:
    """A partition of two parts in a store; the launcher has the reference."""
    write_partition(tmp_path / "made", 2)
    store = PartitionStore(str(tmp_path / "store"))
    items = PartitionFiles.find(tmp_path / "made/tiny.json", 2).all_files()
    folder = store.new_folder()
    files = store.write_files(INPUT, folder, {item.name: item.path for item in items})
    kept = store.publish(
        KeptPartition(INPUT.fingerprint, folder, "tiny.json", 2, files, INPUT, "2026", "ns/job", "0.2.0")
    )
    reference.write(Reference(str(store), INPUT, kept), tmp_path / "dataset/tiny.kept.json")
    return kept


def deliver(tmp_path: Path, more: str = AS_FROM_AFAR) -> None:
    """Serve the reference to two workers, which take their parts."""
    python = FETCH.format(more=more)
    pullers = tuple(
        Puller(
            f"job-worker-{part}",
            "127.0.0.1",
            ("sh", "-c", f"cd {ROOT}; exec {sys.executable} -c {shlex.quote(python)} {part}"),
            part,
            str(tmp_path / f"{part}/workload"),
        )
        for part in (0, 1)
    )
    path = str(tmp_path / "dataset/tiny.kept.json")
    step = Serve("job-launcher", path, pullers, 16, 4, 1, keeps_sums=False, seconds=60.0)
    PartDelivery(
        step, KeptFiles.find(Path(path), 2), Streams(), lambda _: None, lambda _: None, lambda *_: None
    ).run()


def test_each_worker_fetches_its_part_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The files of its part, the JSON and the reference; the log says how much has come."""
    kept = keep(tmp_path)

    deliver(tmp_path)

    said = capfd.readouterr().out
    for part in (0, 1):
        work = tmp_path / f"{part}/workload"
        assert sorted(path.name for path in work.iterdir()) == [f"part{part}", "tiny.json", "tiny.kept.json"]
        assert not (work / f"part{part}").is_symlink()
        made = tmp_path / f"made/part{part}"
        assert {path.name: path.read_bytes() for path in (work / f"part{part}").iterdir()} == {
            path.name: path.read_bytes() for path in made.iterdir()
        }
        share = sum(file.size for name, file in kept.files.items() if f"part{part}" in name)
        assert f"job-worker-{part} has part {part} from {tmp_path}/store: {share / 1e6:.1f} MB in " in said


def test_in_a_folder_that_it_sees_it_copies_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Links lead to the files that are kept."""
    keep(tmp_path)

    deliver(tmp_path, "")

    assert (tmp_path / "1/workload/part1").is_symlink()
    assert (tmp_path / "1/workload/tiny.json").read_bytes() == (tmp_path / "made/tiny.json").read_bytes()
    assert "job-worker-1 reads part 1 in place" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("more", "words"),
    [(AS_FROM_AFAR, "expected sha256"), ("", "bytes as it was kept, found 3")],
)
def test_a_file_that_is_not_what_was_kept_is_refused(tmp_path: Path, more: str, words: str) -> None:
    """By its sum when it is copied, by its size in place; the message names it."""
    kept = keep(tmp_path)
    path = tmp_path / "store" / kept.path / "part1/graph.dgl"
    path.write_bytes(b"???")

    with pytest.raises(RunError, match=r"copy to job-worker-1 failed: .*part1/graph\.dgl.*") as failed:
        deliver(tmp_path, more)

    assert words in str(failed.value)
    assert list((tmp_path / "1/workload").iterdir()) == []


def test_what_a_killed_fetcher_has_begun_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would take room on the disk and appear among the files of the part."""
    kept = keep(tmp_path)
    monkeypatch.setattr(PartitionStore, "local_folder", lambda *_: None)
    target = tmp_path / "files"
    (target / "part1").mkdir(parents=True)
    for name in ("part1/graph.dgl", "tiny.json"):
        path = target / name
        path.with_name(f".{path.name}{PARTIAL}0a1b2c3d").write_text("half")
    reference.write(Reference(str(tmp_path / "store"), INPUT, kept), target / "tiny.kept.json")

    fetch_part.complete_part(target / "tiny.kept.json", 1, 5.0, lambda *_: None)

    made = {path.name for path in (tmp_path / "made/part1").iterdir()}
    assert {path.name for path in (target / "part1").iterdir()} == made
    assert {path.name for path in target.iterdir()} == {"part1", "tiny.json", "tiny.kept.json"}


def test_a_full_disk_is_said_before_anything_is_fetched(tmp_path: Path) -> None:
    """With the bytes that are needed, and the exit code of a full disk."""
    keep(tmp_path)
    full = """
import os
from dglrun.commands import fetch_part
require, full = fetch_part.require_room, os.statvfs_result((1, 1, 10, 1, 1, *os.statvfs(os.curdir)[5:10]))
def on_a_full_disk(*of):
    os.statvfs = lambda path: full
    require(*of)
fetch_part.require_room = on_a_full_disk
"""

    with pytest.raises(RunError, match="bytes free for 3 files, got 1") as failed:
        deliver(tmp_path, AS_FROM_AFAR + full)

    assert failed.value.code == exitcodes.FULL


def test_a_fetcher_that_is_killed_is_started_again_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What it has fetched stays."""
    monkeypatch.setattr(part_delivery, "BROKEN_SECONDS", 0.2)
    monkeypatch.setattr(part_delivery, "SILENT_SECONDS", 1.0)
    keep(tmp_path)
    dies = f"""
import os
fetch = PartitionStore.fetch
def killed(store, kept, name, path):
    fetch(store, kept, name, path)
    if name.endswith("graph.dgl") and not os.path.exists({str(tmp_path / "once")!r}):
        open({str(tmp_path / "once")!r}, "w").close()
        os.kill(os.getpid(), 9)
PartitionStore.fetch = killed
"""

    deliver(tmp_path, AS_FROM_AFAR + dies)

    assert "is begun again" in capfd.readouterr().out
    assert (tmp_path / "0/workload/part0/graph.dgl").exists()
    assert (tmp_path / "1/workload/part1/graph.dgl").exists()
