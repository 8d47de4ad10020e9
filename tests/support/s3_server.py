"""A real S3 server: versitygw over a folder, with TLS by a CA of its own; it can be killed and come back."""

import datetime
import ipaddress
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.cluster import builds
from tests.cluster.places import Places
from tests.support.wait import wait_for

ACCESS_KEY, SECRET_KEY, REGION = "dgl-tests", "a-secret-of-the-tests", "here"
_STARTS = 5
"""Between the choice of a port and its use another process may take it."""


@dataclass
class S3Server:
    """The server; its buckets are the folders below `root`.

    Attributes:
        program: versitygw.
        folder: Of everything that it has: `root`, certificates, log.
        host: Address that it listens on, and that its certificate is for.
        port: Port; kept over restarts.
        is_read_only: Whether it refuses to write, from its next start on.
    """

    program: Path
    folder: Path
    host: str = "127.0.0.1"
    port: int = 0
    is_read_only: bool = False
    _process: "subprocess.Popen[bytes] | None" = field(default=None, init=False)

    @property
    def root(self) -> Path:
        """The folder of all buckets."""
        return self.folder / "root"

    @property
    def ca_file(self) -> Path:
        """The certificate of the CA, in PEM."""
        return self.folder / "ca.pem"

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"https://{self.host}:{self.port}"

    def environ(self) -> dict[str, str]:
        """The variables by which a client reaches it."""
        return variables(self.url, self.ca_file)

    def make_bucket(self, name: str) -> Path:
        """Make a bucket; returns its folder, in which each object is a file."""
        path = self.root / name
        path.mkdir()
        return path

    def start(self) -> None:
        """Start it, and return when it answers; again after `kill` on the same port."""
        for _ in range(_STARTS):
            port = self.port or _free_port()
            self._process = self._started(port)
            if wait_for(f"S3 server on port {port}", lambda port=port: self._state(port)) == "answers":  # type: ignore[misc]
                self.port = port
                return
        raise RuntimeError(f"versitygw did not start:\n{self._log.read_text()}")

    def _started(self, port: int) -> "subprocess.Popen[bytes]":
        argv = [
            *(str(self.program), "--port", f"{self.host}:{port}", "--region", REGION),
            *(["--readonly"] if self.is_read_only else []),
            *("--cert", str(self.folder / "server.pem"), "--key", str(self.folder / "server.key")),
            *("posix", "--sidecar", str(self.folder / "sidecar"), str(self.root)),
        ]
        secrets = {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY}
        with self._log.open("ab") as log:
            return subprocess.Popen(argv, stdout=log, stderr=log, env={**os.environ, **secrets})

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _state(self, port: int) -> str | None:
        if self._process is None or self._process.poll() is not None:
            return "has ended"
        try:
            socket.create_connection((self.host, port), 1.0).close()
        except OSError:
            return None
        return "answers"

    def kill(self) -> None:
        """End it by SIGKILL, in the middle of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def variables(url: str, ca_file: Path) -> dict[str, str]:
    """The variables by which a client reaches a server with this endpoint."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": REGION,
        "AWS_CA_BUNDLE": str(ca_file),
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def s3_server(folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
    """A running server with its files in a folder; killed at the end."""
    places = Places.here()
    builds.ensure(builds.STORAGE, places)
    server = S3Server(builds.program("versitygw", places), folder, host)
    for each in (server.root, folder / "sidecar"):
        each.mkdir()
    make_certificates(folder, host)
    server.start()
    try:
        yield server
    finally:
        server.kill()


def make_certificates(folder: Path, host: str) -> None:
    """`ca.pem`, and `server.pem` with `server.key` for the address."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = _name("CA of the tests"), _name("S3 server of the tests")
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    ca = _certificate(ca_name, ca_name, ca_key, ca_key).add_extension(constraints, critical=True)
    (folder / "ca.pem").write_bytes(_pem(ca.sign(ca_key, hashes.SHA256())))
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))])
    server = _certificate(name, ca_name, key, ca_key).add_extension(alternative, critical=False)
    (folder / "server.pem").write_bytes(_pem(server.sign(ca_key, hashes.SHA256())))
    plain = serialization.NoEncryption()
    text = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "server.key").write_bytes(text)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    found = x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    found = found.not_valid_before(now - day).not_valid_after(now + 30 * day)
    return found.add_extension(identifier, critical=False).add_extension(authority, critical=False)
