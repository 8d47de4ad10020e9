"""The command line: `python -m tests.cluster up`."""

import sys

from tests.cluster import cli

sys.exit(cli.main(sys.argv[1:]))
