"""Trains a linear model over a few hundred nodes, and goes on from the newest epoch that all ranks have.

A training that begins anew waits after epoch --hold for its end; one that goes on ends after --num_epochs.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import dgl
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--graph_name")
parser.add_argument("--ip_config")
parser.add_argument("--part_config")
parser.add_argument("--num_epochs", type=int, default=6)
parser.add_argument("--hold", type=int, default=3)
args = parser.parse_args()


def newest_of_all(folder: Path) -> int:
    own = max((int(path.stem.removeprefix("epoch-")) for path in folder.glob("epoch-*.pt")), default=0)
    lowest = torch.tensor(own)
    torch.distributed.all_reduce(lowest, torch.distributed.ReduceOp.MIN)
    return int(lowest.item())


def save(folder: Path, state: dict[str, Any]) -> None:
    unfinished = folder / f"epoch-{state['epoch']}.tmp"
    torch.save(state, unfinished)
    unfinished.replace(folder / f"epoch-{state['epoch']}.pt")


def accuracy(graph: dgl.distributed.DistGraph, model: torch.nn.Module) -> float:
    own = dgl.distributed.node_split(graph.ndata["test_mask"], graph.get_partition_book(), force_even=True)
    right = model(graph.ndata["features"][own]).argmax(1) == graph.ndata["labels"][own]
    counts = torch.tensor([int(right.sum()), len(own)])
    torch.distributed.all_reduce(counts)
    return float(counts[0] / counts[1])


def main() -> None:
    dgl.distributed.initialize(args.ip_config)
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    rank, folder = torch.distributed.get_rank(), Path(os.environ["DGL_CHECKPOINT_DIR"])
    own = dgl.distributed.node_split(graph.ndata["train_mask"], graph.get_partition_book(), force_even=True)
    torch.manual_seed(0)
    linear = torch.nn.Linear(8, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.5)
    begin = newest_of_all(folder)
    if begin:
        state = torch.load(folder / f"epoch-{begin}.pt")
        assert (state["epoch"], state["rank"]) == (begin, rank), state
        linear.load_state_dict(state["model"])
    model = torch.nn.parallel.DistributedDataParallel(linear)
    print(f"rank {rank} of {graph.num_nodes()} nodes begins after epoch {begin}", flush=True)
    for epoch in range(begin + 1, args.num_epochs + 1):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(
            model(graph.ndata["features"][own]), graph.ndata["labels"][own]
        )
        loss.backward()
        optimizer.step()
        save(folder, {"epoch": epoch, "rank": rank, "model": linear.state_dict()})
        if not begin and epoch == args.hold:
            print(f"rank {rank} waits", flush=True)
            time.sleep(600)
    reached = accuracy(graph, model)
    if rank == 0:
        print(f"Test accuracy: {reached:.3f} (majority class 0.250)", flush=True)
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
