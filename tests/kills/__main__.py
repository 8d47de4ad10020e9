"""`python -m tests.kills --number 1000`: needs KUBECONFIG; exit code 0 only when everything held."""

import argparse
import random
import signal
import sys
from pathlib import Path

from tests.kills import run
from tests.support import measured

BIGGEST_SEED = 10**9


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.kills", description="Kill the operator again and again.", allow_abbrev=False
    )
    parser.add_argument("--number", type=int, default=100, help="how many kills (default: 100)")
    parser.add_argument("--seed", type=int, help="draw as in an earlier run (default: a fresh one)")
    parser.add_argument("--write", action="store_true", help="write the table of docs/ when all held")
    parser.add_argument("--log", type=Path, help="folder in which the operator's log stays")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(BIGGEST_SEED) if chosen.seed is None else chosen.seed
    print(f"seed {seed}, {chosen.number} kills", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the namespace goes
    found = run.kills(chosen.number, seed, log=chosen.log)
    if chosen.write and not found.findings:
        measured.write("kills", found.rows(), f"Seed {seed}.")
    return 1 if found.findings else 0


if __name__ == "__main__":
    sys.exit(main())
