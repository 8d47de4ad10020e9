"""KaMinPar: k-way partitioning by all CPUs of one process, counted in 64 bits (PyPI kaminpar, MIT licence).

Method: Gottesbüren, Heuer, Sanders, Schulz, Seemaier, "Deep Multilevel Graph Partitioning" (ESA 2021). Its
Python side reads graphs from files only, so the rows go through one in ParHIP's binary form (KaHIP user
guide, "Binary format"); our own are gone before it begins.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.errors import BackendFailedError, BackendMissingError, UnwritableError
from dglrun.formats.assignment import Parts
from dglrun.formats.output_folder import HIDDEN
from dglrun.partitioning import child_call
from dglrun.partitioning.csr import Csr

PREFIX = f"{HIDDEN}kaminpar-"
"""Of the working folder's name: hidden, so that what a killed run leaves in --out-dir is no user's file."""
CONTEXT = "fast"
"""Its configuration. `default` takes 1.6 times the CPU for no better a cut on graphs with communities."""
BLOCK = 1 << 22
"""Numbers that are converted at a time."""
_WORD = 8
_NODE_WEIGHTS = 1
"""ParHIP's first number: 64 bits, no edge weights, node weights."""


@dataclass(frozen=True)
class KaMinParLibrary:
    """The installed package.

    Attributes:
        name: Package and version.
        module: It.
    """

    name: str
    module: ModuleType


def load() -> KaMinParLibrary:
    """Find the package.

    Raises:
        BackendMissingError: it is not installed, or counts in 32 bits.
    """
    try:
        module = importlib.import_module("kaminpar")
    except ImportError as error:
        raise BackendMissingError(
            f"back end kaminpar: {error}; install it (pip install 'dgl-operator[kaminpar]')"
        ) from error
    if not module.__64bit__:
        raise BackendMissingError("back end kaminpar: expected a 64-bit build, found one of 32 bits")
    return KaMinParLibrary(f"kaminpar {module.__version__}", module)


def write(path: Path, graph: Csr, weights: Ints) -> None:
    """Write the rows as a file of 8 bytes for each half-edge and 16 for each node.

    Args:
        path: Where to.
        graph: Rows of all nodes.
        weights: Weight of each node, int64, shape (nodes,), at least 1.

    Raises:
        UnwritableError: the file cannot be written; names it.
    """
    try:
        with path.open("wb") as file:
            for block in _content(graph, weights):  # numpy's tofile would not say why it fails
                file.write(block.astype(np.uint64).data)
    except OSError as error:
        raise UnwritableError(f"{path}: cannot be written: {error.strerror or error}") from error


def _content(graph: Csr, weights: Ints) -> Iterator[Array]:
    nodes, entries = len(graph.xadj) - 1, int(graph.xadj[-1])
    yield np.array([_NODE_WEIGHTS, nodes, entries], np.int64)
    for block in _blocks(graph.xadj):  # bytes from the file's beginning
        yield (block + 3 + nodes + 1) * _WORD
    yield from _blocks(graph.adjncy)
    yield from _blocks(weights)


def assign(
    lib: KaMinParLibrary, path: Path, nodes: int, num_parts: int, imbalance: float, threads: int, seed: int
) -> Parts:
    """Partition a written graph, in a child process that a signal to this one ends.

    With several threads the same seed need not give the same parts.

    Args:
        lib: The package.
        path: From `write`.
        nodes: Its nodes, more than 0.
        num_parts: Parts.
        imbalance: Weight allowed in a part over the mean weight, 1.05 for five per cent.
        threads: Threads.
        seed: Seed.

    Returns:
        Part of each node, uint16, shape (nodes,).

    Raises:
        BackendFailedError: it failed or was killed.
    """
    found = child_call.shared_array(nodes, np.int16)

    def work() -> int:
        found.view(np.uint16)[:] = _compute(lib.module, path, num_parts, imbalance, threads, seed)
        return 0

    child_call.call("KaMinPar", work)
    return found.view(np.uint16).copy()


def _compute(
    module: ModuleType, path: Path, num_parts: int, imbalance: float, threads: int, seed: int
) -> Parts:
    module.reseed(seed)
    graph = module.load_graph(str(path), module.GraphFileFormat.PARHIP, compress=False)
    if graph.n() == 0:
        raise BackendFailedError(f"KaMinPar has read no node from {path}")
    solver = module.KaMinPar(threads, module.context_by_name(CONTEXT))
    parts = solver.compute_partition(graph, num_parts, imbalance - 1.0)
    return np.fromiter(parts, np.uint16, graph.n())


def _blocks(array: Array) -> Iterator[Array]:
    return (array[at : at + BLOCK] for at in range(0, len(array), BLOCK))
