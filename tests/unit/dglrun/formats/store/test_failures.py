"""What Arrow's errors mean, and how long calls are repeated."""

import errno

import pytest

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.store import failures, retry

CALL = "When getting information for key 'a' in bucket 'b': AWS Error"


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError(f"{CALL} NETWORK_CONNECTION during HeadObject operation: curlCode: 7"), "AWAY"),
        (OSError(f"{CALL} NETWORK_CONNECTION during HeadObject operation: curlCode: 28"), "AWAY"),
        (OSError(f"{CALL} SLOW_DOWN during PutObject operation: Reduce your request rate"), "AWAY"),
        (OSError(f"{CALL} UNKNOWN (HTTP status 503) HTTP response code 503"), "AWAY"),
        (OSError(f"{CALL} NETWORK_CONNECTION during HeadObject operation: curlCode: 60"), "CERTIFICATE"),
        (OSError(f"{CALL} ACCESS_DENIED during HeadObject operation: No response body."), "CREDENTIALS"),
        (OSError(f"{CALL} SIGNATURE_DOES_NOT_MATCH during ListObjectsV2 operation"), "CREDENTIALS"),
        (OSError(f"{CALL} NO_SUCH_BUCKET during CreateMultipartUpload operation"), "NO_BUCKET"),
        (FileNotFoundError("Path does not exist 'b/a'"), "MISSING"),
        (OSError(f"{CALL} UNKNOWN (HTTP status 507) during UploadPart operation: Unable"), "NO_SPACE"),
        (
            OSError(f"{CALL} UNKNOWN: No user exists with the provided access key ID."),
            "CREDENTIALS",
        ),
        (OSError(errno.ENOSPC, "No space left on device"), "NO_SPACE"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "NO_SPACE"),
        (OSError("something else"), "OTHER"),
    ],
)
def test_an_error_of_arrow_is_told_by_its_text(error: OSError, failure: str) -> None:
    """The failure is known by name, the message is one line with the place first."""
    found = failures.told(error, "s3://b/a")

    assert found.failure is StoreFailure[failure]
    assert str(found).startswith("s3://b/a: ")
    assert "\n" not in str(found)


def test_a_long_text_is_cut_at_its_beginning() -> None:
    """The end says what happened."""
    found = failures.told(OSError("x" * 10_000 + "\nthe\nend"), "s3://b/a")

    assert str(found).endswith("x the end)")
    assert len(str(found)) < 400


def test_a_failure_that_may_pass_is_tried_again() -> None:
    """A call that fails twice for want of the server gives its third answer."""
    answers = iter([StoreError("away", StoreFailure.AWAY)] * 2)

    def call() -> str:
        if error := next(answers, None):
            raise error
        return "here"

    assert retry.retried(call, 60.0) == "here"


@pytest.mark.parametrize(
    ("failure", "deadline"), [(StoreFailure.CREDENTIALS, 60.0), (StoreFailure.AWAY, 0.0)]
)
def test_other_failures_are_raised_at_once(failure: StoreFailure, deadline: float) -> None:
    """What does not pass, and what has not passed at the deadline, is the caller's."""
    calls = []

    def call() -> None:
        calls.append(1)
        raise StoreError("no", failure)

    with pytest.raises(StoreError, match="no"):
        retry.retried(call, deadline)
    assert len(calls) == 1
