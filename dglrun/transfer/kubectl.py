"""`kubectl exec` as argv lists; the only way from one pod of a job into another."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kubectl:
    """The kubectl of this pod.

    Attributes:
        path: The binary, as the init container kubectl-download left it.
        namespace: The job's namespace.
    """

    path: str
    namespace: str

    def exec(self, pod: str, container: str, *command: str) -> tuple[str, ...]:
        """The command that runs `command` in a container, with our stdin; no shell reads it anywhere."""
        return (self.path, "exec", "-i", "-n", self.namespace, pod, "-c", container, "--", *command)


CONNECTION_TROUBLE = (
    "(TooManyRequests)",
    "(ServiceUnavailable)",
    "(InternalError)",
    "(Timeout)",
    "TLS handshake timeout",
    "connection refused",
    "connection reset by peer",
    "error dialing backend",
    "etcdserver:",
    "i/o timeout",
    "no route to host",
    "unable to upgrade connection",
    "unexpected EOF",
    "lost connection",
    "net/http",
)
"""Words of kubectl for a stream that broke or could not be opened; another try may work."""


def is_trouble(stderr: str) -> bool:
    """Whether kubectl says that it could not reach the container, rather than that the command failed."""
    return any(words in stderr for words in CONNECTION_TROUBLE)
