"""Features and original node IDs: streamed from the reader's share into their place in the owner's file.

Rows keep input order inside a (part, type), so what one rank sends to one part is one run of the
file: the owner needs no IDs and holds no more than a block.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from dglrun.arrays import Array, Ints
from dglrun.dispatch.halo import batches
from dglrun.formats.dgl.arrays import ArrayFile
from dglrun.mpi.collectives import Ranks
from dglrun.mpi.shuffle import OutgoingRows, Owners, shuffle


@dataclass(frozen=True)
class RowStream:
    """A table on its way.

    Attributes:
        name: Name of the tensor in the owners' files.
        parts: Part of each row that this rank reads: uint8 or uint16, shape (rows,).
        sent: int64, shape (ranks, parts): rows that each rank reads, by part.
        empty: An array of no rows with the table's dtype and row shape, shape (0, *row shape).
    """

    name: str
    parts: Array
    sent: Ints
    empty: Array

    def run(
        self, blocks: Iterator[Array], files: Mapping[int, ArrayFile], ranks: Ranks, owners: Owners
    ) -> None:
        """Send all rows and write those that arrive; collective.

        Args:
            blocks: This rank's rows in order: shape (rows, *row shape), the table's dtype.
            files: The open files of this rank's parts.
            ranks: The processes.
            owners: Who owns which part.

        Raises:
            DataError: a bad row in the input of some rank.
        """
        places = np.cumsum(self.sent, axis=0) - self.sent
        seen = 0

        def prepare(block: Array) -> OutgoingRows:
            nonlocal seen
            seen += len(block)
            return OutgoingRows(self.parts[seen - len(block) : seen], (block,))

        for arrival in shuffle(ranks, owners, blocks, self.empty, prepare):
            (block,) = arrival.columns
            files[arrival.part].put(self.name, int(places[arrival.source, arrival.part]), block)
            places[arrival.source, arrival.part] += len(block)


def ids(start: int, stop: int, rows: int) -> Iterator[Ints]:
    """The numbers from `start` to `stop` - 1 in blocks: original IDs as a table.

    Yields:
        int64, shape (`rows`,), the last one may be shorter.
    """
    for low, high in batches(stop - start, rows):
        yield np.arange(start + low, start + high)
