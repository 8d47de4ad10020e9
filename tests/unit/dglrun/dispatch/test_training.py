"""DGL trains on dispatched parts, and on those of mode DGL-API: two servers and two trainers on this machine.

The second server has an address and a shared memory of its own, so it is another machine to DGL; the
trainers reach part 1 by DGL's network protocol only. Needs root for that shared memory.
"""

import contextlib
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.heterographs import Toy

ROOT = Path(__file__).parents[4]
MODERN = os.environ.get("DGLRUN_MODERN_PYTHON")
DEADLINE = 240
OWN_SHM = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")

TRAIN = """
import sys, warnings
warnings.simplefilter("ignore")
import dgl, torch
from dgl.nn import SAGEConv

ip_config, part_config, bolt = sys.argv[1], sys.argv[2], sys.argv[3] == "bolt"
dgl.distributed.initialize(ip_config, **({"use_graphbolt": True} if bolt else {}))
g = dgl.distributed.DistGraph("toy", part_config=part_config)
assert getattr(g, "_use_graphbolt", False) == bolt
nodes = {name: dgl.distributed.node_split(g.ndata[name], g.get_partition_book(), force_even=True)
         for name in ("train_mask", "test_mask")}
torch.manual_seed(0)
layers = SAGEConv(4, 32, "mean"), SAGEConv(32, 4, "mean")
optimiser = torch.optim.Adam([p for layer in layers for p in layer.parameters()], 0.01)
sampler = dgl.dataloading.NeighborSampler([10, 10])

def epoch(name, learn):
    hits = seen = 0
    loader = dgl.dataloading.DistNodeDataLoader(g, nodes[name], sampler, batch_size=200, shuffle=learn)
    for inputs, seeds, blocks in loader:
        hidden = torch.relu(layers[0](blocks[0], g.ndata["feat"][inputs]))
        scores, labels = layers[1](blocks[1], hidden), g.ndata["label"][seeds]
        if learn:
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(scores, labels).backward()
            optimiser.step()
        hits, seen = hits + (scores.argmax(1) == labels).sum().item(), seen + len(seeds)
    return hits / seen

for _ in range(8):
    epoch("train_mask", True)
accuracy = epoch("test_mask", False)
print("accuracy", accuracy, flush=True)
assert accuracy > 0.7
"""


def communities(nodes: int = 2000, edges: int = 20000) -> Toy:
    """Four communities; a node's feature tells little of its own, its neighbours' together much."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, nodes)
    same = np.argsort(label, kind="stable")
    first = np.searchsorted(label[same], np.arange(5))
    dst = rng.integers(0, nodes, edges)
    near = same[rng.integers(first[label[dst]], first[label[dst] + 1])]
    src = np.where(rng.random(edges) < 0.85, near, rng.integers(0, nodes, edges))
    feat = (np.eye(4)[label] + rng.normal(0, 2.0, (nodes, 4))).astype(np.float32)
    train = rng.random(nodes) < 0.6
    data = {"feat": feat, "label": label, "train_mask": train, "test_mask": ~train}
    return Toy(
        {"_N": nodes},
        {"_N:_E:_N": np.stack([src, dst], axis=1)},
        {"_N": rng.integers(0, 2, nodes)},
        2,
        {"_N": data},
    )


def a_free_port(*hosts: str) -> int:
    """A port that is free at each of these addresses, below those that Linux gives to connections."""
    for port in random.sample(range(20000, 30000), 100):
        with contextlib.suppress(OSError), contextlib.ExitStack() as held:
            for host in hosts:
                held.enter_context(socket.socket()).bind((host, port))
            return port
    raise AssertionError(f"no free port at {hosts} among 100 of 20000 to 30000")


def train(python: str, folder: Path, form: str) -> list[subprocess.Popen[str]]:
    """Start two servers and two trainers; returns the trainers."""
    hosts = ("127.0.0.1", "127.0.0.2")
    port = a_free_port(*hosts)
    (folder / "ip").write_text("".join(f"{host} {port}\n" for host in hosts))
    common = {
        "DGL_DIST_MODE": "distributed",
        "DGL_NUM_SAMPLER": "0",
        "DGL_NUM_CLIENT": "2",
        "DGL_NUM_SERVER": "1",
        "DGL_CONF_PATH": str(folder / "out/toy.json"),
        "DGL_IP_CONFIG": str(folder / "ip"),
        "DGL_GRAPH_FORMAT": "csc",
        "DGLBACKEND": "pytorch",
        "OMP_NUM_THREADS": "1",
    }
    program = (python, "-c", TRAIN, str(folder / "ip"), str(folder / "out/toy.json"), form)
    limit = ("timeout", str(DEADLINE))
    started: list[subprocess.Popen[str]] = []
    for number, shm in enumerate(((), OWN_SHM)):
        env = os.environ | common | {"DGL_ROLE": "server", "DGL_SERVER_ID": str(number)}
        started.append(
            subprocess.Popen((*limit, *shm, *program), env=env, stdout=subprocess.DEVNULL, text=True)
        )
    trainers = [
        subprocess.Popen(
            (*limit, *program),
            env=os.environ | common | {"DGL_ROLE": "client"},
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    return trainers + started


PYTHONS = [
    pytest.param(sys.executable, "dgl", id="graph.dgl"),
    pytest.param(sys.executable, "api", id="as partition_graph"),
    pytest.param(
        MODERN or "",
        "bolt",
        id="graphbolt",
        marks=pytest.mark.skipif(not MODERN, reason="DGLRUN_MODERN_PYTHON names no Python with dgl 2.1"),
    ),
]


@pytest.mark.dgl
@pytest.mark.skipif(os.geteuid() != 0, reason="a shared memory of its own needs root")
@pytest.mark.parametrize(("python", "form"), PYTHONS)
def test_dgl_trains_on_both_parts(tmp_path: Path, python: str, form: str) -> None:
    """Sampling and features across the parts reach an accuracy that the features alone cannot."""
    source = communities().write(tmp_path / "in", chunks=2, fmt="numpy")
    folders = ("--in-dir", str(source), "--out-dir", str(tmp_path / "out"))
    if form == "api":
        program = ("dglrun.commands.dgl_api", *folders, "--num-parts", "2", "--method", "metis")
    else:
        more = ("--use-graphbolt",) if form == "bolt" else ("--graph-formats", "csc")
        assigned = ("--partitions-dir", str(source / "parts"))
        program = ("dglrun.commands.dispatch_rank", *folders, *assigned, *more)
    argv = (python, "-m", *program)
    subprocess.run(argv, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=120)

    processes = train(python, tmp_path, form)

    said = [process.communicate(timeout=DEADLINE + 10)[0] for process in processes[:2]]
    assert [process.wait(DEADLINE) for process in processes] == [0, 0, 0, 0], said
    assert all("accuracy" in text for text in said)
