"""DGL's own loader in a process of its own, which is started once and asked about many partitions."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = """
import json, os, sys, warnings
warnings.simplefilter("ignore")
import dgl

def loaded(config, part):
    graph, nfeats, efeats, book, *_ = dgl.distributed.load_partition(config, part)
    folder = f"{os.path.dirname(config)}/part{part}"
    originals = {kind: dgl.data.utils.load_tensors(f"{folder}/orig_{kind}.dgl") for kind in ("nids", "eids")}
    own, edges = graph.ndata["inner_node"].bool(), graph.edata["inner_edge"].bool()
    (src, dst), ids = graph.edges(form="uv", order="eid"), graph.ndata["_ID"]
    columns = {
        "node": book.map_to_per_ntype(ids[own]),
        "src": book.map_to_per_ntype(ids[src[edges]]),
        "dst": book.map_to_per_ntype(ids[dst[edges]]),
        "edge": book.map_to_per_etype(graph.edata["_ID"][edges]),
    }
    found = {name: [types.tolist(), numbers.tolist()] for name, (types, numbers) in columns.items()}
    for name, tensors in {"nfeats": nfeats, "efeats": efeats, **originals}.items():
        found[name] = {key: tensor.tolist() for key, tensor in tensors.items()}
    return found

print("ready", flush=True)
for line in sys.stdin:
    config = line.strip()
    with open(config) as file:
        parts = json.load(file)["num_parts"]
    print(json.dumps([loaded(config, part) for part in range(parts)]), flush=True)
"""


class DglLoader:
    """What `dgl.distributed.load_partition` makes of partitions, with its own checks on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def load(self, part_config: Path) -> list[dict[str, Any]]:
        """What each part holds.

        Returns:
            Of each part: `node`, `src`, `dst`, `edge` (types and type-wise shuffled IDs of its own nodes, and
            of its own edges and their ends), `nfeats`, `efeats`, `nids`, `eids` (tensors by name).
        """
        assert self._process.stdin
        assert self._process.stdout
        assert self._process.poll() is None, "DGL's loader ended on an earlier partition; see stderr there"
        print(part_config, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, f"DGL's loader ended on {part_config}; its traceback is on stderr"
        found: list[dict[str, Any]] = json.loads(answer)
        return found


@contextmanager
def dgl_loader() -> Iterator[DglLoader]:
    """Start the process; it ends with the block."""
    env = os.environ | {"DGL_DIST_DEBUG": "1", "DGLBACKEND": "pytorch"}
    process = subprocess.Popen(
        (sys.executable, "-c", PROGRAM),
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            yield DglLoader(process)
        finally:
            process.kill()
