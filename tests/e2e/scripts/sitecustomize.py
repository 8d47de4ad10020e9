"""Makes an MPI rank misbehave before it does anything: only where PYTHONPATH and MPI_RANK_DOES say so."""

import os
import sys
import time

if os.environ.get("OMPI_COMM_WORLD_RANK") == "1":
    does = os.environ.get("MPI_RANK_DOES")
    if does == "exit":
        print("sitecustomize: rank 1 leaves with 7", file=sys.stderr, flush=True)
        os._exit(7)
    if does == "hang":
        print("sitecustomize: rank 1 hangs", file=sys.stderr, flush=True)
        time.sleep(600)
