"""What Linux's prctl(2) does for processes that must not outlive others."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

# Loaded here: between fork and exec, where `end_with_parent` is called, the loader's lock may be held.
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent(number: signal.Signals) -> None:
    """Let the kernel send this process a signal when the thread that has started it ends (PR_SET_PDEATHSIG).

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_PR_SET_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Make this process the parent of every orphan below it (PR_SET_CHILD_SUBREAPER).

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def set_name(name: str) -> None:
    """Let ps and /proc show this name for the process, of which the kernel keeps 15 bytes (PR_SET_NAME).

    Raises:
        OSError: the kernel refuses.
    """
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()))


def _prctl(option: int, value: int | ctypes.c_char_p) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value!r}) failed")
