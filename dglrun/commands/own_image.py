"""The image that this pod runs, by the kubelet's word: a tag that was pushed anew is another image."""

import sys
import time
from collections.abc import Mapping

from dglrun.contract import env, names
from dglrun.kube import pods
from dglrun.kube.api import OUTAGE, Api
from dglrun.kube.errors import ApiError, NotInCluster

SECONDS = 30.0
"""The kubelet tells the image together with the start of the container, and reports a moment later."""
SILENT_SECONDS = 3.0
"""Of waiting for the API server, of which nothing is said."""
AGAIN_SECONDS = 60.0
"""Between two lines about it."""
_PAUSE = 0.5


def of_partitioner(named: str, environ: Mapping[str, str]) -> str:
    """The digest of the partitioner's image, in its own pod; its name where nobody tells the digest.

    Args:
        named: The image as the template names it.
        environ: The operator's variables.
    """
    try:
        api = Api.in_cluster(environ.get(env.NAMESPACE), _Waiting())
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


class _Waiting:
    """Says what is waited for, and what counts if it does not come."""

    def __init__(self) -> None:
        self._say_at = time.monotonic() + SILENT_SECONDS

    def __call__(self, error: ApiError) -> None:
        """A request has failed and is repeated."""
        now = time.monotonic()
        if now < self._say_at:
            return
        self._say_at = now + AGAIN_SECONDS
        said = "waiting for the API server, which tells the image's digest"
        then = f"without an answer within {OUTAGE.give_up_after:.0f} s the image's name counts"
        print(f"dglrun: {said}; {then} ({error})", file=sys.stderr, flush=True)


def _unknown(named: str, reason: str) -> str:
    said = "the image's digest is not known, so that its name counts, whatever it names later"
    print(f"dglrun: {said} ({reason})", file=sys.stderr, flush=True)
    return named
