"""How many rows a file has, and where to seek for one of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dglrun.arrays import Ints
from dglrun.formats.chunked.input_file import File
from dglrun.formats.chunked.table import FileSpec


@dataclass(frozen=True)
class RowIndex:
    """One file of a table; small, so that ranks can share what one of them counted.

    Attributes:
        path: The file.
        rows: Number of rows.
        before: csv only: line ends before each step of `csvfile.STEP` bytes, int64, shape (steps,).
    """

    path: File
    rows: int
    before: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


Index = Mapping[FileSpec, Sequence[RowIndex]]
"""The index of every file of some tables."""
