"""Entry point of one rank."""

import sys

from dglrun.mpi.program import main

sys.exit(main(sys.argv[1:]))
