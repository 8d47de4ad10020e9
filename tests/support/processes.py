"""Whether processes of a test have ended."""

from pathlib import Path


def is_over(pid: int) -> bool:
    """Gone, or dead and waiting for whoever adopted it."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True
    return status.rpartition(")")[2].split()[0] == "Z"
