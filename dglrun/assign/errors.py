"""Failures of a partitioner that are not the data's fault."""

from dglrun.contract import exitcodes


class BackendMissingError(RuntimeError):
    """The back end that was asked for is not installed; the message says what to install."""

    exit_code = exitcodes.UNAVAILABLE


class BackendFailedError(RuntimeError):
    """The back end ran and gave no partition; the message has its own code."""

    exit_code = exitcodes.SOFTWARE
