"""The image that this pod runs, by the kubelet's word: a tag that was pushed anew is another image."""

import sys
import time
from collections.abc import Mapping

from dglrun.contract import env, names
from dglrun.kube import pods
from dglrun.kube.api import Api
from dglrun.kube.errors import ApiError, NotInCluster

SECONDS = 30.0
"""The kubelet tells the image together with the start of the container, and reports a moment later."""
_PAUSE = 0.5


def of_partitioner(named: str, environ: Mapping[str, str]) -> str:
    """The digest of the partitioner's image, in its own pod; its name where nobody tells the digest.

    Args:
        named: The image as the template names it.
        environ: The operator's variables.
    """
    try:
        api = Api.in_cluster(environ.get(env.NAMESPACE))
        found = digest(api, names.partitioner(environ.get(env.JOB_NAME) or "job"))
    except (ApiError, NotInCluster) as error:
        return _unknown(named, str(error))
    return found or _unknown(named, "the kubelet does not tell it")


def digest(api: Api, pod: str, seconds: float = SECONDS) -> str | None:
    """What the kubelet says of a pod's main container; None: it has said nothing in time.

    Raises:
        ApiError: the pod cannot be read.
    """
    deadline = time.monotonic() + seconds
    while (found := pods.image_digest(api.get_pod(pod))) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return found


def _unknown(named: str, reason: str) -> str:
    said = "the image's digest is not known, so that its name counts, whatever it names later"
    print(f"dglrun: {said} ({reason})", file=sys.stderr, flush=True)
    return named
