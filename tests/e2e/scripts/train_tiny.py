"""Trains a linear model over a few hundred nodes with DDP, and misbehaves where it is told to.

--do raise|exit|hang at --rank: after the first step that rank raises, leaves with code 7, or waits: for
--seconds, or until the file --until exists, or with `--until api-away` until the API server is away.
"""

import argparse
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import dgl
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--graph_name")
parser.add_argument("--ip_config")
parser.add_argument("--part_config")
parser.add_argument("--num_epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--do", choices=["raise", "exit", "hang"])
parser.add_argument("--rank", type=int, default=-1)
parser.add_argument("--seconds", type=float, default=600)
parser.add_argument("--until", type=Path)
args = parser.parse_args()


def misbehave(rank: int) -> None:
    if args.do and args.rank in (rank, -1):
        print(f"rank {rank} does {args.do}", flush=True)
        if args.do == "raise":
            raise RuntimeError("told to raise")
        if args.do == "exit":
            sys.exit(7)
        wait()


def wait() -> None:
    if args.until == Path("api-away"):
        subprocess.run([sys.executable, str(Path(__file__).with_name("api_away.py"))], check=True)
        return
    deadline = time.monotonic() + args.seconds
    while args.until and not args.until.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    if not args.until:
        time.sleep(args.seconds)


def main() -> None:
    dgl.distributed.initialize(args.ip_config)
    torch.distributed.init_process_group("gloo")
    rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    graph = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    book = graph.get_partition_book()
    train = dgl.distributed.node_split(graph.ndata["train_mask"], book, force_even=True)
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _epoch in range(args.num_epochs):
        seeds = train[torch.randperm(len(train))][: args.batch_size]
        loss = torch.nn.functional.cross_entropy(
            model(graph.ndata["features"][seeds]), graph.ndata["labels"][seeds]
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        misbehave(rank)
    flat = b"".join(parameter.detach().numpy().tobytes() for parameter in model.parameters())
    print(
        f"rank {rank} of {size}: part {book.partid}, {len(train)} training nodes, "
        f"parameters {hashlib.sha256(flat).hexdigest()}",
        flush=True,
    )
    if rank == 0:
        folder = Path(os.environ["DGL_OUTPUT_DIR"])
        folder.mkdir(parents=True, exist_ok=True)
        written = folder / "model.pt"
        torch.save(model.module.state_dict(), written)
        print(f"wrote model.pt {hashlib.sha256(written.read_bytes()).hexdigest()}", flush=True)


if __name__ == "__main__":
    main()
