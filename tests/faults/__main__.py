"""`python -m tests.faults`: needs KUBECONFIG; plays the matrix and writes its page into docs/."""

import argparse
import re
import signal
import sys

from tests.faults import matrix, page
from tests.faults.cells import cells


def main() -> int:
    """Read the command line and run; exit code 0 only when every cell was as it must be."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Play the matrix of faults.", allow_abbrev=False
    )
    parser.add_argument("--only", default="", help="cells whose name this regular expression finds; no page")
    parser.add_argument("--show", action="store_true", help="print the cells, without a cluster")
    chosen = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the namespace goes
    wanted = [cell for cell in cells() if re.search(chosen.only, cell.name)]
    if chosen.show:
        print("\n".join(f"{cell.name}: {cell.expected}" for cell in wanted))
        return 0
    found = matrix.all_of(wanted)
    if not chosen.only:
        page.PAGE.write_text(page.page(found))
    bad = [each for each in found if each.problem]
    print(
        f"{len(found)} cells, {len(bad)} not as they must be; longest {max(e.seconds for e in found):.1f} s"
    )
    print("\n".join(f"{each.cell.name}: expected {each.cell.expected}: {each.problem}" for each in bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
