"""TLS between the pods of a run: a server proves its pod's name, and lets in whom its authority has signed.

The keys are made for one run (dglrun.workflow.run_keys): those of agents by the launcher, which is the client
of them all; those of a transfer of files by the pod that has the files. Each has an authority of its own, and
a server's certificate is no client's.
"""

import json
import os
import ssl
from dataclasses import asdict, dataclass
from typing import Any


class KeysError(ValueError):
    """The text holds no keys of a run."""


@dataclass(frozen=True)
class Keys:
    """What one end proves itself with and knows the other by, in PEM.

    Attributes:
        authority: Certificate of the run's own authority, which has signed both ends'.
        certificate: This end's certificate.
        key: Its private key.
    """

    authority: str
    certificate: str
    key: str

    def __repr__(self) -> str:
        return "Keys(...)"  # a private key has no place in a traceback or a log


def encode(keys: Keys) -> str:
    """Write keys as one line of JSON."""
    return json.dumps(asdict(keys))


def decode(text: str) -> Keys:
    """Read what `encode` wrote.

    Raises:
        KeysError: it is something else.
    """
    try:
        return Keys(**json.loads(text))
    except (ValueError, TypeError):
        raise KeysError("expected the run's keys as one JSON line") from None


def server_context(keys: Keys) -> ssl.SSLContext:
    """A server's side: the other end must show a client certificate of the same authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # One connection in a run: a ticket to resume it by would only be a second secret.
    context.num_tickets = 0
    return _with_keys(context, keys)


def client_context(keys: Keys) -> ssl.SSLContext:
    """A client's side: the other end must show a server certificate with its pod's name."""
    return _with_keys(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), keys)


def peer_name(connection: ssl.SSLSocket) -> str:
    """The name in the certificate that the other end has shown."""
    certificate: dict[str, Any] = connection.getpeercert() or {}
    return next((value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"), "")


def _with_keys(context: ssl.SSLContext, keys: Keys) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=keys.authority)
    # OpenSSL reads keys from files only; this one has no name in any file system.
    file = os.memfd_create("keys")
    try:
        os.write(file, f"{keys.certificate}\n{keys.key}".encode())
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
    return context
