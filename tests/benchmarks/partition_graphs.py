"""Graphs for the partition benchmarks: power law (RMAT) and power law with communities.

    python -m tests.benchmarks.partition_graphs rmat 1000000 5200000 FOLDER [--format csv] [--types 2]

Simple graphs without self-loops or isolated nodes, every edge in both directions, written as a chunked
graph. `--types 2` splits the nodes 80/20 into two types (and the edges into four relations).
"""

import argparse
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dglrun.arrays import Ints
from dglrun.formats.chunked import table, write


def rmat(nodes: int, pairs: int, rng: np.random.Generator) -> Ints:
    """About `pairs` undirected pairs of an RMAT graph (0.57, 0.19, 0.19, 0.05), int64, shape (n, 2)."""
    bits = int(np.ceil(np.log2(nodes)))
    ends = np.zeros((pairs, 2), np.int64)
    for _ in range(bits):
        draw = rng.random(pairs, np.float32)
        ends <<= 1
        ends[:, 0] |= draw >= 0.76
        ends[:, 1] |= ((draw >= 0.57) & (draw < 0.76)) | (draw >= 0.95)
    return simple(ends % nodes)


def communities(nodes: int, pairs: int, rng: np.random.Generator, groups: int = 200) -> Ints:
    """Pairs with power-law degrees, four fifths of them inside one of `groups` communities."""
    weight = rng.permutation((1 + np.arange(nodes // groups)) ** -0.5)
    inside = rng.choice(nodes // groups, (pairs, 2), p=weight / weight.sum())
    home = rng.integers(0, groups, pairs)
    other = np.where(rng.random(pairs) < 0.8, home, rng.integers(0, groups, pairs))
    ends = inside * groups + np.stack([home, other], 1)
    return simple(ends)


def simple(ends: Ints) -> Ints:
    """Each pair once, in one direction, without self-loops."""
    ends = np.sort(ends[ends[:, 0] != ends[:, 1]], axis=1)
    keys = np.unique(ends[:, 0] << 32 | ends[:, 1])
    return np.stack([keys >> 32, keys & (1 << 32) - 1], 1)


def numbered(pairs: Ints, rng: np.random.Generator) -> tuple[Ints, int]:
    """Renumber so that every number is used, at random; both directions, shuffled."""
    used, inverse = np.unique(pairs, return_inverse=True)
    order = rng.permutation(len(used))
    pairs = order[inverse.reshape(pairs.shape)]
    both = np.concatenate([pairs, pairs[:, ::-1]])
    return both[rng.permutation(len(both))], len(used)


def save(edges: Ints, nodes: int, folder: Path, layout: str, types: int, files: int) -> None:
    """Write a chunked graph with one or two node types."""
    names = ("_N",) if types == 1 else ("a", "b")
    first = (0, nodes) if types == 1 else (0, nodes * 4 // 5, nodes)
    tables = {}
    for s, src in enumerate(names):
        for d, dst in enumerate(names):
            rows = edges[_in(edges[:, 0], first, s) & _in(edges[:, 1], first, d)]
            tables[f"{src}:{'_E' if types == 1 else f'r{s}{d}'}:{dst}"] = rows - [first[s], first[d]]
    counts = tuple(int(end - start) for start, end in pairwise(first))
    write.graph(folder, "bench", dict(zip(names, counts, strict=True)), tables, layout=layout, files=files)


def _in(ids: Ints, first: tuple[int, ...], kind: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (ids >= first[kind]) & (ids < first[kind + 1])
    return found


def main(argv: list[str]) -> int:
    """Make one graph."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("rmat", "communities"))
    parser.add_argument("nodes", type=int)
    parser.add_argument("pairs", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", choices=table.FORMATS, default="csv")
    parser.add_argument("--types", type=int, choices=(1, 2), default=1)
    parser.add_argument("--files", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    rng = np.random.default_rng(args.seed)
    make = rmat if args.kind == "rmat" else communities
    edges, nodes = numbered(make(args.nodes, args.pairs, rng), rng)
    save(edges, nodes, args.folder, args.format, args.types, args.files)
    print(f"{args.folder}: {nodes} nodes, {len(edges)} edges")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
