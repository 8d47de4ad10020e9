"""The one error for input that is not what it must be."""

from dglrun.contract import exitcodes


class DataError(ValueError):
    """The user's data is wrong: the message says what, where (file, line or row), expected and got."""

    exit_code = exitcodes.DATA
