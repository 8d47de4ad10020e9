"""Partitions a ring with chords of a few hundred nodes.

TINY_PARTITION_EXIT ends it with that code; TINY_PARTITION_HELD holds it until the API server is away;
TINY_PARTITION_HOLES adds a file of so many GB without content to each part: its delivery lasts.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("DGLBACKEND", "pytorch")

parser = argparse.ArgumentParser()
parser.add_argument("--graph_name")
parser.add_argument("--workspace")
parser.add_argument("--rel_data_path")
parser.add_argument("--num_parts", type=int)
args = parser.parse_args()

if "TINY_PARTITION_EXIT" in os.environ:
    print("partition_tiny: leaving as told", file=sys.stderr)
    sys.exit(int(os.environ["TINY_PARTITION_EXIT"]))

if "TINY_PARTITION_HELD" in os.environ:
    subprocess.run([sys.executable, str(Path(__file__).with_name("api_away.py"))], check=True)

import dgl  # noqa: E402
import torch  # noqa: E402

nodes = 400
here = torch.arange(nodes)
sources = torch.cat([here, here, here])
targets = torch.cat([(here + 1) % nodes, (here + 2) % nodes, (here + 17) % nodes])
graph = dgl.graph((torch.cat([sources, targets]), torch.cat([targets, sources])))
labels = (here * 4 // nodes).long()
graph.ndata["labels"] = labels
graph.ndata["features"] = torch.nn.functional.one_hot(labels, 8).float() + 0.1 * torch.randn(nodes, 8)
for name, rest in (("train_mask", (0, 1)), ("val_mask", (2,)), ("test_mask", (3,))):
    graph.ndata[name] = torch.isin(here % 4, torch.tensor(rest))
folder = str(Path(args.workspace, args.rel_data_path))
dgl.distributed.partition_graph(graph, args.graph_name, args.num_parts, folder)

for part in range(args.num_parts):
    with Path(folder, f"part{part}", "holes").open("wb") as file:
        file.truncate(int(float(os.environ.get("TINY_PARTITION_HOLES", "0")) * 1e9))
