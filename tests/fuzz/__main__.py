"""`python -m tests.fuzz --number 500`: needs KUBECONFIG; exit code 0 only when everything held."""

import argparse
import random
import signal
import sys

from tests.fuzz import run

BIGGEST_SEED = 10**9


def main() -> int:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description="Fuzz the operator.", allow_abbrev=False
    )
    parser.add_argument("--number", type=int, default=500, help="how many cases (default: 500)")
    parser.add_argument("--seed", type=int, help="repeat the cases of a run (default: a fresh one)")
    parser.add_argument("--only", type=_numbers, help="only these cases, such as 17 or 3,100-199")
    parser.add_argument("--kinds", default="", help="only cases whose kind this regular expression finds")
    parser.add_argument(
        "--patience", type=float, default=1.0, help="factor on all deadlines, for a busy machine"
    )
    parser.add_argument("--show", action="store_true", help="print the cases, without a cluster")
    chosen = parser.parse_args()
    seed = random.SystemRandom().randrange(BIGGEST_SEED) if chosen.seed is None else chosen.seed
    options = run.Options(seed, chosen.only or range(chosen.number), chosen.kinds, chosen.patience)
    print(f"seed {seed}, {len(options.numbers)} cases", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that namespaces go
    return run.show(options) if chosen.show else run.fuzz(options)


def _numbers(text: str) -> list[int]:
    parts = [part.partition("-") for part in text.split(",")]
    return [number for first, _, last in parts for number in range(int(first), int(last or first) + 1)]


if __name__ == "__main__":
    sys.exit(main())
