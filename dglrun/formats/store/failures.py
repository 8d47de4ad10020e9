"""What Arrow's errors mean: pyarrow has one class for nearly all of them, so that their text must tell."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from dglrun.errors import StoreError, StoreFailure

_TOLD = (
    (StoreFailure.NO_BUCKET, r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist"),
    (
        StoreFailure.CREDENTIALS,
        r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH"
        r"|SignatureDoesNotMatch|EXPIRED_TOKEN|ExpiredToken|INVALID_CLIENT_TOKEN_ID|InvalidToken"
        r"|UNRECOGNIZED_CLIENT|MISSING_AUTHENTICATION_TOKEN|INVALID_SIGNATURE|access key ID"
        r"|HTTP response code 40[13]\b",
    ),
    (StoreFailure.CERTIFICATE, r"curlCode: (51|58|59|60|77|83)\b"),
    (
        StoreFailure.NO_SPACE,
        r"QuotaExceeded|QUOTA_EXCEEDED|StorageFull|InsufficientStorage|HTTP response code 507"
        r"|[Nn]o space left|[Dd]isk quota exceeded",
    ),
    (
        StoreFailure.AWAY,
        r"NETWORK_CONNECTION|curlCode|REQUEST_TIMEOUT|RequestTimeout|SLOW_DOWN|SlowDown|THROTTLING"
        r"|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|HTTP response code 5\d\d|[Tt]imed? ?out|[Cc]onnection",
    ),
    (StoreFailure.MISSING, r"NO_SUCH_KEY|NoSuchKey|RESOURCE_NOT_FOUND|HTTP response code 404"),
)
_SAID = {
    StoreFailure.NO_BUCKET: "expected a bucket, which must exist, found none",
    StoreFailure.CREDENTIALS: "the object storage refuses the credentials",
    StoreFailure.CERTIFICATE: "the object storage's certificate is not trusted; AWS_CA_BUNDLE names a CA",
    StoreFailure.NO_SPACE: "no space left",
    StoreFailure.AWAY: "the object storage does not answer",
    StoreFailure.MISSING: "expected an object, found none",
    StoreFailure.CHANGED: "is not what it was",
    StoreFailure.OTHER: "cannot be read or written",
}
_DETAIL = 240


@contextmanager
def about(where: str) -> Iterator[None]:
    """Within it an error of Arrow or of the file system becomes a StoreError that names the place.

    Raises:
        StoreError: in their stead.
    """
    try:
        yield
    except StoreError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise told(error, where) from None


def told(error: Exception, where: str) -> StoreError:
    """The StoreError that an error of Arrow, or of the file system, means."""
    failure = _failure(error)
    if failure is StoreFailure.MISSING:
        return StoreError(f"{where}: {_SAID[failure]}", failure)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    detail = " ".join(reason.split())
    # The end of Arrow's text says what happened, its beginning which call it was.
    shown = detail if len(detail) <= _DETAIL else f"...{detail[-_DETAIL:]}"
    return StoreError(f"{where}: {_SAID[failure]} ({shown})", failure)


def _failure(error: Exception) -> StoreFailure:
    if isinstance(error, FileNotFoundError):
        return StoreFailure.MISSING
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return StoreFailure.NO_SPACE
    text = str(error)
    return next((kind for kind, pattern in _TOLD if re.search(pattern, text)), StoreFailure.OTHER)
