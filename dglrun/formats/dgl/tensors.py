"""Files of named tensors: node_feat.dgl, edge_feat.dgl, orig_nids.dgl, orig_eids.dgl."""

from collections.abc import Iterable
from pathlib import Path

from dglrun.formats.dgl.arrays import ArrayFile, ArraySpec, Cursor, StoredArray, named, scalars

_MAGIC = 0xDD5A9FBE3FA2443F


def tensor_file(
    path: Path,
    specs: Iterable[ArraySpec],
    finished: frozenset[str] = frozenset(),
    stays_open: bool = True,
) -> ArrayFile:
    """Begin a file that `dgl.data.utils.load_tensors` reads; an empty dict is a file of 24 bytes.

    Args:
        path: The file.
        specs: The tensors in the order of the file.
        finished: Tensors that the file already holds whole.
        stays_open: See `ArrayFile`.
    """
    by_name = {spec.name: spec for spec in specs}
    return ArrayFile(path, [scalars("QQ", _MAGIC, len(by_name)), *named(by_name)], finished, stays_open)


def read_tensors(path: Path) -> dict[str, StoredArray]:
    """Index a file of tensors by name.

    Raises:
        FormatError: the file is not one of tensors, or is cut short.
    """
    with Cursor(path) as cursor:
        cursor.expect(_MAGIC, "a DGL tensor file")
        cursor.take("Q")
        return cursor.named_arrays()
