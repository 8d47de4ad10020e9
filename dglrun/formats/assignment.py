"""The assignment's files: `<ntype>.txt`, line i = part of node i, and partition_meta.json.

They appear under their names only when all of them are whole, partition_meta.json last.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dglrun.arrays import Array, NDArray
from dglrun.errors import DataError
from dglrun.formats import assignment_shares
from dglrun.formats.assignment_shares import assignment_file
from dglrun.formats.chunked.metadata import ChunkedGraph
from dglrun.formats.output_folder import read_object, replacing

Parts = NDArray[np.uint16]

META = "partition_meta.json"
VERSION = "1.0.0"
MAX_PARTS = 1 << 15
BLOCK_ROWS = 1 << 20


@dataclass(frozen=True)
class AssignmentMeta:
    """What partition_meta.json says.

    Attributes:
        num_parts: Number of parts.
        method: The back end that ran, such as `random`, `metis` or `user`.
        details: Further keys: library, seed, ranks, balance, edgeCut, ... (docs/reference/partition.md).
    """

    num_parts: int
    method: str
    details: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The JSON object; `algo_name` has one of the two values that DGL's loader accepts."""
        algo = "random" if self.method == "random" else "metis"
        return {
            "version": VERSION,
            "num_parts": self.num_parts,
            "algo_name": algo,
            "method": self.method,
            **self.details,
        }


def lines(parts: Array, num_parts: int) -> bytes:
    """Part numbers as text, one on each line.

    Args:
        parts: uint8, uint16 or wider integers from 0 to `num_parts` - 1, shape (nodes,).
        num_parts: Number of parts.

    Raises:
        IndexError: a number is `num_parts` or above.
    """
    table = np.array([f"{part}\n".encode() for part in range(num_parts)])
    letters = table[parts].view(np.uint8)
    return bytes(letters[letters != 0])


@contextmanager
def publishing(folder: Path, ntypes: Sequence[str], meta: AssignmentMeta) -> Iterator[dict[str, Path]]:
    """Give the drafts to write for each node type; at a good end they get their names, else they go.

    Args:
        folder: The assignment's folder; made if absent. An older assignment in it is replaced.
        ntypes: Node types.
        meta: Written last.

    Raises:
        OutputError: another run is writing there, or the folder holds something else.
    """
    with replacing(folder, partial(_owned, ntypes), (META,)) as draft:
        drafts = {ntype: assignment_file(draft, ntype) for ntype in ntypes}
        for path in drafts.values():
            path.write_bytes(b"")
        yield drafts
        (draft / META).write_text(json.dumps(meta.to_json(), indent=1) + "\n")


def _owned(ntypes: Sequence[str], folder: Path) -> Iterator[Path]:
    """An earlier assignment; one that does not name its node types is of the same graph, or stays."""
    found = read_object(folder / META)
    if "num_parts" in found:
        named = found.get("nodes_per_part")
        types = [*named, *ntypes] if isinstance(named, dict) else ntypes
        yield from (Path(f"{ntype}.txt") for ntype in types if "/" not in ntype)
        yield Path(META)


def write(folder: Path, graph: ChunkedGraph, parts: Mapping[str, Parts], meta: AssignmentMeta) -> None:
    """Write a whole assignment.

    Args:
        folder: Where.
        graph: Whose node types and counts.
        parts: Part of each node by node type: uint16, shape (nodes of the type,).
        meta: The metadata.

    Raises:
        OutputError: another run is writing there, or the folder holds something else.
    """
    with publishing(folder, graph.ntypes, meta) as drafts:
        for ntype, draft in drafts.items():
            with draft.open("wb") as file:
                for at in range(0, len(parts[ntype]), BLOCK_ROWS):
                    file.write(lines(parts[ntype][at : at + BLOCK_ROWS], meta.num_parts))
                file.flush()
                os.fsync(file.fileno())


def load_meta(folder: Path) -> AssignmentMeta:
    """Read partition_meta.json, ours or DGL's.

    Raises:
        DataError: it is missing, no JSON object, or without a usable number of parts.
    """
    path = folder / META
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: is not JSON: {error}") from None
    parts = raw.get("num_parts") if isinstance(raw, dict) else None
    if not isinstance(parts, int) or isinstance(parts, bool) or not 0 < parts <= MAX_PARTS:
        raise DataError(f"{path}: num_parts: expected a number from 1 to {MAX_PARTS}, got {parts!r}")
    known = {"version", "num_parts", "algo_name", "method"}
    details = {key: value for key, value in raw.items() if key not in known}
    return AssignmentMeta(parts, str(raw.get("method") or raw.get("algo_name")), details)


def load_parts(path: Path, num_nodes: int, num_parts: int) -> Parts:
    """Read one `<ntype>.txt`.

    Args:
        path: The file.
        num_nodes: Lines that it must have.
        num_parts: Every line is below.

    Returns:
        uint16, shape (num_nodes,).

    Raises:
        DataError: missing, another number of lines, a line that is no part; names file and line.
    """
    parts = assignment_shares.read_share(path, num_parts, 0, 1)
    assignment_shares.check_lines(path, len(parts), num_nodes)
    return parts.astype(np.uint16, copy=False)


def load(folder: Path, graph: ChunkedGraph) -> tuple[AssignmentMeta, dict[str, Parts]]:
    """Read and check a whole assignment of this graph.

    Returns:
        The metadata, and the part of each node by node type: uint16, shape (nodes of the type,).

    Raises:
        DataError: a file is missing or does not fit the graph.
    """
    meta = load_meta(folder)
    pairs = zip(graph.ntypes, graph.num_nodes, strict=True)
    return meta, {
        ntype: load_parts(assignment_file(folder, ntype), count, meta.num_parts) for ntype, count in pairs
    }
