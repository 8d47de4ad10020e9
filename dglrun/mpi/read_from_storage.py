"""What the ranks have read from object storage: whether each of them reads its own share shows in the log."""

from dglrun.formats import store
from dglrun.mpi.collectives import Ranks


def line(ranks: Ranks) -> str:
    """One line with the bytes of each rank; empty where none has read any; collective."""
    counts = ranks.gather(store.bytes_read())
    if not any(counts):
        return ""
    return f"bytes read from object storage by rank: {', '.join(map(str, counts))}"
