"""The connection to S3 by the environment that the AWS tools read, of which pyarrow reads a part only.

pyarrow leaves AWS_ENDPOINT_URL, AWS_CA_BUNDLE and the style of addresses to its caller. Credentials are found
by the AWS SDK within it: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a web identity, a file, the machine's.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode, urlsplit

import pyarrow as pa

from dglrun.errors import DataError

ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
CA_BUNDLE = "AWS_CA_BUNDLE"
STYLE = "AWS_S3_ADDRESSING_STYLE"
DEFAULT_REGION = "us-east-1"
ATTEMPTS = 4
"""Of one request, with pauses of the SDK below a second; `retried` goes on from there."""
CONNECT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
"""Without a byte from the server: to put the parts of a large object together takes some stores long."""
_TAKES_CA = 21
"""The first pyarrow whose S3FileSystem has tls_ca_file_path; 20 has it in URIs alone."""


@dataclass(frozen=True)
class Settings:
    """Where S3 is; nothing secret.

    Attributes:
        endpoint: Host and port; empty: AWS's own of the region.
        scheme: `https` or `http`.
        region: Region, part of each signature.
        ca_file: File of certificates to trust; empty: those of this system.
        is_virtual: Whether the bucket is a part of the host's name instead of the path.
    """

    endpoint: str = ""
    scheme: str = "https"
    region: str = DEFAULT_REGION
    ca_file: str = ""
    is_virtual: bool = True

    @staticmethod
    def of(environ: Mapping[str, str]) -> "Settings":
        """Read the environment.

        Raises:
            DataError: a variable is not what it must be; names it.
        """
        region = _first(environ, REGIONS)[1] or DEFAULT_REGION
        scheme, endpoint = _endpoint(*_first(environ, ENDPOINTS))
        style = environ.get(STYLE, "") or ("path" if endpoint else "virtual")
        if style not in ("path", "virtual", "auto"):
            raise DataError(f"{STYLE}: expected path or virtual, got {style!r}")
        ca_file = environ.get(CA_BUNDLE, "")
        if ca_file and not os.access(ca_file, os.R_OK):
            raise DataError(f"{CA_BUNDLE}: expected a file that can be read, got {ca_file!r}")
        if style == "path" and not endpoint:  # pyarrow puts the bucket into the path of a named host only
            endpoint = f"s3.{region}.amazonaws.com"
        return Settings(endpoint, scheme, region, ca_file, style != "path")


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, str]:
    """The first variable that is set, and its value."""
    return next(((name, environ[name]) for name in names if environ.get(name)), (names[0], ""))


def _endpoint(name: str, url: str) -> tuple[str, str]:
    """Scheme, and host with port."""
    if not url:
        return "https", ""
    try:
        found = urlsplit(url)
    except ValueError:
        raise DataError(f"{name}: expected https://HOST or https://HOST:PORT") from None
    extra = found.username or found.path.strip("/") or found.query or found.fragment
    if found.scheme not in ("http", "https") or not found.hostname or extra:
        raise DataError(f"{name}: expected https://HOST or https://HOST:PORT, got {_without_user(url)!r}")
    return found.scheme, found.netloc


def _without_user(url: str) -> str:
    return url if "@" not in url else "..." + url[url.rindex("@") :]


def file_system(settings: Settings) -> Any:
    """Arrow's file system of S3; one for each process, as its threads do not go with a fork."""
    return _file_system(settings, os.getpid())


@lru_cache(maxsize=16)
def _file_system(settings: Settings, _process: int) -> Any:
    from pyarrow import fs  # noqa: PLC0415 - 8 ms of each start, and for object storage only

    if settings.ca_file and int(pa.__version__.split(".", 1)[0]) < _TAKES_CA:
        return _by_uri(settings)
    trust = {"tls_ca_file_path": settings.ca_file} if settings.ca_file else {}
    return fs.S3FileSystem(
        region=settings.region,
        scheme=settings.scheme,
        endpoint_override=settings.endpoint or None,
        force_virtual_addressing=settings.is_virtual and bool(settings.endpoint),
        connect_timeout=CONNECT_SECONDS,
        request_timeout=SILENCE_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
        **trust,
    )


def _by_uri(settings: Settings) -> Any:
    """The same by pyarrow 20, whose URIs take a CA, but no style of addresses and no deadlines."""
    from pyarrow import fs  # noqa: PLC0415 - as above

    if settings.is_virtual and settings.endpoint:
        raise DataError(
            f"{STYLE}: virtual together with {CA_BUNDLE} needs pyarrow {_TAKES_CA}, got {pa.__version__}"
        )
    query = {"region": settings.region, "scheme": settings.scheme, "tls_ca_file_path": settings.ca_file}
    if settings.endpoint:
        query["endpoint_override"] = settings.endpoint
    try:
        return fs.FileSystem.from_uri(f"s3://bucket?{urlencode(query)}")[0]
    except pa.ArrowInvalid as error:
        raise DataError(f"{CA_BUNDLE}: pyarrow {pa.__version__} cannot take it: {error}") from None
