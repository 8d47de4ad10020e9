"""Holds a container until the API server is away, then runs the rest of the command line, if there is one.

The partitioner has the launcher's command and the workers' init containers: only its script holds it.
"""

import os
import socket
import sys
import time
from pathlib import Path

SERVER = (os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]))
WAS_AWAY = Path("/tmp/api-server-was-away")
HELD = "held until the API server is away"


def is_away() -> bool:
    """Whether nobody answers at the API server's address."""
    try:
        socket.create_connection(SERVER, 2).close()
    except OSError:
        return True
    return False


def hold() -> None:
    """Wait until it is away; in this container only once."""
    if WAS_AWAY.exists():
        return
    print(HELD, flush=True)
    while not is_away():
        time.sleep(0.2)
    print("the API server is away: going on", flush=True)
    WAS_AWAY.touch()


if __name__ == "__main__":
    if not (sys.argv[1:] and socket.gethostname().endswith("-partitioner")):
        hold()
    if sys.argv[1:]:
        os.execvp(sys.argv[1], sys.argv[1:])  # noqa: S606 - the container's own command
