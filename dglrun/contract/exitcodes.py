"""Exit codes of dglrun and watcher-loop; the operator shows them in the Failed condition.

A process of the user that fails gives its own code (128 + n when signal n ended it).
The others follow sysexits(3), so that a code above 63 and below 79 is always ours.
"""

OK = 0
USAGE = 2
"""Unknown flag, missing or contradicting configuration."""
DATA = 65
"""The input data or a partition is not what it must be."""
UNAVAILABLE = 69
"""A pod or the API server could not be reached within the deadline."""
SOFTWARE = 70
"""A bug in dglrun itself."""
FULL = 71
"""A disk or its quota is full: a worker's output, or a partition, does not fit on it."""
CANTCREAT = 73
"""The output folder or file is being written by another run, or holds what dglrun has not written."""
IO = 74
"""A copy did not arrive whole."""
LOST = 75
"""A pod of the job vanished or failed."""
CONTRACT = 76
"""The operator is of a release with which this image does not work."""
STORE = 77
"""Object storage, or a folder named as a URI, refuses the credentials, lacks a bucket or file, or is away."""
HUNG = 79
"""The training hangs: no process of it was active for the time of --hang-timeout."""
TIMEOUT = 124
"""A deadline passed."""
INTERRUPTED = 130
"""Ended by Ctrl-C (SIGINT)."""
SIGTERM = 143
"""Ended on request."""
