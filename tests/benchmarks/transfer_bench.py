"""A partition from the partitioner's disk to the workers' disks, in four ways, in one run.

    python -m tests.benchmarks.transfer_bench --gb 1 8 [--kills 20] [--write] [--local FOLDER]
    python -m tests.benchmarks.transfer_bench --sparse 40 [--local FOLDER]

Two hops: all of it to the launcher, then one half to each of two workers at the same time. The ways are the
chain of `kubectl cp` that the operator of 2021 used, plain TCP to a file, one plain TLS stream of Python's
`ssl`, and ours. CPU seconds are those of the whole machine, API server and kubelet included: leave it alone
meanwhile. --local needs no cluster, and has no API server for kubectl to copy through.
"""

import argparse
import contextlib
import random
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dglrun.agent import tls
from dglrun.transfer.kubectl import Kubectl
from dglrun.workflow import run_keys
from dglrun.workflow.partition_phases import CONNECTIONS, COPIES, PULL, STARTS
from tests.benchmarks.transfer_peer import OWNER
from tests.benchmarks.transfer_places import CONTAINER, PODS, Cluster, Ground, Local, as_line
from tests.support import measured

PARTITIONER, LAUNCHER, *WORKERS = PODS
GB = 10**9
PATIENCE = 600.0
MOST_OF_HOLES = 64 << 20
"""Bytes of disk that a file of holes may take: regions around the last block, and the file system's own."""
LOCAL = "On folders of one machine, without a cluster and beside other work."


@dataclass(frozen=True)
class Hop:
    """One hop.

    Attributes:
        seconds: From start to end.
        cpu: CPU seconds of the machine meanwhile.
    """

    seconds: float
    cpu: float


@dataclass(frozen=True)
class Way:
    """What one way has taken for one size.

    Attributes:
        name: Which.
        size: Bytes.
        hops: Both.
    """

    name: str
    size: int
    hops: tuple[Hop, Hop]

    def cells(self) -> list[str]:
        """A row of the table `transfer`."""
        first, second = self.hops
        both = first.seconds + second.seconds
        rates = [f"{self.size / seconds / 1e6:.0f}" for seconds in (first.seconds, second.seconds, both)]
        return [
            self.name,
            f"{self.size / GB:g} GB",
            *rates,
            f"{(first.cpu + second.cpu) * GB / self.size:.1f}",
        ]


def main(argv: list[str]) -> int:
    """Measure, print, and write the table if wanted; returns the exit code."""
    args = _parser().parse_args(argv)
    ground: Ground = Local(args.local) if args.local else Cluster()
    try:
        if args.sparse:
            print(_sparse(ground, int(args.sparse * GB)))
            return 0
        rows = [cells for gb in args.gb for cells in _measure(ground, int(gb * GB), args.only)]
        for cells in [measured.TABLES["transfer"].columns, *rows]:
            print(measured.row(cells), flush=True)
        if args.kills:
            print(_with_kills(ground, int(args.gb[-1] * GB), args.kills, random.Random(args.seed)))  # noqa: S311
    finally:
        ground.close()
    if args.write:
        measured.write("transfer", rows, LOCAL if args.local else "")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="transfer_bench", description="A partition through both hops.")
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0, 8.0], help="sizes (default: 1 8)")
    parser.add_argument("--only", nargs="+", metavar="WAY", help=f"some of {', '.join(WAYS)}")
    parser.add_argument("--kills", type=int, default=0, help="kill the receiver of the first hop so often")
    parser.add_argument("--seed", type=int, default=1, help="of the moments of the kills (default: 1)")
    parser.add_argument("--sparse", type=float, metavar="GB", help="only one hop of files without content")
    parser.add_argument("--write", action="store_true", help="renew the table in docs/")
    parser.add_argument("--local", type=Path, metavar="FOLDER", help="on this machine, without a cluster")
    return parser


def _measure(ground: Ground, size: int, only: list[str] | None) -> Iterator[list[str]]:
    names = [name for name in only or WAYS if ground.has_api_server or name != "kubectl cp"]
    _make_partition(ground, size)
    for name in names:
        _remove(ground)
        yield Way(name, size, WAYS[name](ground, size)).cells()


# --- the ways


def _by_kubectl(ground: Ground, _size: int) -> tuple[Hop, Hop]:
    """The partitioner's kubectl copies the folder, then the launcher's each part, one after the other."""
    data = ground.folder
    with _timed() as first:
        _copy(ground, PARTITIONER, f"{data}/out", LAUNCHER, f"{data}/in")
    with _timed() as second:
        for part, worker in enumerate(WORKERS):
            _copy(ground, LAUNCHER, f"{data}/in/part{part}", worker, f"{data}/part{part}")
    return first(), second()


def _copy(ground: Ground, pod: str, source: str, to: str, target: str) -> None:
    place = f"{ground.namespace}/{to}:{target}"
    ground.run(pod, ground.kubectl, "cp", source, place, "-c", CONTAINER)


def _by_stream(how: str) -> Callable[[Ground, int], tuple[Hop, Hop]]:
    def go(ground: Ground, size: int) -> tuple[Hop, Hop]:
        with _timed() as first:
            _stream(ground, how, PARTITIONER, "out", {LAUNCHER: (0, 1)}, size)
        with _timed() as second:
            _stream(
                ground, how, LAUNCHER, "in", {worker: (part,) for part, worker in enumerate(WORKERS)}, size
            )
        return first(), second()

    return go


def _stream(
    ground: Ground, how: str, owner: str, folder: str, to: dict[str, tuple[int, ...]], size: int
) -> None:
    own, others = run_keys.for_transfer(OWNER, to)
    threads = []
    for pod, parts in to.items():
        names = [f"part{part}/graph.dgl" for part in parts]
        give = ("give", how, *(f"{ground.folder}/{folder}/{name}" for name in names))
        take = ("take", how, ground.ip(owner))
        files = [f"{size // 2}:{ground.folder}/in/{name}" for name in names]
        ends = (_End(owner, give, own), _End(pod, take, others[pod]))
        threads.append(threading.Thread(target=_one_stream, args=(ground, *ends, files)))
        threads[-1].start()
    for thread in threads:
        thread.join()


@dataclass(frozen=True)
class _End:
    """One end of a stream: its pod, the arguments of `transfer_peer.py`, its keys."""

    pod: str
    argv: tuple[str, ...]
    keys: tls.Keys


def _one_stream(ground: Ground, owner: _End, receiver: _End, files: list[str]) -> None:
    with ground.start(owner.pod, ground.python, ground.peer, *owner.argv) as giver:
        assert giver.stdin
        assert giver.stdout
        giver.stdin.write(f"{tls.encode(owner.keys)}\n")
        giver.stdin.flush()
        port = giver.stdout.readline().strip()
        argv = (ground.python, ground.peer, *receiver.argv, port, *files)
        ground.run(receiver.pod, *argv, stdin=f"{tls.encode(receiver.keys)}\n")


def _by_dglrun(ground: Ground, _size: int) -> tuple[Hop, Hop]:
    with _timed() as first:
        _deliver_first(ground)
    with _timed() as second:
        pullers = [_puller(ground, worker, part, "/workload") for part, worker in enumerate(WORKERS)]
        _deliver(ground, LAUNCHER, f"{ground.folder}/in", pullers)
    return first(), second()


def _deliver_first(ground: Ground) -> str:
    puller = _puller(ground, LAUNCHER, None)
    return _deliver(ground, PARTITIONER, f"{ground.folder}/out", [puller])


def _puller(ground: Ground, pod: str, part: int | None, below: str = "") -> dict[str, object]:
    kubectl = Kubectl(ground.kubectl, ground.namespace)
    argv = kubectl.exec(pod, CONTAINER, ground.python, "-m", *PULL)
    target = f"{ground.folder}/in{below}"
    return {"pod": pod, "ip": ground.ip(pod), "argv": argv, "part": part, "target": target}


def _deliver(ground: Ground, owner: str, folder: str, pullers: list[dict[str, object]]) -> str:
    step = {
        "owner": owner,
        "config": f"{folder}/tiny.json",
        "pullers": pullers,
        "limit": COPIES,
        "starts": STARTS,
        "connections": CONNECTIONS,
        "keeps_sums": owner == PARTITIONER,
        "seconds": PATIENCE,
    }
    return ground.run(owner, ground.python, ground.peer, "deliver", stdin=as_line(step))


WAYS: dict[str, Callable[[Ground, int], tuple[Hop, Hop]]] = {
    "kubectl cp": _by_kubectl,
    "plain TCP": _by_stream("PLAIN"),
    "one TLS stream": _by_stream("TLS"),
    "ours": _by_dglrun,
}


# --- kills


def _with_kills(ground: Ground, size: int, kills: int, moments: random.Random) -> str:
    """Kill the receiver of the first hop at random moments; says what was sent twice.

    Raises:
        RuntimeError: a file did not arrive whole.
    """
    _remove(ground)
    done = threading.Event()
    killer = threading.Thread(target=_kill, args=(ground, size, kills, moments, done))
    killer.start()
    try:
        said = _deliver_first(ground)
    finally:
        done.set()
        killer.join()
    for part in (0, 1):
        sums = [
            ground.run(pod, "sha256sum", f"{ground.folder}/{folder}/part{part}/graph.dgl").split()[0]
            for pod, folder in ((PARTITIONER, "out"), (LAUNCHER, "in"))
        ]
        if len({*sums}) != 1:
            raise RuntimeError(f"part {part} differs")
    twice = re.search(r"([0-9.]+ [MG]B) of it twice", said)
    return f"{kills} kills in {size / GB:g} GB: whole, {twice[1] if twice else 'nothing'} sent twice\n{said}"


def _kill(ground: Ground, size: int, kills: int, moments: random.Random, done: threading.Event) -> None:
    """Each kill at a random moment of the transfer, by what the staging folder holds on its disk."""
    staging = f"{ground.folder}/in/.dglrun-incoming"
    for at in sorted(moments.uniform(0, 0.95 * size) for _ in range(kills)):
        while not done.wait(0.05):
            with contextlib.suppress(RuntimeError, ValueError, IndexError):
                if int(ground.run(LAUNCHER, "du", "-s", "-B1", staging).split()[0]) >= at:
                    break
        with contextlib.suppress(RuntimeError):
            ground.run(LAUNCHER, "sh", "-c", 'kill -9 "$(cut -d " " -f 2 "$1/lock")"', "sh", staging)


# --- files that have a size and no content


def _sparse(ground: Ground, size: int) -> str:
    """All bytes of sparse files pass the first hop, and take no disk: for sizes that no test machine has.

    Raises:
        RuntimeError: a file did not arrive with its size, or takes room.
    """
    _make_partition(ground, size, 'truncate -s "$2" "$1"')
    _remove(ground)
    with _timed() as hop:
        said = _deliver_first(ground)
    for part in (0, 1):
        place = f"{ground.folder}/in/part{part}/graph.dgl"
        found, blocks = ground.run(LAUNCHER, "stat", "-c", "%s %b", place).split()
        if int(found) != size // 2 or int(blocks) * 512 > MOST_OF_HOLES:
            most = MOST_OF_HOLES // 512
            raise RuntimeError(
                f"{place}: expected {size // 2} bytes in at most {most} blocks, got {found} in {blocks}"
            )
    seconds, cpu = hop().seconds, hop().cpu * GB / size
    rate = size / seconds / 1e6
    return (
        f"{size / GB:g} GB of holes: {seconds:.0f} s, {rate:.0f} MB/s, {cpu:.1f} CPU-s per GB, whole\n{said}"
    )


# --- what it needs


def _make_partition(ground: Ground, size: int, by: str = 'head -c "$2" /dev/urandom >"$1"') -> None:
    """Two parts, of random bytes unless a shell's words make others: no layer can make those smaller."""
    folder = f"{ground.folder}/out"
    for part in (0, 1):
        ground.run(PARTITIONER, "mkdir", "-p", f"{folder}/part{part}")
        make = ("sh", "-c", by, "sh")
        ground.run(PARTITIONER, *make, f"{folder}/part{part}/graph.dgl", str(size // 2))
    config: dict[str, object] = {"graph_name": "tiny", "num_parts": 2}
    for part in (0, 1):
        config[f"part-{part}"] = {"part_graph": f"part{part}/graph.dgl"}
    ground.run(PARTITIONER, "sh", "-c", 'cat >"$1"', "sh", f"{folder}/tiny.json", stdin=as_line(config))


def _remove(ground: Ground) -> None:
    """Nothing of another way's is there when one begins."""
    for pod in PODS[1:]:
        names = ("in", "part0", "part1")
        ground.run(pod, "rm", "-rf", *(f"{ground.folder}/{name}" for name in names))


@contextmanager
def _timed() -> Iterator[Callable[[], Hop]]:
    """Measures the block; then tells."""
    start, cpu = time.monotonic(), _busy()
    found: list[Hop] = []
    yield lambda: found[0]
    found.append(Hop(time.monotonic() - start, _busy() - cpu))


def _busy() -> float:
    """CPU seconds of the machine so far, idle and waiting ones left out."""
    ticks = 100.0
    user, nice, system, _idle, _wait, irq, soft, *_ = (
        Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    )
    return sum(map(float, (user, nice, system, irq, soft))) / ticks


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
