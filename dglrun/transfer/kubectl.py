"""`kubectl exec` as argv lists, and what the end of one says."""

import re
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


_OWN_CODE = 1
"""What kubectl itself ends with; a command in a container may, too."""
_RAN = re.compile(r"^command terminated with exit code \d+$", re.MULTILINE)
_CANNOT_RUN = re.compile(
    r"executable file .{0,500}not found"
    r'|exec: "[^"\n]{0,500}": (stat [^\n]{0,500}: )?(no such file or directory|permission denied)'
)
"""What runc and crun say of a command that is not in the image."""


def has_reached(code: int, stderr: str) -> bool:
    """Whether a `kubectl exec` that failed had reached the container: its command ran, or cannot run there.

    Everything else may pass, whatever kubectl, API server, kubelet and what lies between them call it: then
    the exec is tried again, until its deadline or until `dglrun.workflow.pod_access.why_hopeless` has a
    reason. Words decide about a shorter wait only: what is not recognised here is tried again.

    Args:
        code: Of kubectl; negative where a signal ended it.
        stderr: What kubectl and the command have written there.
    """
    return code > _OWN_CODE or bool(_RAN.search(stderr) or _CANNOT_RUN.search(stderr))
