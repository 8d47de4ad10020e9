"""TLS of an agent: it proves its pod's name, and lets in only whom the run's own authority has signed.

The launcher makes the keys for one run (dglrun.workflow.run_keys) and hands them over when it starts the
agent. Nobody else has a certificate of that authority, and those of other workers are no clients'.
"""

import json
import os
import ssl
from dataclasses import asdict, dataclass


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


def agent_context(keys: Keys) -> ssl.SSLContext:
    """The agent's side: the launcher must show a client certificate of the run's authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    # One connection in a run: a ticket to resume it by would only be a second secret.
    context.num_tickets = 0
    return _with_keys(context, keys)


def launcher_context(keys: Keys) -> ssl.SSLContext:
    """The launcher's side: the agent must show a server certificate with its pod's name."""
    return _with_keys(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), keys)


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
