"""Train GraphSAGE over the parts of a graph: `dglrun --train-entry-point`.

One file for DGL's servers, trainers and samplers: a server stays in `initialize`. Without
DGL_DIST_MODE=distributed it trains on a partition of one part in this process (DGL's standalone mode).

After each epoch each rank saves what it needs to go on into DGL_CHECKPOINT_DIR, and goes on from there when
the job is started again: parameters, the optimizer's state, that of the random numbers and, with
--embedding_size, its share of the embeddings.
"""

import argparse
import gc
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import dgl
import torch as th
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import checkpoints
import dglrun
import sage
from embeddings import Embeddings

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
        embeddings: Learnt rows beside the features, if any.
    """

    arguments: argparse.Namespace
    graph: Any
    device: th.device
    train: th.Tensor
    test: th.Tensor
    embeddings: Embeddings | None = None

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
        job = cls(arguments, graph, sage.device(arguments.num_gpus), train, test)
        return job.with_embeddings(arguments.embedding_size) if arguments.embedding_size else job

    def with_embeddings(self, width: int) -> "Job":
        """The same with learnt rows; all ranks then train in the same number of steps, as these need."""
        if len(self.graph.ntypes) > 1:
            raise SystemExit("--embedding_size: expected a homogeneous graph")
        made = Embeddings(self.graph, width, self.arguments.lr)
        return replace(self, embeddings=made, train=self.train[: self.least(len(self.train))])

    def least(self, number: int) -> int:
        """The lowest of the numbers that all ranks give."""
        lowest = th.tensor(number, device=self.device)
        if DISTRIBUTED:
            dist.all_reduce(lowest, dist.ReduceOp.MIN)
        return int(lowest.item())

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
        blocks, x, y = sage.fetch(self.graph, batch, self.device)
        if self.embeddings:
            x = th.cat([x, self.embeddings.of(batch[0], self.device)], dim=1)
        return blocks, x, y

    def all_rows(self, name: str) -> th.Tensor:
        """A feature of all nodes of the target type."""
        rows = self.graph.nodes[sage.target(self.graph)].data[name]
        return rows[th.arange(len(rows))]


def rank_and_size() -> tuple[int, int]:
    """This process among the trainers."""
    return (dist.get_rank(), dist.get_world_size()) if DISTRIBUTED else (0, 1)


@dataclass
class Progress:
    """What a checkpoint holds of this rank, besides the embeddings.

    Attributes:
        model: The model, without DistributedDataParallel around it.
        optimizer: Its optimizer.
        epochs: Loss, seconds and seeds per second of each epoch so far, as this rank saw it.
    """

    model: nn.Module
    optimizer: th.optim.Optimizer
    epochs: list[dict[str, float]]

    def save(self, job: Job) -> None:
        """Leave a checkpoint."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "random": th.get_rng_state(),
            "epochs": self.epochs,
            "nodes": job.train,
            "embeddings": job.embeddings.state() if job.embeddings else None,
        }
        checkpoints.save(checkpoints.folder(), len(self.epochs), state)

    def resume(self, job: Job) -> None:
        """Go on from the newest checkpoint that all ranks have, if there is one."""
        folder = checkpoints.folder()
        epochs = checkpoints.newest_of_all(checkpoints.saved(folder), job.least)
        checkpoints.forget_newer(folder, epochs)
        if folder is None or epochs == 0:
            return
        state = checkpoints.load(folder, epochs)
        if job.embeddings:
            if not th.equal(state["nodes"], job.train):
                raise SystemExit("the checkpoint's embeddings are of another partition: its nodes differ")
            job.embeddings.load_state(state["embeddings"])
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        th.set_rng_state(state["random"])
        self.epochs = state["epochs"]
        job.least(epochs)  # a barrier: other ranks' embeddings are in their places, too
        print(f"rank {rank_and_size()[0]} goes on after epoch {epochs - 1}")


def train(job: Job, progress: Progress) -> None:
    """Train for the epochs that are left, with a checkpoint after each."""
    rank, _ = rank_and_size()
    model = DistributedDataParallel(progress.model) if DISTRIBUTED else progress.model
    fan_out, _ = sage.fan_outs(job.arguments, job.graph)
    loader = job.batches(job.train, fan_out, job.arguments.batch_size, shuffle=True)
    for epoch in range(len(progress.epochs), job.arguments.num_epochs):
        start = time.monotonic()
        dgl.seed(job.arguments.seed + rank + 1000 * epoch)  # DGL does not tell its state: a known one instead
        # Ranks may have different numbers of batches; join keeps gradients in step until the last is done.
        with model.join() if isinstance(model, DistributedDataParallel) else nullcontext():
            losses = [step(job, model, progress.optimizer, batch) for batch in loader]
        seconds = time.monotonic() - start
        loss, speed = sum(losses) / len(losses), len(job.train) / seconds
        progress.epochs.append({"loss": loss, "seconds": seconds, "seeds_per_second": speed})
        progress.save(job)
        print(
            f"rank {rank}, epoch {epoch}: loss {loss:.4f}, {seconds:.1f} s, {speed:.0f} seeds/s", flush=True
        )
        dglrun.progress(epoch, loss, 100 * (epoch + 1) / job.arguments.num_epochs)


def step(job: Job, model: nn.Module, optimizer: th.optim.Optimizer, batch: sage.Batch) -> float:
    """One step of all that is learnt; returns the loss."""
    loss = sage.step(model, optimizer, *job.fetch(batch))
    if job.embeddings:
        job.embeddings.step()
    return loss


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
    widths = (features + arguments.embedding_size, arguments.num_hidden, int(labels.max()) + 1)
    model = sage.build(job.graph, widths, arguments.dropout).to(job.device)
    th.manual_seed(arguments.seed + rank)  # the same start, but an order and a dropout of its own

    progress = Progress(model, th.optim.Adam(model.parameters(), lr=arguments.lr), [])
    progress.resume(job)
    train(job, progress)
    accuracy = test_accuracy(job, model)

    parameters = sage.digest(model)
    part = job.graph.get_partition_book().partid
    print(f"rank {rank} of {size}: part {part}, {len(job.train)} training nodes, parameters {parameters}")
    if rank == 0:
        majority = sage.majority_accuracy(labels, job.all_rows("train_mask"), job.all_rows("test_mask"))
        metrics = {
            "test_accuracy": accuracy,
            "majority": majority,
            "world_size": size,
            "epochs": progress.epochs,
        }
        sage.save(model, {**metrics, "parameters": parameters})
        print(sage.final_words(accuracy, majority))
    if DISTRIBUTED:
        leave()


def leave() -> None:
    """Wait for all ranks and take the process group apart.

    The model's DDP wrapper, which `train` holds, must be gone first. As the last owner of the group it would
    join gloo's threads while it holds the interpreter's lock, for which such a thread may be waiting (seen:
    torch 1.13.1).
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
    parser.add_argument("--embedding_size", type=int, default=0, help="learnt columns beside the features")
    sage.add_arguments(parser)
    return parser


if __name__ == "__main__":
    main(command_line().parse_args())
