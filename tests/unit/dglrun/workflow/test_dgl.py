"""Real DGL trainings on two workers: network namespaces with an address and a /dev/shm of their own.

The same in pods is the business of tests/e2e; this one needs root and DGL, no cluster, and two minutes.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dglrun.mpi import mpirun
from tests.cluster.daemons import running
from tests.support.dglrun_pods import ROOT, Done, Pods
from tests.support.heterographs import Toy
from tests.support.wait import read_until, wait_for
from tests.unit.dglrun.conftest import PodsOf

pytestmark = [
    pytest.mark.dgl,
    pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root"),
]

SCRIPTS = ROOT / "tests" / "e2e" / "scripts"
PLACES = ("--workspace", "ws", "--dataset-dir", "dataset")
LEARNS = f"""
import hashlib, os, sys
from pathlib import Path
import dgl, torch
from torch import distributed as dist
sys.path.insert(0, {str(ROOT / "images/examples/graphsage/code")!r})
import checkpoints
from embeddings import Embeddings

dgl.distributed.initialize(os.environ["DGL_IP_CONFIG"])
dist.init_process_group("gloo")
graph = dgl.distributed.DistGraph("tiny", part_config=os.environ["DGL_CONF_PATH"])
rank, folder = dist.get_rank(), checkpoints.folder()
rows = Embeddings(graph, 8, lr=0.1)
begin = max(checkpoints.saved(folder), default=0)
if begin:
    rows.load_state(checkpoints.load(folder, begin))
dist.barrier()
print(f"rank {{rank}} begins after epoch {{begin}}", flush=True)
own = torch.arange(rank, graph.num_nodes(), 2)  # of both parts
for epoch in range(begin + 1, 5):
    found = rows.of(own, torch.device("cpu"))
    ((found - own[:, None] / 100) ** 2 * epoch).sum().backward()
    rows.step()
    dist.barrier()
    checkpoints.save(folder, epoch, rows.state())
whole = rows.of(torch.arange(graph.num_nodes()), torch.device("cpu")).detach().numpy()
print(f"rank {{rank}} has learnt {{hashlib.sha256(whole.tobytes()).hexdigest()}}", flush=True)
dist.barrier()
"""
"""Rows of all nodes by an optimizer whose steps depend on all earlier ones: Adagrad."""
SUBNET = f"10.{128 + os.getpid() // 250 % 100}.{os.getpid() % 250}"
"""Of this process: others run beside it, or were killed and left their bridge behind."""
IPS = (f"{SUBNET}.1", f"{SUBNET}.2")

LAUNCHER = f"{SUBNET}.254"

WRAP = """#!/bin/sh
# A worker's command has what it has in a pod: a network and a host name of its own, its own shared memory,
# temporary files and {root}/ws. Two MPI daemons of one host name and one such folder write into each other's.
pod=$1; shift
case $pod in *-worker-*) ;; *) exec "$@" ;; esac
export TMPDIR="{root}/tmp.$pod"
mkdir -p "{root}/$pod/ws" "$TMPDIR"
enter='hostname "$2" && mount --bind "$0" /dev/shm && mount --bind "$1" {root}/ws && shift 2 && exec "$@"'
exec ip netns exec {prefix}${{pod##*-}} unshare -m --uts \\
    sh -c "$enter" "{root}/shm.$pod" "{root}/$pod/ws" "$pod" "$@"
"""

KUBEXEC = """#!/bin/sh
# As the operator's: POD COMMAND..., where a shell in the pod reads the command.
pod=$1; shift
exec "$(dirname "$0")/wrap" "$pod" /bin/sh -c "$*"
"""


def remove_strays() -> None:
    """Take down what killed runs left: bridges `d<pid>` and namespaces `dglrun<pid>-<n>`."""
    for path in (*Path("/sys/class/net").glob("d*"), *Path("/run/netns").glob("dglrun*-*")):
        found = re.fullmatch(r"(?:d|dglrun)(\d+)(-\d+)?", path.name)
        if found and not Path("/proc", found[1]).exists():
            kind = ("netns", "del") if found[2] else ("link", "del")
            subprocess.run(["ip", *kind, path.name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def network() -> Iterator[str]:
    """Two namespaces on a bridge of this machine; gives the prefix of their names."""
    prefix, bridge = f"dglrun{os.getpid()}-", f"d{os.getpid()}"
    remove_strays()

    def ip(*argv: str) -> None:
        subprocess.run(["ip", *argv], check=True, capture_output=True)

    ip("link", "add", bridge, "type", "bridge")
    try:
        ip("addr", "add", f"{LAUNCHER}/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for index, address in enumerate(IPS):
            name, ends = f"{prefix}{index}", (f"v{os.getpid()}-{index}", f"w{os.getpid()}-{index}")
            ip("netns", "add", name)
            ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
            ip("link", "set", ends[0], "master", bridge)
            ip("link", "set", ends[0], "up")
            ip("link", "set", ends[1], "netns", name)
            ip("-n", name, "addr", "add", f"{address}/24", "dev", ends[1])
            ip("-n", name, "link", "set", ends[1], "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield prefix
    finally:
        for index in (0, 1):
            subprocess.run(["ip", "netns", "del", f"{prefix}{index}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)


@pytest.fixture
def workers(pods_of: PodsOf, network: str) -> Pods:
    """Two workers in their namespaces, nothing partitioned yet."""
    found = pods_of(ips=IPS)
    (found.root / "ws").mkdir()
    for name in found.names:
        (found.root / f"shm.{name}").mkdir()
    for name, text in (("wrap", WRAP), ("kubexec.sh", KUBEXEC)):
        script = found.root / name
        script.write_text(text.format(prefix=network, root=found.root) if name == "wrap" else text)
        script.chmod(0o755)
    return found


@pytest.fixture
def pods(workers: Pods) -> Pods:
    """Two workers whose parts the real partition script has made and delivered."""
    script = str(SCRIPTS / "partition_tiny.py")
    args = ("-g", "tiny", "--num-partitions", "2", "--partition-entry-point", script, *PLACES)
    done = workers.run(*args, phase="Partitioner", where="partitioner")
    assert done.code == 0, done.output
    assert "OK: tiny: 2 parts" in done.output
    quality = workers.quality()
    assert quality
    assert (quality["numParts"], quality["verified"]) == (2, True)
    return workers


def flags(*more: str) -> tuple[str, ...]:
    """A command line that trains on the tiny graph."""
    return ("-g", "tiny", "--train-entry-point", str(SCRIPTS / "train_tiny.py"), *PLACES, *more)


def segments(pods: Pods) -> list[str]:
    """Shared memory that is left on the workers."""
    return [path.name for name in pods.names for path in (pods.root / f"shm.{name}").iterdir()]


def pid_of(said: str, who: str) -> int:
    """The process id that the log tells."""
    found = re.search(rf"\[{who}\] started \(process (\d+)", said)
    assert found, said
    return int(found[1])


def ended(pods: Pods, process: "subprocess.Popen[str]") -> Done:
    """The end of a run after its failure, with nothing left."""
    done = pods.finish(process)
    assert segments(pods) == []
    wait_for("no process is left", lambda: not pods.processes(), 20)
    return done


def test_all_ranks_train_one_model_each_on_its_part(pods: Pods) -> None:
    """World size, part and hash of the final parameters of each rank; two servers, samplers, output."""
    done = pods.run(*flags("--num-trainers", "2", "--num-samplers", "1", "--num-servers", "2"))

    assert done.code == 0, done.output
    told = re.findall(
        r"\[worker-(\d) trainer (\d)\] rank (\d) of 4: part (\d), \d+ training nodes, parameters (\w+)",
        done.output,
    )
    assert sorted(line[:4] for line in told) == [
        ("0", "0", "0", "0"),
        ("0", "1", "1", "0"),
        ("1", "0", "2", "1"),
        ("1", "1", "3", "1"),
    ]
    assert len({line[4] for line in told}) == 1
    assert (pods.launcher / "ws/output/model.pt").stat().st_size > 500
    assert segments(pods) == []


@pytest.mark.parametrize(
    ("do", "code", "words"), [("raise", 1, "RuntimeError: told to raise"), ("exit", 7, "")]
)
def test_a_rank_that_raises_or_leaves_ends_the_run(pods: Pods, do: str, code: int, words: str) -> None:
    """DGL alone would hang in its exit barrier until somebody kills it (dgl-runtime.md section 8)."""
    with pods.started(*flags("--num-samplers", "1", "--", "--do", do, "--rank", "1")) as process:
        read_until(process, f"rank 1 does {do}")
        done = ended(pods, process)

    assert done.code == code
    assert done.message.startswith(f"dglrun: job-worker-1: trainer 0 (rank 1) ended with exit code {code}")
    assert words in done.message


def test_a_rank_that_waits_hangs_all_and_is_seen(pods: Pods) -> None:
    """Its peer waits in gloo, servers and samplers for requests: all are idle, and show what they wait in."""
    with pods.started(
        *flags("--num-samplers", "1", "--hang-timeout", "10", "--", "--do", "hang", "--rank", "1")
    ) as process:
        read_until(process, "rank 1 does hang")
        done = pods.finish(process)

    assert done.code == 79, done.output
    assert "the training hangs" in done.message.splitlines()[0]
    assert re.search(r"\[worker-1 trainer 0\]   File .*train_tiny.py.* in misbehave", done.output)
    for who in ("worker-0 trainer 0", "worker-0 server 0", "worker-1 server 0"):
        assert re.search(rf"\[{who}\]   File .*train_tiny.py.* in main", done.output), done.output
    assert segments(pods) == []


@pytest.mark.parametrize("who", ["trainer 0", "server 0"])
def test_a_killed_process_ends_the_run(pods: Pods, who: str) -> None:
    """The others would wait without limit; the root cause is told, not the consequences."""
    with pods.started(*flags("--", "--do", "hang")) as process:
        said = read_until(process, "rank 1 does hang")
        os.kill(pid_of(said, f"worker-1 {who}"), signal.SIGKILL)
        done = ended(pods, process)

    assert done.code == 137
    assert f"job-worker-1: {who}" in done.message.splitlines()[0]


def test_a_killed_sampler_ends_the_run(pods: Pods) -> None:
    """Its trainer would wait half an hour for a batch."""
    with pods.started(*flags("--num-samplers", "1", "--", "--do", "hang")) as process:
        said = read_until(process, "rank 1 does hang")
        trainer = pid_of(said, "worker-1 trainer 0")
        os.kill(wait_for("a sampler", lambda: _sampler_of(trainer)), signal.SIGKILL)
        done = ended(pods, process)

    assert done.code == 137
    assert "job-worker-1: sampler of trainer 0 (rank 1)" in done.message


def test_sigterm_leaves_no_process_and_no_segment(pods: Pods) -> None:
    """DGL's segments are there while it trains and gone afterwards."""
    with pods.started(*flags("--num-samplers", "1", "--", "--do", "hang")) as process:
        read_until(process, "rank 1 does hang")
        assert any(name.startswith("tiny") for name in segments(pods))

        process.send_signal(signal.SIGTERM)
        done = ended(pods, process)

    assert done.code == 143


def test_learnt_rows_and_their_optimizer_go_on_from_a_checkpoint(pods: Pods) -> None:
    """Two workers that begin in the middle end with the same rows, bit by bit, as those that did not."""
    script, kept = pods.script(LEARNS), pods.root / "kept"
    argv = ("-g", "tiny", "--train-entry-point", script, *PLACES, "--checkpoints", str(kept))
    first = pods.run(*argv)
    assert first.code == 0, first.output
    for newest in kept.rglob("epoch-4.pt"):
        newest.unlink()
    for index in (0, 1):
        shutil.rmtree(pods.worker(index) / "ws/checkpoints")

    second = pods.run(*argv)

    assert second.code == 0, second.output
    learnt = [re.findall(r"rank \d has learnt (\w+)", done.output) for done in (first, second)]
    assert [len(each) for each in learnt] == [2, 2]
    assert len({digest for each in learnt for digest in each}) == 1
    for rank in (0, 1):
        assert f"rank {rank} begins after epoch 0" in first.output
        assert f"rank {rank} begins after epoch 3" in second.output


@pytest.mark.mpi
@pytest.mark.parametrize("backend", ["zoltan", "streaming"])
def test_workers_partition_among_themselves_and_train(workers: Pods, backend: str) -> None:
    """DistParMETIS: MPI ranks on the workers, each of which ends with its own part; then DGL trains."""
    with started_on_workers(workers, backend=backend) as process:
        done = workers.finish(process, seconds=240)

    assert done.code == 0, done.output
    told = re.findall(r"rank (\d) of 2: part (\d), \d+ training nodes, parameters (\w+)", done.output)
    assert sorted(line[:2] for line in told) == [("0", "0"), ("1", "1")]
    assert len({line[2] for line in told}) == 1
    for index in (0, 1):
        work = workers.worker(index) / "ws" / "workload"
        assert (work / f"part{index}" / "graph.dgl").is_file()
        assert not (work / f"part{1 - index}" / "graph.dgl").exists()
    quality = workers.quality()
    assert quality
    assert (quality["method"], quality["numParts"], quality["verified"]) == (backend, 2, True)
    assert (workers.root / "ws/output/model.pt").is_file()


@pytest.mark.mpi
def test_workers_keep_their_parts_and_take_them_again(workers: Pods) -> None:
    """DistParMETIS with --partitions: the second job makes nothing, and trains on the same parts.

    In each a worker is lost in the training: its part is made anew, or comes from the store again.
    """
    kept = ("--partitions", str(workers.root / "kept"))

    cold = with_a_lost_worker(workers, "second", *kept)
    for folder in (workers.root, workers.worker(0), workers.worker(1)):
        shutil.rmtree(folder / "ws/assignment", ignore_errors=True)
        shutil.rmtree(folder / "ws/workload", ignore_errors=True)
    warm = with_a_lost_worker(workers, "third", *kept)

    assert cold.count("graphs written") == 2, cold
    assert "kept the partition as" in cold
    assert "graphs written" not in warm
    for index in (0, 1):
        assert warm.count(f"job-worker-{index} reads part {index} in place") == 1 + index
    quality = workers.quality()
    assert quality
    assert (quality["method"], quality["verified"]) == ("zoltan", True)


RANKS = """
import os, socket, sys, time
from mpi4py import MPI
MPI.COMM_WORLD.Barrier()
open(f"{sys.argv[1]}/{socket.gethostname()}.{os.getpid()}", "w").close()
time.sleep(600)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("killed", ["launcher", "mpirun"])
def test_sigkill_leaves_no_rank_on_any_worker(workers: Pods, killed: str) -> None:
    """The kernel tells mpirun of the launcher's end; of mpirun's own the daemons on the workers learn."""
    seen = workers.root / "ranks"
    seen.mkdir()
    with ranks_on_workers(workers, seen) as launcher:
        ranks = wait_for("two ranks on each worker", lambda: four(seen), 120)
        assert Counter(path.stem for path in ranks) == dict.fromkeys(workers.names, 2)
        (child,) = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
        pids = [int(child), *(int(path.suffix[1:]) for path in ranks)]
        assert set(pids) <= set(workers.processes())

        os.kill(launcher.pid if killed == "launcher" else int(child), signal.SIGKILL)

        assert launcher.wait(60) == (-signal.SIGKILL if killed == "launcher" else 128 + signal.SIGKILL)
        wait_for("the end of all ranks, daemons and mpirun", lambda: not workers.processes(), 60)
        assert not any(map(running, pids))
    assert segments(workers) == []


def four(folder: Path) -> list[Path] | None:
    """Its files, if they are four."""
    found = list(folder.iterdir())
    return found if len(found) == 4 else None


@contextlib.contextmanager
def ranks_on_workers(workers: Pods, seen: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A launcher's process whose mpirun has two ranks on each worker, which leave a file each and wait."""
    remote = mpirun.Remote(workers.names, str(workers.root / "kubexec.sh"), f"{SUBNET}.0/24", slots=2)
    program = (sys.executable, "-m", "mpi4py", "-c", RANKS, str(seen))
    job = mpirun.Job(program, 4, remote, cwd=str(workers.root / "ws"))
    hostfile = workers.root / "mpi_hosts"
    hostfile.write_text(mpirun.hostfile(remote))
    script = (
        f"import sys; from dglrun.mpi import mpirun; sys.exit(mpirun.run({mpirun.argv(job, hostfile)}, 500))"
    )
    started = subprocess.Popen(
        (sys.executable, "-c", script), cwd=workers.launcher, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        yield started
    finally:
        started.terminate()  # one that is just killed leaves the end of mpirun to the kernel
        started.wait(60)


def with_a_lost_worker(workers: Pods, uid: str, *more: str) -> str:
    """Run a job of DistParMETIS whose worker 1 is lost in the training; its part must be what it was."""
    part, go, said = workers.worker(1) / "ws/workload/part1", workers.root / "go", []
    go.unlink(missing_ok=True)
    with started_on_workers(workers, *more, "--", "--do", "hang", "--until", str(go)) as process:
        said.append(read_until(process, "rank 1 does hang"))
        before = {path.name: path.read_bytes() for path in part.iterdir()}
        workers.lose(1)
        said.append(read_until(process, "waiting for the replacement of job-worker-1"))
        workers.replace(1, uid)
        said.append(read_until(process, "rank 1 does hang"))
        go.touch()
        done = workers.finish(process, seconds=240)
    assert done.code == 0, done.output
    assert {path.name: path.read_bytes() for path in part.iterdir()} == before
    return "".join((*said, done.output))


def started_on_workers(
    workers: Pods, *more: str, backend: str = "zoltan"
) -> contextlib.AbstractContextManager["subprocess.Popen[str]"]:
    """A launcher of DistParMETIS on the ring."""
    if not (workers.root / "chunks").exists():
        write_ring(workers.root / "chunks")
    hostfile = workers.root / "hostfile"
    lines = [f"{ip} 30050 {pod} slots=1\n" for ip, pod in zip(IPS, workers.names, strict=True)]
    hostfile.write_text("".join(lines))
    places = ("--workspace", str(workers.root / "ws"), "--chunked-graph", str(workers.root / "chunks"))
    mpi = ("--partition-backend", backend, "--interface", f"{SUBNET}.0/24")
    env = {
        "DGL_OPERATOR_PARTITION_MODE": "DistParMETIS",
        "DGL_OPERATOR_HOSTFILE_PATH": str(hostfile),
        "DGL_OPERATOR_KUBEXEC_PATH": str(workers.root / "kubexec.sh"),
        "DGL_OPERATOR_REPLACEMENT_TIMEOUT_SECONDS": "120",
    }
    train = ("-g", "tiny", "--train-entry-point", str(SCRIPTS / "train_tiny.py"))
    return workers.started(*train, *places, *mpi, *more, **env)


def write_ring(folder: Path) -> None:
    """The graph of partition_tiny.py in chunks."""
    nodes = 400
    here = np.arange(nodes)
    pairs = np.concatenate([np.stack([here, (here + step) % nodes], axis=1) for step in (1, 2, 17)])
    labels = here * 4 // nodes
    masks = {"train_mask": here % 4 < 2, "val_mask": here % 4 == 2, "test_mask": here % 4 == 3}
    features = np.eye(8, dtype=np.float32)[labels]
    data = {"_N": {"features": features, "labels": labels, **masks}}
    edges = {"_N:_E:_N": np.concatenate([pairs, pairs[:, ::-1]])}
    Toy({"_N": nodes}, edges, {"_N": labels % 2}, 2, data, name="tiny").write(folder, chunks=3)


def _sampler_of(trainer: int) -> int | None:
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            if parent == trainer and b"spawn_main" in (path / "cmdline").read_bytes():
                return int(path.name)
        except OSError:
            continue
    return None
