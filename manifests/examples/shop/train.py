"""Learn the class of items from their buyers, and write what the model says of each item under its SKU.

Each rank predicts for the items of its part. `orig_nids.dgl` beside the part has their numbers in the chunked
graph, `dglrun ids` puts the SKUs in their place, and dglrun collects each worker's folder DGL_OUTPUT_DIR.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dgl
import pyarrow as pa
import pyarrow.parquet as pq
import torch as th
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

CHUNKS = Path("/shop/chunks")
RELATION = ("user", "buys", "item")
BUYERS = 20
"""Sampled of each item."""


def arguments() -> argparse.Namespace:
    """What dglrun gives to a training script."""
    parser = argparse.ArgumentParser()
    for flag in ("--graph_name", "--ip_config", "--part_config"):
        parser.add_argument(flag)
    parser.add_argument("--num_epochs", type=int, default=10)
    parser.add_argument("--batch_size", type=int, default=32)
    return parser.parse_args()


def classes() -> Any:
    """The words of the classes, by their numbers."""
    beside = json.loads((CHUNKS / "tables.json").read_text())
    return pq.read_table(CHUNKS / beside["categories"]["item"]["label"])["category"]


def buyers(graph: Any, items: th.Tensor) -> th.Tensor:
    """The mean of the features of some buyers of each item, shape (items, features)."""
    block = dgl.to_block(dgl.distributed.sample_neighbors(graph, {"item": items}, BUYERS), {"item": items})
    with block.local_scope():
        users = block.srcnodes["user"].data[dgl.NID]
        block.srcnodes["user"].data["h"] = graph.nodes["user"].data["feat"][users]
        messages = dgl.function.copy_u("h", "m"), dgl.function.mean("m", "h")
        block.update_all(*messages, etype=RELATION)
        return block.dstnodes["item"].data["h"]


def train(args: argparse.Namespace, graph: Any, classes: int) -> Any:
    """Train on all ranks; returns the model, which is the same on each."""
    book, items = graph.get_partition_book(), graph.nodes["item"].data
    mine = dgl.distributed.node_split(items["train_mask"], book, "item", force_even=True)
    th.manual_seed(0)
    model = DistributedDataParallel(th.nn.Linear(graph.nodes["user"].data["feat"].shape[1], classes))
    optimizer = th.optim.Adam(model.parameters(), lr=0.1)
    for _epoch in range(args.num_epochs):
        with model.join():  # ranks may differ by an item, and so by a batch, which the others would wait for
            for batch in mine[th.randperm(len(mine))].split(args.batch_size):
                loss = cross_entropy(model(buyers(graph, batch)), items["label"][batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    return model


def predict(model: Any, graph: Any) -> th.Tensor:
    """The number of the class of each item of this rank's part."""
    book = graph.get_partition_book()
    with th.no_grad():
        return model.module(buyers(graph, book.partid2nids(book.partid, "item"))).argmax(dim=1)


def write(predicted: th.Tensor, originals: th.Tensor, words: Any) -> None:
    """Write the classes of the part's items into DGL_OUTPUT_DIR, as Parquet by number and as csv by SKU."""
    out = Path(os.environ["DGL_OUTPUT_DIR"])
    out.mkdir(parents=True, exist_ok=True)
    told = words.take(pa.array(predicted.numpy()))
    pq.write_table(pa.table({"node": originals.numpy(), "class": told}), out / "items.parquet")
    argv = ("--mapping", CHUNKS / "mapping" / "item.parquet", "--values", out / "items.parquet")
    ids = (sys.executable, "-m", "dglrun", "ids", *argv, "--out", out / "items.csv")
    subprocess.run([str(word) for word in ids], check=True)


def main() -> None:
    """Train and predict; a server stays in `initialize`."""
    args = arguments()
    dgl.distributed.initialize(args.ip_config)
    dist.init_process_group("gloo")
    graph = dgl.distributed.DistGraph(args.graph_name, part_config=args.part_config)
    words = classes()
    model = train(args, graph, len(words))
    part = Path(args.part_config).parent / f"part{graph.get_partition_book().partid}"
    originals = dgl.data.utils.load_tensors(str(part / "orig_nids.dgl"))["item"]
    write(predict(model, graph), originals, words)


if __name__ == "__main__":
    main()
