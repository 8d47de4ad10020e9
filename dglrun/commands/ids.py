"""`dglrun ids`: values that belong to nodes, such as predictions, under the IDs of the user's tables."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from dglrun.arrays import Ints
from dglrun.commands import elapsed
from dglrun.commands.arguments import UsageError
from dglrun.contract import exitcodes
from dglrun.errors import DataError
from dglrun.formats import writable
from dglrun.formats.chunked import npyfile, parquetfile
from dglrun.formats.dgl.folder import load_folder
from dglrun.formats.output_folder import replacing_file

_BLOCK_ROWS = 1 << 16
_ID, _NODE = "id", "node"


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of `ids`."""
    parser.add_argument(
        "--mapping",
        type=Path,
        required=True,
        metavar="FILE",
        help="mapping/<node type>.parquet of the chunked graph",
    )
    parser.add_argument(
        "--values",
        type=Path,
        required=True,
        metavar="FILE",
        help=".npy, a row for each node; or Parquet with `node`",
    )
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FILE", help="what to write: .parquet or .csv"
    )
    parser.add_argument(
        "--partition", type=Path, metavar="FILE", help="the partition's JSON, where the values have its order"
    )
    parser.add_argument(
        "--ntype",
        metavar="TYPE",
        help="with --partition: the node type (default: that of the mapping's name)",
    )


def run(args: argparse.Namespace) -> int:
    """Write the values with a column `id`; returns the exit code.

    Raises:
        UsageError: contradicting flags.
        DataError: files that do not fit together, or an output that cannot be written.
    """
    if args.out.suffix not in (".parquet", ".csv"):
        raise UsageError(f"--out: expected a name that ends in .parquet or .csv, got {args.out}")
    if args.ntype is not None and args.partition is None:
        raise UsageError("--ntype: expected --partition with it")
    writable.require_file(args.out)
    with elapsed.showing("dglrun ids"):
        values = _parquet(args.values) if args.values.suffix == ".parquet" else _numpy(args.values)
        nodes = values.numbers
        if args.partition is not None:
            ntype = args.ntype or args.mapping.stem
            originals = _originals(args.partition, ntype)
            nodes = originals[_within(nodes, len(originals), f"{args.values}: number in {ntype}")]
        count = _write(args.out, args.mapping, nodes, values)
    print(f"dglrun ids: {args.out}: {count} rows")
    return exitcodes.OK


@dataclass(frozen=True)
class _Values:
    """Rows of values.

    Attributes:
        path: Their file.
        numbers: Node of each row: int64, shape (rows,).
        names: Names of the columns.
        take: Gives some rows as pyarrow arrays, one for each column.
    """

    path: Path
    numbers: Ints
    names: tuple[str, ...]
    take: Callable[[Ints], list[Any]]


def _numpy(path: Path) -> _Values:
    """Row i belongs to node i; a row of several values becomes as many columns."""
    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    head = npyfile.header(path)
    if len(head.shape) > 2 or head.dtype.kind not in "biuf":
        raise DataError(
            f"{path}: expected numbers of shape (nodes,) or (nodes, k), got {head.dtype} {head.shape}"
        )
    found = np.load(path, mmap_mode="r")
    names = ("value",) if found.ndim == 1 else tuple(f"value_{at}" for at in range(found.shape[1]))

    def take(rows: Ints) -> list[Any]:
        some = found[rows].reshape(len(rows), len(names))
        return [pa.array(np.ascontiguousarray(some[:, at])) for at in range(len(names))]

    return _Values(path, np.arange(len(found)), names, take)


def _parquet(path: Path) -> _Values:
    """Column `node` has the nodes, the others their values."""
    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    table = parquetfile.open_file(path).read()
    names = tuple(name for name in table.schema.names if name != _NODE)
    if len(names) != table.num_columns - 1 or not pa.types.is_integer(table.schema.field(_NODE).type):
        raise DataError(f"{path}: expected one integer column `{_NODE}`, got {table.schema.names}")
    if _ID in names:
        raise DataError(f"{path}: expected no column `{_ID}`: that is what the IDs get")
    if table[_NODE].null_count:
        raise DataError(f"{path}: expected a node in each row, got none in {table[_NODE].null_count}")
    numbers = table[_NODE].cast(pa.int64()).to_numpy()

    def take(rows: Ints) -> list[Any]:
        some = table.select(list(names)).take(pa.array(rows))
        return [column.combine_chunks() for column in some.columns]

    return _Values(path, numbers, names, take)


def _originals(path: Path, ntype: str) -> Ints:
    """Node in the chunked graph of each node of a type in the partition, whose parts hold them in order."""
    folder = load_folder(path)
    if ntype not in folder.ntypes:
        raise DataError(
            f"{path}: {ntype!r} is none of the node types {list(folder.ntypes)}; --ntype names one"
        )
    found = []
    for part in range(len(folder.files)):
        ids = folder.original_ids(part, "node")
        if ids is None or ntype not in ids:
            raise DataError(
                f"{path}: part {part} has no orig_nids.dgl: dglrun dispatch --save-orig-nids writes it"
            )
        found.append(ids[ntype].rows(0, len(ids[ntype])).astype(np.int64))
    return np.concatenate(found)


def _within(numbers: Ints, limit: int, what: str) -> Ints:
    """The numbers, seen to be below a limit.

    Raises:
        DataError: one is not.
    """
    if len(wrong := np.flatnonzero((numbers < 0) | (numbers >= limit))):
        raise DataError(f"{what}: row {wrong[0]}: expected 0 to {limit - 1}, got {numbers[wrong[0]]}")
    return numbers


def _write(out: Path, mapping: Path, nodes: Ints, values: _Values) -> int:
    """Write the rows in the order of the nodes; the mapping is read in blocks. Returns their number."""
    if not mapping.is_file():
        raise DataError(f"{mapping}: does not exist")
    file = parquetfile.open_file(mapping)
    if file.schema_arrow.names != [_ID, _NODE]:
        raise DataError(f"{mapping}: expected the columns {_ID}, {_NODE}, got {file.schema_arrow.names}")
    total = int(file.metadata.num_rows)
    order = np.argsort(_within(nodes, total, f"{values.path}: node"), kind="stable")
    _refuse_fewer(values, total)
    with replacing_file(out) as draft, draft.open("wb") as target:
        writer, row = None, 0
        for batch in file.iter_batches(_BLOCK_ROWS, use_threads=False):
            bounds = np.searchsorted(nodes, (row, row + len(batch)), sorter=order)
            rows, row = order[slice(*bounds)], row + len(batch)
            ids = batch.column(0).take(pa.array(nodes[rows] - (row - len(batch))))
            table = pa.table([ids, *values.take(rows)], names=[_ID, *values.names])
            writer = writer or _writer(target, out.suffix, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return len(nodes)


def _refuse_fewer(values: _Values, total: int) -> None:
    """A row for each node is meant where the file does not name the nodes."""
    if values.path.suffix != ".parquet" and len(values.numbers) != total:
        raise DataError(f"{values.path}: expected a row for each of {total} nodes, got {len(values.numbers)}")


def _writer(target: Any, suffix: str, schema: Any) -> Any:
    return pacsv.CSVWriter(target, schema) if suffix == ".csv" else pq.ParquetWriter(target, schema)
