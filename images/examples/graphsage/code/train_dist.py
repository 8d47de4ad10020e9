"""Train GraphSAGE over the parts of a graph: `dglrun --train-entry-point`.

One file for DGL's servers, trainers and samplers: a server stays in `initialize`. Without
DGL_DIST_MODE=distributed it trains on a partition of one part in this process (DGL's standalone mode).
"""

import argparse
import gc
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import dgl
import torch as th
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import dglrun
import sage

DISTRIBUTED = os.environ.get("DGL_DIST_MODE") == "distributed"


@dataclass(frozen=True)
class Job:
    """What this rank trains on.

    Attributes:
        arguments: The command line.
        graph: The DistGraph.
        device: Where the model is.
        train: int64, this rank's training nodes.
        test: int64, this rank's test nodes.
    """

    arguments: argparse.Namespace
    graph: Any
    device: th.device
    train: th.Tensor
    test: th.Tensor

    @classmethod
    def join(cls, arguments: argparse.Namespace) -> "Job":
        """Connect to the servers and to the other ranks; a server never returns from here."""
        extra = {"use_graphbolt": True} if arguments.use_graphbolt else {}
        dgl.distributed.initialize(arguments.ip_config, **extra)
        if DISTRIBUTED:
            dist.init_process_group("gloo" if arguments.num_gpus < 1 else "nccl")
        part_config = None if DISTRIBUTED else arguments.part_config
        graph = dgl.distributed.DistGraph(arguments.graph_name, part_config=part_config)
        ntype, book = sage.target(graph), graph.get_partition_book()
        train, test = (
            dgl.distributed.node_split(graph.nodes[ntype].data[mask], book, ntype, force_even=DISTRIBUTED)
            for mask in ("train_mask", "test_mask")
        )
        return cls(arguments, graph, sage.device(arguments.num_gpus), train, test)

    def batches(self, nodes: th.Tensor, fan_out: tuple[int, ...], size: int, shuffle: bool) -> Any:
        """Sampled batches of these nodes, whose neighbours may live on any worker."""
        sampler = dgl.dataloading.NeighborSampler(list(fan_out))
        return dgl.dataloading.DistNodeDataLoader(
            self.graph,
            sage.seeds_of(self.graph, nodes),
            sampler,
            batch_size=size,
            shuffle=shuffle,
            drop_last=False,
        )

    def fetch(self, batch: sage.Batch) -> Any:
        """Blocks, features and labels of a batch on the device."""
        return sage.fetch(self.graph, batch, self.device)

    def all_rows(self, name: str) -> th.Tensor:
        """A feature of all nodes of the target type."""
        rows = self.graph.nodes[sage.target(self.graph)].data[name]
        return rows[th.arange(len(rows))]


def rank_and_size() -> tuple[int, int]:
    """This process among the trainers."""
    return (dist.get_rank(), dist.get_world_size()) if DISTRIBUTED else (0, 1)


def train(job: Job, model: nn.Module) -> list[dict[str, float]]:
    """Train for some epochs; returns loss, seconds and seeds per second of each, as this rank saw it."""
    rank, _ = rank_and_size()
    optimizer = th.optim.Adam(model.parameters(), lr=job.arguments.lr)
    fan_out, _ = sage.fan_outs(job.arguments, job.graph)
    loader = job.batches(job.train, fan_out, job.arguments.batch_size, shuffle=True)
    epochs = []
    for epoch in range(job.arguments.num_epochs):
        start = time.monotonic()
        # Ranks may have different numbers of batches; join keeps gradients in step until the last is done.
        with model.join() if isinstance(model, DistributedDataParallel) else nullcontext():
            losses = [sage.step(model, optimizer, *job.fetch(batch)) for batch in loader]
        seconds = time.monotonic() - start
        speed = len(job.train) / seconds
        epochs.append({"loss": sum(losses) / len(losses), "seconds": seconds, "seeds_per_second": speed})
        print(
            f"rank {rank}, epoch {epoch}: loss {epochs[-1]['loss']:.4f}, {seconds:.1f} s, {speed:.0f} seeds/s"
        )
        dglrun.progress(epoch, epochs[-1]["loss"], 100 * (epoch + 1) / job.arguments.num_epochs)
    return epochs


def test_accuracy(job: Job, model: nn.Module) -> float:
    """Accuracy over the test nodes of all ranks."""
    _, fan_out = sage.fan_outs(job.arguments, job.graph)
    batches = job.batches(job.test, fan_out, job.arguments.batch_size_eval, shuffle=False)
    count = sage.correct(model, batches, job.fetch).to(job.device)
    if DISTRIBUTED:
        dist.all_reduce(count)
    right, nodes = count.tolist()
    return float(right / nodes)


def main(arguments: argparse.Namespace) -> None:
    """Join, train, judge, save."""
    job = Job.join(arguments)
    rank, size = rank_and_size()
    th.manual_seed(arguments.seed)
    dgl.seed(arguments.seed + rank)
    labels = job.all_rows("labels").long()
    features = job.graph.nodes[sage.target(job.graph)].data["features"].shape[1]
    widths = (features, arguments.num_hidden, int(labels.max()) + 1)
    model = sage.build(job.graph, widths, arguments.dropout).to(job.device)
    th.manual_seed(arguments.seed + rank)  # the same start, but an order and a dropout of its own

    # Held by nobody after the training: see leave().
    epochs = train(job, DistributedDataParallel(model) if DISTRIBUTED else model)
    accuracy = test_accuracy(job, model)

    parameters = sage.digest(model)
    part = job.graph.get_partition_book().partid
    print(f"rank {rank} of {size}: part {part}, {len(job.train)} training nodes, parameters {parameters}")
    if rank == 0:
        majority = sage.majority_accuracy(labels, job.all_rows("train_mask"), job.all_rows("test_mask"))
        metrics = {"test_accuracy": accuracy, "majority": majority, "world_size": size, "epochs": epochs}
        sage.save(model, {**metrics, "parameters": parameters})
        print(sage.final_words(accuracy, majority))
    if DISTRIBUTED:
        leave()


def leave() -> None:
    """Wait for all ranks and take the process group apart.

    The model's DDP wrapper must be gone first. As the last owner of the group it would join gloo's threads
    while it holds the interpreter's lock, for which such a thread may be waiting (seen: torch 1.13.1).
    """
    dist.barrier()
    gc.collect()
    dist.destroy_process_group()


def command_line() -> argparse.ArgumentParser:
    """The flags that dglrun gives a training script, and the model's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph_name", default="debian")
    parser.add_argument("--ip_config", default=os.environ.get("DGL_IP_CONFIG", "ip_config.txt"))
    parser.add_argument("--part_config", default=os.environ.get("DGL_CONF_PATH"))
    parser.add_argument("--use_graphbolt", action="store_true", help="DGL 2: sample with GraphBolt")
    sage.add_arguments(parser)
    return parser


if __name__ == "__main__":
    main(command_line().parse_args())
