"""Where the API server is and who we are: what a kubelet gives every container."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dglrun.contract import env as variables
from dglrun.kube.errors import NotInCluster

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mount of the service account: token (rotated by the kubelet), ca.crt and namespace."""


@dataclass(frozen=True)
class Access:
    """One API server as one service account sees it.

    Attributes:
        host: IP or name of the API server; IPv6 without brackets.
        port: Its port.
        namespace: The namespace of the job.
        token_file: Bearer token, read anew for each request as the kubelet rotates it; None: anonymous.
        ca_file: CA of the server's certificate; None: plain HTTP, as `kubectl proxy` speaks.
    """

    host: str
    port: int
    namespace: str
    token_file: Path | None = None
    ca_file: Path | None = None

    @classmethod
    def in_cluster(
        cls, env: Mapping[str, str], namespace: str | None = None, account: Path | None = None
    ) -> "Access":
        """Read the kubelet's environment variables and the mounted service account.

        Args:
            env: The process's environment.
            namespace: Namespace of the job; default is the service account's own.
            account: Folder of the service account; default the one that DGL_OPERATOR_SERVICE_ACCOUNT names,
                which has no CA where the server speaks plain HTTP (`dglrun local`), else ACCOUNT.

        Raises:
            NotInCluster: a variable or file is missing; names it.
        """
        given = env.get(variables.SERVICE_ACCOUNT)
        account = account or (Path(given) if given else ACCOUNT)
        is_plain = bool(given) and not (account / "ca.crt").exists()
        return cls(
            host=_variable(env, "KUBERNETES_SERVICE_HOST"),
            port=_port(_variable(env, "KUBERNETES_SERVICE_PORT")),
            namespace=namespace or _content(account / "namespace"),
            token_file=_present(account / "token"),
            ca_file=None if is_plain else _present(account / "ca.crt"),
        )

    def token(self) -> str | None:
        """The token as it is now.

        Raises:
            NotInCluster: the file is gone.
        """
        return None if self.token_file is None else _content(self.token_file)

    def tls(self) -> ssl.SSLContext | None:
        """A context that trusts only the cluster's CA; None for plain HTTP.

        Raises:
            NotInCluster: the CA file holds no certificate.
        """
        if self.ca_file is None:
            return None
        try:
            return ssl.create_default_context(cafile=str(self.ca_file))
        except (OSError, ssl.SSLError) as error:
            raise NotInCluster(f"{self.ca_file}: expected the cluster's CA certificate: {error}") from error


def _variable(env: Mapping[str, str], name: str) -> str:
    value = env.get(name, "")
    if not value:
        raise NotInCluster(f"environment variable {name} is not set: is this a pod of the cluster?")
    return value


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise NotInCluster(f"KUBERNETES_SERVICE_PORT: expected a port number, got {text!r}")
    return int(text)


def _present(path: Path) -> Path:
    if not path.is_file():
        raise NotInCluster(
            f"{path} is missing: the pod needs a service account (automountServiceAccountToken)"
        )
    return path


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotInCluster(f"{path} cannot be read: {error.strerror}") from error
