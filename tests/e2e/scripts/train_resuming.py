"""Saves an epoch's number after each epoch and goes on from the newest that all ranks have.

A training that begins anew waits after epoch --hold for its end; one that goes on ends after --num_epochs.
"""

import argparse
import os
import time
from pathlib import Path

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


def save(folder: Path, epoch: int) -> None:
    unfinished = folder / f"epoch-{epoch}.tmp"
    torch.save({"epoch": epoch, "rank": torch.distributed.get_rank()}, unfinished)
    unfinished.replace(folder / f"epoch-{epoch}.pt")


def main() -> None:
    dgl.distributed.initialize(args.ip_config)
    torch.distributed.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    rank, folder = torch.distributed.get_rank(), Path(os.environ["DGL_CHECKPOINT_DIR"])
    begin = newest_of_all(folder)
    if begin:
        state = torch.load(folder / f"epoch-{begin}.pt")
        assert state == {"epoch": begin, "rank": rank}, state
    print(f"rank {rank} of {graph.num_nodes()} nodes begins after epoch {begin}", flush=True)
    for epoch in range(begin + 1, args.num_epochs + 1):
        save(folder, epoch)
        if not begin and epoch == args.hold:
            print(f"rank {rank} waits", flush=True)
            time.sleep(600)
    torch.distributed.barrier()


if __name__ == "__main__":
    main()
