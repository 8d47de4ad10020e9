"""What the API server says of a pod that cannot be reached: whether it is worth another try."""

from collections.abc import Mapping
from typing import Any, Protocol

from dglrun.contract import exitcodes
from dglrun.errors import RunError


class ApiServer(Protocol):
    """What a run asks of the API server (dglrun.kube.api.Api)."""

    def get_pod(self, name: str) -> dict[str, Any]:
        """Read one pod."""

    def require_exec(self, name: str) -> None:
        """Raise Forbidden if this pod's account may not exec into a pod."""

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Set keys of a ConfigMap, leaving its others."""


def living_pod(cluster: ApiServer, name: str) -> dict[str, Any]:
    """Read a pod that must be alive.

    Raises:
        RunError: it is gone or has ended (75), or the API server does not answer (69).
    """
    from dglrun.kube import errors, pods  # noqa: PLC0415 - not needed in a Skip job

    try:
        pod = cluster.get_pod(name)
    except errors.NotFound as error:
        raise RunError(f"pod {name} does not exist", exitcodes.LOST) from error
    except errors.ApiError as error:
        raise RunError(f"pod {name} cannot be read: {error}", exitcodes.UNAVAILABLE) from error
    if pods.phase(pod) in ("Failed", "Succeeded"):
        raise RunError(f"pod {name} has ended: {pods.failure_reason(pod)}", exitcodes.LOST)
    if pods.is_being_deleted(pod):
        raise RunError(f"pod {name} is being deleted", exitcodes.LOST)
    return pod


def why_hopeless(cluster: ApiServer, name: str) -> RunError | None:
    """Why no `kubectl exec` into a pod will ever work: it is gone (75), or this account may not (69).

    None where it may work, and where nobody can tell. Rights that come late are waited for, as
    `dglrun.kube.api.Api` does.
    """
    from dglrun.kube import errors  # noqa: PLC0415 - as above

    try:
        living_pod(cluster, name)
        cluster.require_exec(name)
    except RunError as error:
        return error if error.code == exitcodes.LOST else None
    except errors.Forbidden as error:
        return RunError(str(error), exitcodes.UNAVAILABLE)
    except errors.ApiError:
        return None
    return None
