"""`dglrun ids`: values that belong to nodes, such as predictions, under the IDs of the user's tables.

With --inverse the other way: rows with IDs get the numbers of their nodes.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
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
_MAPPING_ROWS = 1 << 20
"""Of the mapping that are searched at a time: all IDs are looked up in each such block."""
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
        help=".npy, a row for each node; or Parquet with `node`; with --inverse Parquet or csv with `id`",
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
    parser.add_argument(
        "--inverse",
        action="store_true",
        help="the other way: `node` instead of `id`, rows in their order; with --partition its numbers",
    )


def run(args: argparse.Namespace) -> int:
    """Write the values with a column `id`, by --inverse with a column `node`; returns the exit code.

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
        count = _numbered(args) if args.inverse else _named(args)
    print(f"dglrun ids: {args.out}: {count} rows")
    return exitcodes.OK


def _named(args: argparse.Namespace) -> int:
    """IDs for nodes; returns the number of rows."""
    values = _parquet(args.values) if args.values.suffix == ".parquet" else _numpy(args.values)
    nodes = values.numbers
    if args.partition is not None:
        ntype = args.ntype or args.mapping.stem
        originals = _originals(args.partition, ntype)
        nodes = originals[_within(nodes, len(originals), f"{args.values}: number in {ntype}")]
    return _write(args.out, args.mapping, nodes, values)


def _numbered(args: argparse.Namespace) -> int:
    """Nodes for IDs; returns the number of rows."""
    mapping = _mapping(args.mapping)
    table = _with_ids(args.values, mapping.schema_arrow.field(_ID).type, as_texts=args.out.suffix == ".csv")
    nodes = _nodes(args.values, table[_ID], mapping)
    if args.partition is not None:
        ntype = args.ntype or args.mapping.stem
        originals = _originals(args.partition, ntype)
        if len(originals) != (total := mapping.metadata.num_rows):
            raise DataError(f"{args.partition}: {ntype}: expected {total} nodes, got {len(originals)}")
        nodes = np.argsort(originals)[nodes]
    with replacing_file(args.out) as draft, draft.open("wb") as target:
        found = table.set_column(table.schema.get_field_index(_ID), _NODE, pa.array(nodes))
        writer = _writer(target, args.out, found.schema)
        writer.write_table(found)
        writer.close()
    return len(nodes)


def _with_ids(path: Path, kind: Any, as_texts: bool) -> Any:
    """A table whose column `id` is of the mapping's kind and without nulls.

    Args:
        path: Parquet or csv.
        kind: Of the mapping's IDs.
        as_texts: Whether the other columns of csv are texts, which stay as they are, whatever they look like.
    """
    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    try:
        table = (
            _read_csv(path, kind, as_texts) if path.suffix == ".csv" else parquetfile.open_file(path).read()
        )
        if table.schema.names.count(_ID) != 1 or _NODE in table.schema.names:
            raise DataError(f"{path}: expected one column `{_ID}` and no `{_NODE}`, got {table.schema.names}")
        at, ids = table.schema.get_field_index(_ID), table[_ID]
        if pa.types.is_floating(ids.type):
            raise DataError(f"{path}: expected texts or integers as IDs, got {ids.type}")
        table = table.set_column(at, _ID, ids.cast(kind))
    except (pa.ArrowException, UnicodeError) as error:
        raise DataError(f"{path}: cannot be read: {' '.join(str(error).split())[:300]}") from None
    if table[_ID].null_count:
        raise DataError(f"{path}: expected an ID in each row, got none in {table[_ID].null_count}")
    return table


def _read_csv(path: Path, kind: Any, as_texts: bool) -> Any:
    form = pacsv.ParseOptions(newlines_in_values=True)
    types = {_ID: kind}
    if as_texts:
        with pacsv.open_csv(path, parse_options=form) as head:
            types = dict.fromkeys(head.schema.names, pa.string()) | types
    return pacsv.read_csv(path, None, form, pacsv.ConvertOptions(column_types=types))


def _nodes(path: Path, ids: Any, mapping: Any) -> Ints:
    """Node of each ID; the mapping is read in blocks."""
    each, row = ids.unique(), 0
    nodes = np.full(len(each), -1)
    for batch in mapping.iter_batches(_MAPPING_ROWS, use_threads=False):
        at = pc.index_in(each, batch.column(0))
        nodes[at.is_valid().to_numpy(zero_copy_only=False)] = row + at.drop_null().to_numpy()
        row += len(batch)
    found: Ints = nodes[pc.index_in(ids, each).to_numpy()]
    if len(lost := np.flatnonzero(found < 0)):
        text = f"expected an ID of the mapping, got {ids[lost[0]].as_py()!r}"
        raise DataError(f"{path}: row {lost[0] + 1}: {text}")
    return found


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
        DataError: one is not; it names the row, from 1.
    """
    if len(wrong := np.flatnonzero((numbers < 0) | (numbers >= limit))):
        raise DataError(f"{what}: row {wrong[0] + 1}: expected 0 to {limit - 1}, got {numbers[wrong[0]]}")
    return numbers


def _write(out: Path, mapping: Path, nodes: Ints, values: _Values) -> int:
    """Write the rows in the order of the nodes; the mapping is read in blocks. Returns their number."""
    file = _mapping(mapping)
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
            writer = writer or _writer(target, out, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()
    return len(nodes)


def _mapping(path: Path) -> Any:
    """The file of IDs and nodes, of which row i is node i."""
    if not path.is_file():
        raise DataError(f"{path}: does not exist")
    file = parquetfile.open_file(path)
    if file.schema_arrow.names != [_ID, _NODE]:
        raise DataError(f"{path}: expected the columns {_ID}, {_NODE}, got {file.schema_arrow.names}")
    return file


def _refuse_fewer(values: _Values, total: int) -> None:
    """A row for each node is meant where the file does not name the nodes."""
    if values.path.suffix != ".parquet" and len(values.numbers) != total:
        raise DataError(f"{values.path}: expected a row for each of {total} nodes, got {len(values.numbers)}")


def _writer(target: Any, out: Path, schema: Any) -> Any:
    """A writer of the kind that the name says.

    Raises:
        DataError: csv has no form for some column.
    """
    if out.suffix != ".csv":
        return pq.ParquetWriter(target, schema)
    for field in schema:
        try:
            pacsv.write_csv(pa.schema([field]).empty_table(), pa.BufferOutputStream())
        except pa.ArrowException:
            text = (
                f"column {field.name!r}: csv cannot hold {field.type}: expected a name that ends in .parquet"
            )
            raise DataError(f"{out}: {text}") from None
    return pacsv.CSVWriter(target, schema)
