"""An output folder that several ranks write: shared by some or all of them, or each host's own."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from dglrun.formats import output_folder
from dglrun.mpi.collectives import Ranks, run_on_all_ranks


@dataclass(frozen=True)
class Members:
    """The ranks that see the folder of this rank.

    Attributes:
        ranks: Their numbers, ascending.
        is_new: Whether the folder was not there before.
    """

    ranks: tuple[int, ...]
    is_new: bool

    @property
    def first(self) -> int:
        """The rank that locks the folder and does what is to be done once."""
        return self.ranks[0]


@contextmanager
def locked(ranks: Ranks, folder: Path) -> Iterator[Members]:
    """Hold the folder against other runs, on each host by the first rank that sees it; collective.

    The lock ends with that rank's process, so a killed run holds no folder.

    Raises:
        AgreedError: another run holds the folder of some rank.
    """
    members = see(ranks, folder)
    with ExitStack() as stack:

        def lock() -> None:
            if ranks.rank == members.first:
                stack.enter_context(output_folder.locked(folder, members.is_new))

        run_on_all_ranks(ranks, lock)
        yield members
        ranks.gather("all have left the folder")


@contextmanager
def reserved(ranks: Ranks, folder: Path) -> Iterator[Members]:
    """Hold the folder, seen to be one that can be written; collective.

    Raises:
        AgreedError: see `output_folder.reserved`.
    """
    with locked(ranks, folder) as members:
        is_first = ranks.rank == members.first
        run_on_all_ranks(ranks, lambda: output_folder.refuse_foreign_files(folder) if is_first else None)
        yield members


def see(ranks: Ranks, folder: Path) -> Members:
    """Find out which ranks see one folder: each leaves a token in its own and looks for those of others.

    The tokens of each run have their own name: those of a killed one would join hosts that share nothing, and
    a host that had looked for a name before may be told by its NFS cache that there is none.
    """
    existed = ranks.gather(folder.exists())
    run = ranks.gather(secrets.token_hex(8))[0]
    names = [f"{output_folder.HIDDEN}rank-{run}-{rank}" for rank in range(ranks.size)]
    folder.mkdir(parents=True, exist_ok=True)
    token = folder / names[ranks.rank]
    try:
        token.write_bytes(b"")
        ranks.gather("every token is there")
        seen = tuple(rank for rank, name in enumerate(names) if (folder / name).exists())
        ranks.gather("every rank has looked")
    finally:
        token.unlink(missing_ok=True)
    ranks.gather("no token is left")
    return Members(seen, not any(existed[rank] for rank in seen))
