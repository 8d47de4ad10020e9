"""Where the distributed partitioners' libraries are found; without mpi4py, so that anyone may ask."""

import ctypes

from dglrun.errors import BackendMissingError

SONAMES = {
    "zoltan": (
        "libtrilinos_zoltan.so.13.2",
        "libtrilinos_zoltan.so.13",
        "libtrilinos_zoltan.so",
        "libzoltan.so",
    ),
    "parmetis": ("libparmetis.so.4.0", "libparmetis.so.4", "libparmetis.so"),
}
INSTALL = {
    "zoltan": "install it (Debian: apt-get install libtrilinos-zoltan-13.2)",
    "parmetis": (
        "its licence allows use by non-profit and US government bodies only: who accepts it builds the job "
        "image with the build argument ACCEPT_PARMETIS_LICENSE=yes (Debian non-free libparmetis4.0); free "
        "alternative: --backend zoltan"
    ),
}


def load(backend: str) -> tuple[str, ctypes.CDLL]:
    """Load a back end's library; returns its file name and handle.

    Raises:
        BackendMissingError: it is not installed; says what to install.
    """
    for name in SONAMES[backend]:
        try:
            return name, ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
    raise BackendMissingError(f"back end {backend}: {SONAMES[backend][0]} was not found; {INSTALL[backend]}")
