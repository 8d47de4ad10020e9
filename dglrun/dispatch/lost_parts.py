"""Parts that are made again since their workers were lost, while the others of their dispatch are there.

The assignment of the nodes is brought to the ranks that lack it, so that any of them may be lost next. A
dispatch of the same input by the same assignment gives the same parts: the input's files must have the names,
sizes and times that the others have recorded, and the partition's JSON must come out as they have it. What
lies on the disk of a new worker may be of an earlier job, and tells nothing.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dglrun.arrays import Array
from dglrun.contract import exitcodes
from dglrun.dispatch import write_part_config
from dglrun.formats.assignment import META
from dglrun.formats.output_folder import read_object, replacing_file
from dglrun.mpi import shared_folder, source_sums
from dglrun.mpi.collectives import AgreedError, Ranks, run_on_all_ranks
from dglrun.mpi.shared_folder import Members
from dglrun.mpi.shuffle import Owners

T = TypeVar("T")

PIECE = 16 << 20
"""Bytes of a file that are sent at a time, to all that lack it."""


class CountingRanks:
    """Ranks that count the bytes of rows that each of them receives from others.

    Attributes:
        received: Bytes so far.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks, self.rank, self.size = ranks, ranks.rank, ranks.size
        self.received = 0

    def gather(self, value: T) -> list[T]:
        """See `Ranks.gather`."""
        return self._ranks.gather(value)

    def counts(self, rows: Array) -> Array:
        """See `Ranks.counts`."""
        return self._ranks.counts(rows)

    def exchange(self, column: Array, send: Sequence[int], receive: Sequence[int]) -> Array:
        """See `Ranks.exchange`."""
        found = self._ranks.exchange(column, send, receive)
        self._count(found, receive)
        return found

    def concatenate(self, own: Array, rows: Sequence[int]) -> Array:
        """See `Ranks.concatenate`."""
        found = self._ranks.concatenate(own, rows)
        self._count(found, rows)
        return found

    def line(self) -> str:
        """One line with the bytes of each rank; collective."""
        return f"bytes received from other ranks: {', '.join(map(str, self.gather(self.received)))}"

    def _count(self, found: Array, rows: Sequence[int]) -> None:
        if total := sum(rows):
            self.received += found.nbytes * (total - rows[self.rank]) // total


def survivors(lost: Sequence[int], size: int) -> frozenset[int]:
    """The ranks that have lost no part.

    Args:
        lost: The parts, at least one.
        size: Number of ranks.
    """
    owners = Owners(max(lost) + 1, size, tuple(lost))
    return frozenset(rank for rank in range(size) if not owners.made(rank))


def is_kept(members: Members, lost: Sequence[int], ranks: Ranks) -> bool:
    """Whether a folder is this dispatch's own: some rank that sees it has lost nothing."""
    return not survivors(lost, ranks.size).isdisjoint(members.ranks)


def missing(out_dir: Path, lost: Sequence[int], ranks: Ranks) -> tuple[int, ...]:
    """Those of the parts that are not in a folder which a survivor sees, too; collective.

    Args:
        out_dir: The output folder on each rank.
        lost: The parts of the workers that were replaced.
        ranks: The processes.
    """
    members = shared_folder.see(ranks, out_dir)
    owned = Owners(max(lost) + 1, ranks.size, tuple(lost)).made(ranks.rank)
    if is_kept(members, lost, ranks):
        owned = [part for part in owned if not (out_dir / f"part{part}").is_dir()]
    return tuple(sorted(part for found in ranks.gather(owned) for part in found))


def bring_assignment(folder: Path, lost: Sequence[int], ranks: Ranks) -> None:
    """Copy the assignment's files to the ranks that lack them; collective.

    Args:
        folder: The assignment's folder on each rank.
        lost: The parts that are made again.
        ranks: The processes.

    Raises:
        AgreedError: no rank has them.
    """
    members = shared_folder.see(ranks, folder)
    held = ranks.gather(_files(folder) if is_kept(members, lost, ranks) else ())
    source = next((rank for rank, names in enumerate(held) if names), None)
    if source is None:
        raise AgreedError("the assignment is lost with all workers that had it", exitcodes.LOST)
    lacks = ranks.gather(not held[ranks.rank] and ranks.rank == members.first)
    targets = [rank for rank, is_target in enumerate(lacks) if is_target]
    if ranks.rank in targets:
        (folder / META).unlink(missing_ok=True)  # of an earlier job: it must not stand beside our files
    for name in held[source] if targets else ():
        _bring(folder / name, source, targets, ranks)


def require_same_source(out_dir: Path, identity: str, lost: Sequence[int], ranks: Ranks) -> None:
    """Compare the input's files with those that were there when the other parts were made; collective.

    Args:
        out_dir: The output folder on each rank.
        identity: See `source_sums.identity`, as this rank sees the files.
        lost: The parts that are made again.
        ranks: The processes.

    Raises:
        AgreedError: they differ, or no rank has recorded them; then all parts are lost.
    """
    is_survivor = ranks.rank in survivors(lost, ranks.size)
    told = ranks.gather(source_sums.inputs(out_dir) if is_survivor else frozenset())
    recorded = [found for found in told if found]
    if not recorded:
        what = "what the parts were made of is known to no worker that has one"
        raise AgreedError(what, exitcodes.LOST)

    def compare() -> None:
        if any(identity not in found for found in recorded):
            raise _changed("", "a file's name, size or time")

    run_on_all_ranks(ranks, compare)


def bring_sums(out_dir: Path, members: Members, lost: Sequence[int], ranks: Ranks) -> None:
    """Copy `source.sums` to the folders that lack it, as it is; collective.

    Args:
        out_dir: The output folder on each rank; some survivor's has the file.
        members: The ranks that see this rank's.
        lost: The parts that are made again.
        ranks: The processes.
    """
    path = out_dir / source_sums.FILENAME
    has = ranks.gather(bool(is_kept(members, lost, ranks) and source_sums.inputs(out_dir)))
    lacks = ranks.gather(not has[ranks.rank] and ranks.rank == members.first)
    targets = [rank for rank, is_target in enumerate(lacks) if is_target]
    if targets:
        _bring(path, has.index(True), targets, ranks)


def require_same(out_dir: Path, graph_name: str, described: dict[str, Any]) -> None:
    """Compare the JSON of the parts that are made with that of those that are there, if any are.

    Raises:
        AgreedError: they differ; then all parts are lost.
    """
    path = out_dir / write_part_config.filenames(graph_name)[0]
    found = read_object(path)
    differing = [key for key in described if found.get(key) != described[key]] if found else []
    if differing:
        raise _changed(f"{path}: ", differing[0])


def _changed(place: str, what: str) -> AgreedError:
    """That the lost parts cannot be made; another attempt makes all parts of the graph as it is now."""
    text = f"{place}the chunked graph has changed since the parts were made: {what} differs"
    return AgreedError(text, exitcodes.LOST)


def _files(folder: Path) -> tuple[str, ...]:
    """Names of the assignment's files, in the order in which they are written; none without the last one."""
    if not (folder / META).is_file():
        return ()
    return (*sorted(path.name for path in folder.glob("*.txt")), META)


def _bring(path: Path, source: int, targets: list[int], ranks: Ranks) -> None:
    """Copy one file; it appears whole."""
    if ranks.rank == source:
        with path.open("rb") as file:
            # The piece is held once for each target, as the exchange needs it.
            while _send(file.read(max(1, PIECE // len(targets))), source, targets, ranks):
                pass
    elif ranks.rank in targets:
        with replacing_file(path) as draft, draft.open("wb") as file:
            while piece := _send(b"", source, targets, ranks):
                file.write(piece)
    else:
        while _send(b"", source, targets, ranks):
            pass


def _send(piece: bytes, source: int, targets: list[int], ranks: Ranks) -> bytes:
    """Send a piece to the targets; returns it there, a byte elsewhere, nothing at the end; collective."""
    length = ranks.gather(len(piece))[source]
    is_source, is_target = ranks.rank == source, ranks.rank in targets
    send = [length if is_source and rank in targets else 0 for rank in range(ranks.size)]
    receive = [length if is_target and rank == source else 0 for rank in range(ranks.size)]
    column = np.tile(np.frombuffer(piece, np.uint8), len(targets))
    received = ranks.exchange(column, send, receive)
    return received.tobytes() if is_target else b"." * bool(length)
