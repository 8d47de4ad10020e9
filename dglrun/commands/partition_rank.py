"""Entry point of one rank."""

import sys

from dglrun.partitioning.distributed.rank_main import main

sys.exit(main(sys.argv[1:]))
