"""A real S3 server that is killed in the middle of a hop, and one whose disk is full; checkpoints on it."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from dglrun.arrays import Array
from dglrun.formats import store
from dglrun.formats.chunked import write
from dglrun.formats.store import Place
from tests.integration.conftest import prepared
from tests.support.byte_valve import ByteValve, byte_valve
from tests.support.dglrun_pods import ROOT, Pods
from tests.support.needs import NEEDS_MPI
from tests.support.s3_server import S3Server, s3_server, variables
from tests.support.wait import read_until, wait_for

pytestmark = pytest.mark.integration

MEBIBYTE = 1 << 20
LARGE = 64 * MEBIBYTE
"""Bytes of what is on its way when the server is killed."""
PASSING = 40 * MEBIBYTE
"""Bytes that get through until then: some parts of the file, and never the whole."""
ROOM = 16 * MEBIBYTE
"""Of the disk that is full sooner or later: fewer than the files have, more than the server's own."""
NODES, EDGES, WIDTH = 60_000, 100_000, 64
"""Of the graph that is read while the server is killed: 15 MB of features, 2 MB of edges."""
READ = 8 * MEBIBYTE
"""Bytes of it that get through until then."""
SKIP = {"DGL_OPERATOR_PARTITION_MODE": "Skip"}
PLACES = ("--workspace", "ws", "--dataset-dir", "dataset", "--shm-dir", "../shm")
KEPT = ("-g", "tiny", *PLACES, "--partitions", "s3://data/kept")
PARTITION = f"""
import os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from tests.support.dglrun_pods import write_partition
print("partitions now", flush=True)
write_partition(Path("ws/dataset"), 2)
Path("ws/dataset/part1/graph.dgl").write_bytes(os.urandom({LARGE}))
"""
TRAIN = """
import os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    while not Path("../over").exists():
        time.sleep(0.05)
    sys.exit()
Path("../over").touch()
"""
CHECKPOINTS = """
import os, time
from pathlib import Path
folder = Path(os.environ["DGL_CHECKPOINT_DIR"])
print("begins after", sorted(path.name for path in folder.iterdir()), flush=True)

def save(name, size):
    (folder / "unfinished.tmp").write_bytes(os.urandom(size))
    (folder / "unfinished.tmp").replace(folder / name)

def wait_until_told(name):
    while not Path("..", name).exists():
        time.sleep(0.05)
"""


@pytest.fixture
def valve(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[ByteValve]:
    """The way to the server by which the environment leads from now on."""
    with byte_valve(server.port) as found:
        for name, value in variables(f"https://{server.host}:{found.port}", server.ca_file).items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture
def full_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The same on a small disk of its own."""
    if os.geteuid() != 0:
        pytest.skip("a disk of its own needs root")
    folder = tmp_path / "server"
    folder.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", f"size={ROOM}", "tmpfs", str(folder)), check=True)
    try:
        with s3_server(folder) as found:
            yield prepared(found, monkeypatch)
    finally:
        subprocess.run(("umount", "--lazy", str(folder)), check=True)


def objects() -> set[str]:
    """The names of all objects that a client sees."""
    return set(store.place("s3://data").files())


def kill_in_the_middle(server: S3Server, valve: ByteValve, name: str) -> list[Path]:
    """Kill the server while a transfer cannot end, and start it again; what it showed under a name then."""
    wait_for("more than may pass", lambda: valve.is_holding, 120)
    server.kill()
    seen = shown(server, name)
    valve.open()
    server.start()
    return seen


def shown(server: S3Server, name: str) -> list[Path]:
    """The files of a name that are objects."""
    return [path for path in server.root.glob(f"data/**/{name}") if ".sgwtmp" not in path.parts]


def partitioner(pods: Pods) -> tuple[str, ...]:
    """The command line of a partitioner that makes large files."""
    script = pods.script(PARTITION, "partition.py")
    return (*KEPT, "--num-partitions", "2", "--verify", "never", "--partition-entry-point", script)


PARTITIONER = {"phase": "Partitioner", "where": "partitioner"}


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A chunked graph and, in `parts`, an assignment of its nodes to two parts."""
    random, folder = np.random.default_rng(12), tmp_path / "graph"
    features: dict[str, dict[str, Array]] = {
        "n": {"x": random.standard_normal((NODES, WIDTH)).astype(np.float32)}
    }
    edges = {"n:e:n": random.integers(0, NODES, (EDGES, 2))}
    write.graph(folder, "tiny", {"n": NODES}, edges, features, layout="numpy", files=3)
    (folder / "parts").mkdir()
    (folder / "parts/n.txt").write_text("".join(f"{node % 2}\n" for node in range(NODES)))
    meta = {"version": "1.0.0", "num_parts": 2, "algo_name": "random"}
    (folder / "parts/partition_meta.json").write_text(json.dumps(meta))
    return folder


def uploaded(graph: Path) -> Place:
    """The graph in the bucket."""
    place = store.place("s3://data/graph")
    for path in graph.rglob("*"):
        if path.is_file():
            (place / path.relative_to(graph)).upload(path)
    return place


@contextmanager
def dispatching(source: str, graph: Path, out: Path) -> Iterator["subprocess.Popen[str]"]:
    """Two ranks that dispatch a graph; ended if they still run."""
    argv = ("--in-dir", source, "--partitions-dir", str(graph / "parts"), "--out-dir", str(out))
    process = subprocess.Popen(
        (sys.executable, "-m", "dglrun", "dispatch", *argv, "--ranks", "2"),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        with process:
            yield process
    finally:
        process.kill()


def contents(folder: Path) -> dict[Path, str]:
    """The sums of all files of a folder."""
    return {path.relative_to(folder): digest(path) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.mpi
@NEEDS_MPI
def test_ranks_read_the_graph_though_the_server_is_killed(
    server: S3Server, valve: ByteValve, graph: Path, tmp_path: Path
) -> None:
    """In the middle of their shares: they write byte by byte what they write of the graph in a folder."""
    place = uploaded(graph)
    with dispatching(str(graph), graph, tmp_path / "local") as process:
        output = process.communicate(timeout=240)[0]
    assert process.returncode == 0, output

    valve.hold_after(READ)
    with dispatching(str(place), graph, tmp_path / "remote") as process:
        kill_in_the_middle(server, valve, "metadata.json")
        output = process.communicate(timeout=240)[0]

    assert process.returncode == 0, output
    assert contents(tmp_path / "remote") == contents(tmp_path / "local")


def test_a_partitioner_reads_the_graph_though_the_server_is_killed(
    server: S3Server, valve: ByteValve, graph: Path, tmp_path: Path
) -> None:
    """In the middle of a file: the parts that it delivers are those of the whole graph."""
    pods, place = Pods(tmp_path / "pods"), uploaded(graph)
    flags = ("--chunked-graph", str(place), "--num-partitions", "2", "--partition-backend", "random")
    valve.hold_after(READ)
    with pods.started("-g", "tiny", *PLACES, *flags, "--verify", "always", **PARTITIONER) as process:
        kill_in_the_middle(server, valve, "metadata.json")
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert "source: sound" in done.output
    assert (pods.launcher / "dataset/part1/graph.dgl").is_file()


def test_a_partition_is_written_and_read_though_the_server_is_killed(
    server: S3Server, valve: ByteValve, tmp_path: Path
) -> None:
    """In the middle of a file each time: no half of it is shown, and the part arrives whole."""
    pods = Pods(tmp_path / "pods")
    valve.hold_after(PASSING)
    with pods.started(*partitioner(pods), **PARTITIONER) as process:
        seen = kill_in_the_middle(server, valve, "part1/graph.dgl")
        kept = pods.finish(process)
    assert kept.code == 0, kept.output
    assert seen == []

    train = (*KEPT, "--train-entry-point", pods.script(TRAIN))
    valve.hold_after(PASSING)
    with pods.started(*train) as process:
        kill_in_the_middle(server, valve, "part1/graph.dgl")
        trained = pods.finish(process)

    assert trained.code == 0, trained.output
    (source,) = server.root.glob("data/kept/*/w-*/part1/graph.dgl")
    assert digest(pods.worker(1) / "ws/workload/part1/graph.dgl") == digest(source)


def digest(path: Path) -> str:
    """A file's sum."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def trained(pods: Pods, what: str) -> tuple[str, ...]:
    """The command line of a training in the launcher alone that saves as the script says."""
    place = ("--checkpoints", "s3://data/runs", "--checkpoint-interval", "1")
    return ("--train-entry-point", pods.script(CHECKPOINTS + what), *place, "--workspace", "ws")


def test_checkpoints_are_kept_though_the_server_is_killed_and_are_there_in_new_pods(
    server: S3Server, valve: ByteValve, tmp_path: Path
) -> None:
    """In the middle of a large one; what the next start has is what was saved, byte by byte."""
    pods = Pods(tmp_path / "pods", workers=1)
    argv = trained(pods, f'save("epoch-1.pt", {LARGE}); wait_until_told("go"); save("epoch-2.pt", 1000)')
    valve.hold_after(PASSING)
    with pods.started(*argv, phase="Launcher_Workload", **SKIP) as process:
        seen = kill_in_the_middle(server, valve, "epoch-1.pt")
        wait_for("it is kept", lambda: "runs/tests/job/rank-0/epoch-1.pt" in objects(), 120)
        (pods.root / "go").touch()
        done = pods.finish(process)
    assert done.code == 0, done.output
    assert seen == []

    again = Pods(tmp_path / "again", workers=1)
    argv = trained(again, "")
    resumed = again.run(*argv, phase="Launcher_Workload", **SKIP)

    assert resumed.code == 0, resumed.output
    assert "begins after ['epoch-1.pt', 'epoch-2.pt']" in resumed.output
    name = "ws/checkpoints/job/rank-0/epoch-1.pt"
    assert digest(again.launcher / name) == digest(pods.launcher / name)


@pytest.mark.usefixtures("full_server")
def test_a_partition_without_space_is_one_line(tmp_path: Path) -> None:
    """Exit code 71; nothing of it can be seen."""
    pods = Pods(tmp_path / "pods")

    done = pods.run(*partitioner(pods), **PARTITIONER)

    assert done.code == 71, done.output
    assert "partitions now" in done.output
    told = done.message.splitlines()  # which step it was, how long it takes, and what is wrong
    assert [line for line in told if "no space left" in line] == told[-1:]
    assert objects() == set()


@pytest.mark.usefixtures("full_server")
def test_an_output_without_space_is_one_line(tmp_path: Path) -> None:
    """Exit code 71; neither the file nor the manifest appears, so that nobody takes it for an output."""
    (tmp_path / "output").mkdir()
    (tmp_path / "output/model.pt").write_bytes(os.urandom(LARGE))

    argv = ("--folder", str(tmp_path / "output"), "--to", "s3://data/run")
    ended = subprocess.run(
        (sys.executable, "-m", "dglrun.commands.upload_output", *argv),
        cwd=ROOT,
        env={**os.environ},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert ended.returncode == 71, ended.stderr
    assert len(ended.stderr.splitlines()) == 1
    assert "s3://data/run/model.pt: no space left" in ended.stderr
    assert objects() == set()


@pytest.mark.usefixtures("full_server")
def test_checkpoints_without_space_are_a_note(tmp_path: Path) -> None:
    """The training goes on, and what it saves later is kept."""
    pods = Pods(tmp_path / "pods", workers=1)
    argv = trained(
        pods,
        f'save("epoch-1.pt", {LARGE}); wait_until_told("go"); (folder / "epoch-1.pt").unlink();'
        'save("epoch-2.pt", 1000); wait_until_told("end")',
    )
    with pods.started(*argv, phase="Launcher_Workload", **SKIP) as process:
        told = read_until(process, "checkpoints are not kept: ")
        seen = objects()
        (pods.root / "go").touch()
        read_until(process, "checkpoints are kept again")
        (pods.root / "end").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert "epoch-1.pt: no space left" in told
    assert not [name for name in seen if "epoch" in name]
    assert {name for name in objects() if "epoch" in name} == {"runs/tests/job/rank-0/epoch-2.pt"}
