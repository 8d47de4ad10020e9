"""The expected errors of dglrun: each has a message for the user and an exit code."""

from enum import Enum

from dglrun.contract import exitcodes


class RunError(Exception):
    """The run has failed.

    Attributes:
        code: Exit code of dglrun (dglrun.contract.exitcodes, or a process's own).
        words: The last log lines of what failed; may be many.
    """

    def __init__(self, message: str, code: int, words: str = "") -> None:
        super().__init__(message)
        self.code, self.words = code, words


class Terminated(BaseException):
    """SIGTERM or SIGINT came; not an Exception, so that no handler of failures catches it.

    Attributes:
        number: The signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class DataError(ValueError):
    """The user's data is wrong: the message says what, where (file, line or row), expected and got."""

    exit_code = exitcodes.DATA


class UnwritableError(DataError):
    """The output cannot be written: the message names it and says why."""

    exit_code = exitcodes.IO


class StoreFailure(Enum):
    """What kept a file from being read or written where users keep their files."""

    AWAY = "away"
    CREDENTIALS = "credentials"
    CERTIFICATE = "certificate"
    NO_BUCKET = "no bucket"
    MISSING = "missing"
    NO_SPACE = "no space"
    CHANGED = "changed"
    OTHER = "other"


class StoreError(DataError, RunError):
    """A file or folder on a volume or on object storage could not be read or written; one line.

    Of both kinds of error: a command ends by its `exit_code`, the workflow by its `code`.

    Attributes:
        failure: What happened.
    """

    def __init__(self, message: str, failure: StoreFailure = StoreFailure.OTHER) -> None:
        self.failure = failure
        self.exit_code = exitcodes.FULL if failure is StoreFailure.NO_SPACE else exitcodes.STORE
        RunError.__init__(self, message, self.exit_code)

    @property
    def is_transient(self) -> bool:
        """Whether the same call may succeed in a while."""
        return self.failure is StoreFailure.AWAY


class BackendMissingError(RuntimeError):
    """The back end that was asked for is not installed; the message says what to install."""

    exit_code = exitcodes.UNAVAILABLE


class BackendFailedError(RuntimeError):
    """The back end ran and gave no partition.

    Attributes:
        exit_code: Of dglrun; 128 + n where signal n ended the back end.
    """

    exit_code: int = exitcodes.SOFTWARE
