"""Make the keys and certificates of a cluster with openssl.

Elliptic curves, since they are made in no time; the service accounts' pair is RSA as everywhere.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import commands
from tests.cluster.configs import API_SERVICE_IP, DOMAIN, NODE_NAME

DAYS = "3650"


@dataclass(frozen=True)
class Certificate:
    """A certificate to be signed; with `names` it is a server's, else a client's."""

    file: str
    subject: str
    names: tuple[str, ...] = ()

    def extensions(self) -> str:
        """Return the section that openssl reads."""
        usage = "serverAuth" if self.names else "clientAuth"
        lines = [f"extendedKeyUsage={usage}", "keyUsage=critical,digitalSignature"]
        if self.names:
            lines.append(f"subjectAltName={','.join(self.names)}")
        return "\n".join(["basicConstraints=critical,CA:FALSE", *lines]) + "\n"


def wanted(ip: str) -> tuple[Certificate, ...]:
    """Return the certificates of a cluster whose node has this address."""
    services = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    names = ("localhost", *services, f"kubernetes.default.svc.{DOMAIN}")
    addresses = ("127.0.0.1", ip, API_SERVICE_IP)
    node = f"/O=system:nodes/CN=system:node:{NODE_NAME}"
    return (
        Certificate(
            "apiserver",
            "/CN=kube-apiserver",
            (*(f"IP:{address}" for address in addresses), *(f"DNS:{name}" for name in names)),
        ),
        Certificate("admin", "/O=system:masters/CN=admin"),
        Certificate("controller-manager", "/CN=system:kube-controller-manager"),
        Certificate("scheduler", "/CN=system:kube-scheduler"),
        Certificate("proxy", "/CN=system:kube-proxy"),
        Certificate("coredns", "/O=system:masters/CN=coredns"),
        Certificate("kubelet", node),
        Certificate("kubelet-server", node, (f"IP:{ip}", "IP:127.0.0.1", f"DNS:{NODE_NAME}")),
        Certificate("apiserver-kubelet", "/O=system:masters/CN=kube-apiserver-kubelet-client"),
    )


def make(pki: Path, ip: str) -> None:
    """Make everything anew; the folder is complete or absent."""
    aside = pki.with_name(".pki-making")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True, mode=0o700)
    _authority(aside)
    for certificate in wanted(ip):
        _sign(aside, certificate)
    commands.run("openssl", "genrsa", "-out", aside / "sa.key", "2048")
    commands.run("openssl", "rsa", "-in", aside / "sa.key", "-pubout", "-out", aside / "sa.pub")
    shutil.rmtree(pki, ignore_errors=True)
    aside.rename(pki)


def _key(path: Path) -> None:
    commands.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)


def _authority(folder: Path) -> None:
    _key(folder / "ca.key")
    commands.run(
        *("openssl", "req", "-x509", "-new", "-key", folder / "ca.key", "-out", folder / "ca.crt"),
        *("-days", DAYS, "-subj", "/CN=dgl-operator-test"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
    )


def _sign(folder: Path, certificate: Certificate) -> None:
    key, request = folder / f"{certificate.file}.key", folder / f"{certificate.file}.csr"
    extensions = folder / f"{certificate.file}.ext"
    _key(key)
    extensions.write_text(certificate.extensions())
    commands.run("openssl", "req", "-new", "-key", key, "-out", request, "-subj", certificate.subject)
    commands.run(
        *("openssl", "x509", "-req", "-in", request, "-out", folder / f"{certificate.file}.crt"),
        *("-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial"),
        *("-days", DAYS, "-extfile", extensions),
    )
    request.unlink()
    extensions.unlink()
