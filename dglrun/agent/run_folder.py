"""Where an agent keeps its lock and what it has to remember of a run.

On the container's own file system: the workspace may be a volume that several workers share.
"""

import os
import socket
from pathlib import Path

_PLACES = ("/tmp", "/dev/shm")  # noqa: S108 - a folder with the user's and the pod's name, closed to others
"""Where TMPDIR is not set; a container with a read-only root has the second."""


def find() -> Path:
    """The folder of this pod and user; made if missing, readable by its user alone.

    Raises:
        OSError: no place can be written, or somebody else has made the folder.
    """
    name = f"dglrun-agent-{socket.gethostname()}-{os.getuid()}"
    places = [place for place in (os.environ.get("TMPDIR"), *_PLACES) if place and os.access(place, os.W_OK)]
    if not places:
        raise OSError(
            f"expected a folder that can be written among $TMPDIR, {', '.join(_PLACES)}, found none"
        )
    folder = Path(places[0], name)
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.stat().st_uid != os.getuid():
        raise OSError(f"{folder}: expected a folder of this user, found somebody else's")
    return folder
