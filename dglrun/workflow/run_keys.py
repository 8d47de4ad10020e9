"""Keys for one run: an authority that signs the launcher's certificate and one for each worker's agent.

Each transfer of files has another one. Keys live in memory: whoever makes them hands the others theirs, by
the stream or the connection that starts them, and forgets the authority's private key.
"""

import datetime
from collections.abc import Callable, Iterable

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from dglrun.agent.tls import Keys

LAUNCHER = "launcher"
_SKEW = datetime.timedelta(days=1)
"""By which the clocks of two nodes may differ."""
_LIFE = datetime.timedelta(days=3650)
"""A run has no limit; a certificate that ended in it would end it at its next broken connection."""


def make(pods: Iterable[str]) -> tuple[Keys, dict[str, Keys]]:
    """Make the keys of a run.

    Args:
        pods: Names of the worker pods; each agent proves its own.

    Returns:
        The launcher's keys; those of the agents, by pod.
    """
    sign = _authority()
    agents = {pod: sign(pod, ExtendedKeyUsageOID.SERVER_AUTH) for pod in pods}
    return sign(LAUNCHER, ExtendedKeyUsageOID.CLIENT_AUTH), agents


def for_transfer(owner: str, receivers: Iterable[str]) -> tuple[Keys, dict[str, Keys]]:
    """Make the keys of one transfer of files, of no use for anything else.

    Args:
        owner: The pod that has the files and serves them.
        receivers: The pods that may read what is meant for them.

    Returns:
        The owner's keys; those of the receivers, by pod.
    """
    sign = _authority()
    clients = {pod: sign(pod, ExtendedKeyUsageOID.CLIENT_AUTH) for pod in receivers}
    return sign(owner, ExtendedKeyUsageOID.SERVER_AUTH), clients


def _authority() -> Callable[[str, x509.ObjectIdentifier], Keys]:
    """A new authority; makes keys for a name and a usage."""
    signer = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("dglrun", signer, signer, None)

    def keys(name: str, usage: x509.ObjectIdentifier) -> Keys:
        own = ec.generate_private_key(ec.SECP256R1())
        return Keys(_pem(authority), _pem(_certificate(name, own, signer, usage)), _private_pem(own))

    return keys


def _certificate(
    name: str,
    own: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    usage: x509.ObjectIdentifier | None,
) -> x509.Certificate:
    """A certificate; without usage the authority's own.

    The usage keeps a worker's key from passing as the launcher's: OpenSSL asks a client for clientAuth.
    """
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(_name("dglrun" if usage is None else "dglrun peer"))
        .issuer_name(_name("dglrun"))
        .public_key(own.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + _LIFE)
        .add_extension(x509.BasicConstraints(ca=usage is None, path_length=None), critical=True)
    )
    if usage is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=True)
    return builder.sign(signer, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
