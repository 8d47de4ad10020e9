"""Time per epoch under dglrun and by hand. `make bench ONLY=training`; needs root.

One server and two trainers of the GraphSAGE example share a worker of `dglrun local`, agent and keeper of
checkpoints beside them; by hand they are plain processes with DGL's environment variables and nothing else,
in a network of their own. Both read the same partition of one part, whose data go over the loopback. The two
ways take turns. An epoch's time is what rank 0 says of it; the first epoch of each run is left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import yaml

from tests.e2e import local
from tests.support.local_runs import OWN_NETWORK
from tests.support.measured import TABLES, row

ROUNDS = 5
EPOCHS = 6
TRAINERS = 2
PORT = 30050
SECONDS = 1800
PREPARED = """
import shutil, sys
shutil.copytree("partition", "dataset", dirs_exist_ok=True)
"""


def main(argv: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"runs of each way (default: {ROUNDS})")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"of each run (default: {EPOCHS})")
    parser.add_argument(
        "--graph", type=Path, metavar="FOLDER", help="the example's graph, made where missing"
    )
    args = parser.parse_args(argv)
    print(TABLES["training"].head)
    for cells in rows(args.rounds, args.epochs, args.graph):
        print(row(cells), flush=True)
    return 0


def rows(rounds: int = ROUNDS, epochs: int = EPOCHS, graph: Path | None = None) -> Iterator[Sequence[str]]:
    """Measure once; the rows of the table.

    Args:
        rounds: Runs of each way.
        epochs: Of each run, at least two.
        graph: The example's graph, made where it is missing; None: made for this run alone.

    Raises:
        SystemExit: this is not root, or a run fails.
    """
    if os.geteuid() != 0:
        raise SystemExit("training: expected root: a worker needs namespaces of its own")
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        _partition(Path(folder), (graph or Path(folder, "debian-graph")).resolve())
        for number in range(rounds):
            for name, way in WAYS.items():
                run = Path(folder, f"{number}-{name.split()[-1]}")
                run.mkdir()
                found[name].append(epoch_seconds(way(Path(folder), run, epochs)))
                print(f"{name}: {found[name][-1]:.3f} s", file=sys.stderr, flush=True)
    base = statistics.median(next(iter(found.values())))
    for name, seconds in found.items():
        yield cells(name, seconds, base)


def cells(name: str, seconds: Sequence[float], base: float) -> list[str]:
    """A row: the median of the runs, their range, and the median as a part of the base's."""
    median = statistics.median(seconds)
    extremes = f"{min(seconds):.3f} to {max(seconds):.3f}"
    return [name, str(len(seconds)), f"{median:.3f}", extremes, f"{median / base:.3f}"]


def epoch_seconds(metrics: Path) -> float:
    """The mean time of a run's epochs but the first, in which processes meet and memory is touched.

    Raises:
        SystemExit: there is no second epoch.
    """
    epochs = json.loads(metrics.read_text())["epochs"]
    if len(epochs) < 2:
        raise SystemExit(f"training: expected at least two epochs, got {len(epochs)}")
    return statistics.mean(float(epoch["seconds"]) for epoch in epochs[1:])


def _partition(folder: Path, graph: Path) -> None:
    """The graph and its one part, which both ways read, and the example's code."""
    code = folder / "code"
    subprocess.run(("cp", "-r", str(local.CODE), str(code)), check=True)
    (code / "prepared.py").write_text(PREPARED)
    if local.graph(graph) != 0:
        raise SystemExit("training: the graph could not be made")
    flags = ("--num_parts=1", "--graph_name=debian", f"--workspace={folder}", "--rel_data_path=partition")
    argv = (sys.executable, "load_and_partition_graph.py", *flags, f"--dataset_url={graph}")
    _run(argv, code, {**os.environ, "DGLBACKEND": "pytorch"})


def _by_hand(folder: Path, run: Path, epochs: int) -> Path:
    """A server and the trainers, in one shell's network; returns what rank 0 has written."""
    (run / "ip_config.txt").write_text(f"127.0.0.1 {PORT}\n")
    script = [sys.executable, "train_dist.py", *_script_flags(epochs)]
    script += ["--graph_name=debian", f"--ip_config={run}/ip_config.txt"]
    script += [f"--part_config={folder}/partition/debian.json"]
    with ExitStack() as stack:
        # One network for all: the first process makes it, the others enter it.
        holder = stack.enter_context(
            subprocess.Popen(
                (*OWN_NETWORK, "sh", "-c", "echo ready; exec sleep infinity"), stdout=subprocess.PIPE
            )
        )
        stack.callback(holder.kill)
        assert holder.stdout is not None
        holder.stdout.readline()
        enter = ("nsenter", "--target", str(holder.pid), "--net")
        server, *trainers = [
            stack.enter_context(_started([*enter, *script], folder / "code", env, run / f"{index}.log"))
            for index, env in enumerate(_environments(folder, run))
        ]
        try:
            codes = [process.wait(SECONDS) for process in (*trainers, server)]
        finally:
            for process in (server, *trainers):
                process.kill()
    if any(codes):
        logs = "".join(path.read_text()[-1500:] for path in run.glob("*.log"))
        raise SystemExit(f"training: by hand the processes have ended with {codes}:\n{logs}")
    return run / "metrics.json"


def _as_in_a_pod(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what tunes BLAS on this machine, which a pod does not have: an epoch is mostly BLAS."""
    return {name: value for name, value in environment.items() if not name.startswith("OPENBLAS_")}


def _environments(folder: Path, run: Path) -> list[dict[str, str]]:
    """Of the server, then of each trainer, as DGL's own launch script gives them, with torch's."""
    common = {
        **_as_in_a_pod(os.environ),
        "DGLBACKEND": "pytorch",
        "DGL_DIST_MODE": "distributed",
        "DGL_IP_CONFIG": f"{run}/ip_config.txt",
        "DGL_CONF_PATH": f"{folder}/partition/debian.json",
        "DGL_NUM_SERVER": "1",
        "DGL_NUM_SAMPLER": "0",
        "DGL_NUM_CLIENT": str(TRAINERS),
        "DGL_GRAPH_FORMAT": "csc",
        "DGL_OUTPUT_DIR": str(run),
        "PYTHONUNBUFFERED": "1",
    }
    server = {**common, "DGL_ROLE": "server", "DGL_SERVER_ID": "0", "OMP_NUM_THREADS": "1"}
    threads = max(1, len(os.sched_getaffinity(0)) // TRAINERS)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "lo"}
    world = {**meeting, "WORLD_SIZE": str(TRAINERS), "LOCAL_WORLD_SIZE": str(TRAINERS)}
    trainers = [
        {**common, **world, "DGL_ROLE": "client", "DGL_GROUP_ID": "0", "OMP_NUM_THREADS": str(threads)}
        | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        for rank in range(TRAINERS)
    ]
    return [server, *trainers]


def _by_dglrun(folder: Path, run: Path, epochs: int) -> Path:
    """The same by a job; returns what rank 0 has written."""
    body = yaml.safe_load((local.ROOT / "manifests/examples/single-worker.yaml").read_text())
    (main,) = body["spec"]["dglReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    main["args"] = [
        *("--graph-name=debian", "--partition-entry-point=code/prepared.py", "--num-partitions=1"),
        *("--train-entry-point=code/train_dist.py", f"--num-trainers={TRAINERS}", "--num-samplers=0"),
        *("--num-servers=1", "--verify=never", f"--num-epochs={epochs}", "--batch-size=1000"),
    ]
    (run / "job.yaml").write_text(yaml.safe_dump(body))
    argv = [sys.executable, "-m", "dglrun", "local", "job.yaml", "--workdir", "run"]
    argv += ["--mount", f"{folder}/code:{local.WORKSPACE}/code"]
    argv += ["--mount", f"{folder}/partition:{local.WORKSPACE}/partition"]
    _run(argv, run, {**local.environment()})
    return run / "run/output/metrics.json"


def _script_flags(epochs: int) -> tuple[str, ...]:
    return (f"--num_epochs={epochs}", "--batch_size=1000")


def _started(argv: list[str], folder: Path, env: dict[str, str], log: Path) -> "subprocess.Popen[bytes]":
    with log.open("wb") as out:
        return subprocess.Popen(argv, cwd=folder, env=env, stdout=out, stderr=subprocess.STDOUT)


def _run(argv: Sequence[str], folder: Path, env: dict[str, str]) -> None:
    done = subprocess.run(
        argv, cwd=folder, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if done.returncode != 0:
        raise SystemExit(
            f"training: {argv} has ended with {done.returncode}:\n{(done.stdout + done.stderr)[-3000:]}"
        )


WAYS: dict[str, Callable[[Path, Path, int], Path]] = {"by hand": _by_hand, "under dglrun": _by_dglrun}
"""The base first."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
