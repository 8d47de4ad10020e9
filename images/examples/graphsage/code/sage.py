"""GraphSAGE (Hamilton et al. 2017) and what the one-process and the distributed training share."""

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import dgl
import dgl.nn.pytorch as dglnn
import torch as th
from torch import nn

Batch = tuple[Any, Any, list[Any]]
"""Input nodes, seed nodes (by type in a heterogeneous graph) and blocks, as DGL's loaders yield them."""

Relation = tuple[str, str, str]

TARGET = "package"
"""The node type that has labels; a homogeneous graph has only one type, whatever its name."""


class Sage(nn.Module):  # type: ignore[misc]
    """Mean-aggregating GraphSAGE layers with ReLU and dropout between them."""

    def __init__(self, widths: Sequence[int], dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            dglnn.SAGEConv(inputs, outputs, "mean") for inputs, outputs in pairwise(widths)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: Sequence[Any], features: th.Tensor) -> th.Tensor:
        """Logits of the seed nodes.

        Args:
            blocks: One message flow graph for each layer.
            features: float32 of shape (input nodes, features).

        Returns:
            float32 of shape (seed nodes, classes).
        """
        hidden = features
        for layer, block in zip(self.layers[:-1], blocks, strict=False):
            hidden = self.dropout(th.relu(layer(block, hidden)))
        return self.layers[-1](blocks[-1], hidden)


class Relations(nn.Module):  # type: ignore[misc]
    """One layer over typed edges (R-GCN, Schlichtkrull et al. 2018): own weights for each relation.

    A node's new state is its old one and the mean over each relation's neighbours, each times a matrix.
    """

    def __init__(self, relations: Sequence[Relation], inputs: int, outputs: int) -> None:
        super().__init__()
        targets = sorted({relation[2] for relation in relations})
        self.own = nn.ModuleDict({ntype: nn.Linear(inputs, outputs) for ntype in targets})
        self.neighbours = nn.ModuleDict(
            {":".join(relation): nn.Linear(inputs, outputs, bias=False) for relation in relations}
        )

    def forward(self, block: Any, rows: dict[str, th.Tensor]) -> dict[str, th.Tensor]:
        """New states of the block's destination nodes by type.

        A relation without edges in this block takes part with zeros: DistributedDataParallel waits for
        the gradient of every weight.
        """
        states = {ntype: own(rows[ntype][: block.num_dst_nodes(ntype)]) for ntype, own in self.own.items()}
        for name, weight in self.neighbours.items():
            relation = tuple(name.split(":"))
            means = _means(block, relation, rows[relation[0]])
            states[relation[2]] = states[relation[2]] + weight(means)
        return states


class HeteroSage(nn.Module):  # type: ignore[misc]
    """Two layers over typed edges; the second only over relations into the target.

    So no weight is ever without a gradient.
    """

    def __init__(
        self, relations: Sequence[Relation], widths: tuple[int, int, int], target: str, dropout: float
    ) -> None:
        super().__init__()
        inputs, hidden, classes = widths
        self.target = target
        self.first = Relations(relations, inputs, hidden)
        self.last = Relations([relation for relation in relations if relation[2] == target], hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, blocks: Sequence[Any], features: dict[str, th.Tensor]) -> th.Tensor:
        """Logits of the seed nodes of the target type; features by node type."""
        states = self.first(blocks[0], features)
        states = {ntype: self.dropout(th.relu(rows)) for ntype, rows in states.items()}
        return self.last(blocks[1], states)[self.target]


def _means(block: Any, relation: tuple[str, ...], rows: th.Tensor) -> th.Tensor:
    """Mean of the neighbours of each destination node, 0 without neighbours.

    A relation of which nothing was sampled has no edges in the block of a DGLGraph, and is missing in
    that of a DistGraph.
    """
    if relation not in block.canonical_etypes or block.num_edges(relation) == 0:
        return rows.new_zeros(block.num_dst_nodes(relation[2]), rows.shape[1])
    edges = block[relation]
    with edges.local_scope():
        edges.srcdata["rows"] = rows
        edges.update_all(dgl.function.copy_u("rows", "message"), dgl.function.mean("message", "mean"))
        return edges.dstdata["mean"]


def build(graph: Any, widths: tuple[int, int, int], dropout: float) -> nn.Module:
    """The model for a DGLGraph or DistGraph: features, hidden units and classes in `widths`."""
    if len(graph.canonical_etypes) == 1:
        return Sage(widths, dropout)
    return HeteroSage(graph.canonical_etypes, widths, target(graph), dropout)


def target(graph: Any) -> str:
    """The node type whose class is learnt."""
    return str(graph.ntypes[0]) if len(graph.ntypes) == 1 else TARGET


def fetch(graph: Any, batch: Batch, device: th.device) -> tuple[list[Any], Any, th.Tensor]:
    """Blocks, features and labels of a batch on the device, from a DGLGraph or a DistGraph."""
    inputs, seeds, blocks = batch
    labels = graph.nodes[target(graph)].data["labels"]
    blocks = [block.to(device) for block in blocks]
    if not isinstance(inputs, dict):
        x = graph.nodes[target(graph)].data["features"][inputs].to(device)
        return blocks, x, labels[seeds].long().to(device)
    nodes = {ntype: inputs.get(ntype, th.empty(0, dtype=th.int64)) for ntype in graph.ntypes}
    x = {ntype: graph.nodes[ntype].data["features"][ids].to(device) for ntype, ids in nodes.items()}
    return blocks, x, labels[seeds[target(graph)]].long().to(device)


def seeds_of(graph: Any, nodes: th.Tensor) -> Any:
    """Nodes of the target type as DGL's loaders want them: by type in a heterogeneous graph."""
    return nodes if len(graph.ntypes) == 1 else {target(graph): nodes}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what both trainings let the user choose, with one set of defaults."""
    parser.add_argument("--num_epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=500, help="seed nodes of a step, for each trainer")
    parser.add_argument("--batch_size_eval", type=int, default=2000)
    parser.add_argument("--num_hidden", type=int, default=64)
    parser.add_argument("--fan_out", type=numbers, help="neighbours by layer and relation, as 10,10")
    parser.add_argument("--fan_out_eval", type=numbers)
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_gpus", type=int, default=-1, help="GPUs of this machine, -1: CPU")
    parser.add_argument("--num_workers", type=int, help="of 2021's dglrun; DGL_NUM_SAMPLER counts")


def fan_outs(arguments: argparse.Namespace, graph: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Neighbours by layer for training and for judging: fewer of each relation where there are many."""
    few = len(graph.canonical_etypes) > 1
    return arguments.fan_out or ((2, 4) if few else (10, 10)), arguments.fan_out_eval or (
        (5, 10) if few else (20, 20)
    )


def numbers(text: str) -> tuple[int, ...]:
    """`10,10` as numbers."""
    return tuple(int(part) for part in text.split(","))


def device(num_gpus: int) -> th.device:
    """The device of this process: its own GPU, or the CPU."""
    return th.device("cpu" if num_gpus < 1 else f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % num_gpus}")


def step(model: nn.Module, optimizer: th.optim.Optimizer, blocks: list[Any], x: Any, y: th.Tensor) -> float:
    """One optimizer step; returns the loss."""
    loss = nn.functional.cross_entropy(model(blocks, x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def correct(model: nn.Module, batches: Iterable[Batch], give: Callable[[Batch], Any]) -> th.Tensor:
    """Count right answers.

    Args:
        model: The model.
        batches: Batches of the nodes to judge.
        give: Gives blocks, features and labels of a batch.

    Returns:
        int64 of shape (2,): right answers, nodes.
    """
    model.eval()
    count = th.zeros(2, dtype=th.int64)
    with th.no_grad():
        for batch in batches:
            blocks, x, y = give(batch)
            count += th.tensor([int((model(blocks, x).argmax(1) == y).sum()), len(y)])
    model.train()
    return count


def majority_accuracy(labels: th.Tensor, train: th.Tensor, test: th.Tensor) -> float:
    """Test accuracy of always naming the most frequent class of the training nodes.

    Args:
        labels: int64 of shape (nodes,).
        train: Mask of shape (nodes,).
        test: Mask of shape (nodes,).
    """
    most = th.bincount(labels[train.bool()]).argmax()
    return float((labels[test.bool()] == most).float().mean())


def digest(model: nn.Module) -> str:
    """SHA-256 over all parameters: equal on all ranks when, and only when, they trained one model."""
    parameters = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        parameters.update(name.encode())
        parameters.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return parameters.hexdigest()


def save(model: nn.Module, metrics: dict[str, Any]) -> None:
    """Leave the model and its metrics where dglrun collects them; nothing without DGL_OUTPUT_DIR."""
    if "DGL_OUTPUT_DIR" not in os.environ:
        return
    folder = Path(os.environ["DGL_OUTPUT_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    th.save(model.state_dict(), folder / "model.pt")
    (folder / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n")


def final_words(accuracy: float, majority: float) -> str:
    """The line that people and tests look for."""
    return f"Test accuracy: {accuracy:.4f} (majority class {majority:.4f})"
