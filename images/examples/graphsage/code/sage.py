"""GraphSAGE (Hamilton et al. 2017) and what the one-process and the distributed training share."""

import argparse
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import dgl.nn.pytorch as dglnn
import torch as th
from torch import nn

Batch = tuple[th.Tensor, th.Tensor, list[Any]]
"""Input nodes, seed nodes and message flow graphs, as DGL's loaders yield them."""


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what both trainings let the user choose, with one set of defaults."""
    parser.add_argument("--num_epochs", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=500, help="seed nodes of a step, for each trainer")
    parser.add_argument("--batch_size_eval", type=int, default=2000)
    parser.add_argument("--num_hidden", type=int, default=64)
    parser.add_argument("--fan_out", type=numbers, default=(10, 10), help="neighbours by layer, as 10,10")
    parser.add_argument("--fan_out_eval", type=numbers, default=(20, 20))
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--dropout", type=float, default=0.3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--num_gpus", type=int, default=-1, help="GPUs of this machine, -1: CPU")
    parser.add_argument("--num_workers", type=int, help="of 2021's dglrun; DGL_NUM_SAMPLER counts")


def numbers(text: str) -> tuple[int, ...]:
    """`10,10` as numbers."""
    return tuple(int(part) for part in text.split(","))


def device(num_gpus: int) -> th.device:
    """The device of this process: its own GPU, or the CPU."""
    return th.device("cpu" if num_gpus < 1 else f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % num_gpus}")


def step(
    model: nn.Module, optimizer: th.optim.Optimizer, blocks: list[Any], x: th.Tensor, y: th.Tensor
) -> float:
    """One optimizer step; returns the loss."""
    loss = nn.functional.cross_entropy(model(blocks, x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def correct(model: nn.Module, batches: Iterable[Batch], fetch: Callable[[Batch], Any]) -> th.Tensor:
    """Count right answers.

    Args:
        model: The model.
        batches: Batches of the nodes to judge.
        fetch: Gives blocks, features and labels of a batch.

    Returns:
        int64 of shape (2,): right answers, nodes.
    """
    model.eval()
    count = th.zeros(2, dtype=th.int64)
    with th.no_grad():
        for batch in batches:
            blocks, x, y = fetch(batch)
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
