"""How many files a process may have open."""

import resource


def limit() -> int:
    """Raise the soft limit to the hard one, which needs no right, and return it.

    The soft limit is 1024 on most systems for programs that call select(2), which dglrun does not.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):  # beyond what this kernel gives to any process
            return soft
    return hard
