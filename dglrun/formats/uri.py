"""The text of a URI, which people and logs see: whether credentials may be in it. Standard library only."""

import re

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_AUTHORITY = re.compile(r"[^/:]*|(\[[^]/]*\]|[^/:]+):[0-9]+")
"""A host or a bucket, with a port or without."""

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def is_uri(text: str) -> bool:
    """Whether a text names a place by a URI and not by a path."""
    return _URI.match(text) is not None


def may_have_secrets(text: str) -> bool:
    """Whether a URI has what may be credentials or options.

    An '@' counts wherever it is: a secret that has a '/' in it ends what a parser takes for the host, and the
    '@' behind it is then in the path.
    """
    found = _URI.match(text)
    if found is None:
        return False
    authority = text[found.end() :].partition("/")[0]
    is_bucket = text[: found.end()].lower() == "s3://"
    has_user = ":" in authority if is_bucket else not _AUTHORITY.fullmatch(authority)
    return has_user or any(sign in text for sign in "@?#")


def is_bucket(text: str) -> bool:
    """Whether a bucket of S3 may have this name."""
    return _BUCKET.fullmatch(text) is not None


def lacks_bucket(text: str) -> bool:
    """Whether it is a URI of S3 without a name that a bucket may have."""
    return text.lower().startswith("s3://") and not is_bucket(text[len("s3://") :].partition("/")[0])


def shown(text: str) -> str:
    """A text as a message may show it: of a URI that may have secrets its scheme alone.

    What has a colon and an '@' may be meant as a URI, too, such as s3:/key:secret@bucket.
    """
    if may_have_secrets(text):
        return f"{text.partition(':')[0]}://..."
    return "..." if ":" in text.partition("@")[0] and "@" in text else text
