"""The job's partition script: from the tables to the chunked graph, which dglrun then partitions.

It runs in the partitioner pod, where the shop's volume is mounted. Without tables it makes some, so that the
example runs on an empty volume.
"""

import subprocess
import sys
from pathlib import Path

import make_tables

SHOP = Path("/shop")
CONFIG = Path(__file__).with_name("tables.yaml")


def main() -> int:
    """Make the chunked graph; returns dglrun's exit code."""
    if not (SHOP / "users.csv").exists():
        make_tables.make(SHOP)
    words = (sys.executable, "-m", "dglrun", "chunk", "--config", str(CONFIG), "--out-dir", "chunks")
    return subprocess.call(words, cwd=SHOP)


if __name__ == "__main__":
    sys.exit(main())
