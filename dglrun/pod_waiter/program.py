"""watcher-loop from its environment to its exit code."""

import sys
from collections.abc import Mapping
from pathlib import Path

from dglrun.contract import exitcodes, version
from dglrun.kube.access import Access
from dglrun.kube.api import OUTAGE, Api
from dglrun.kube.errors import NotInCluster
from dglrun.pod_waiter.config import WaiterConfig, WaiterConfigError
from dglrun.pod_waiter.follow import Followers
from dglrun.pod_waiter.wait import WaitError, wait

TERMINATION_LOG = Path("/dev/termination-log")
_TERMINATION_BYTES = 4096


def main(environment: Mapping[str, str], termination_log: Path = TERMINATION_LOG) -> int:
    """Wait as the environment says.

    Returns:
        OK, or the exit code of what went wrong; its reason is then on stderr and in the termination log.
    """
    if refused := version.refusal(environment, version.INIT_CONTAINER):
        return _fail(exitcodes.CONTRACT, refused, termination_log)
    try:
        config = WaiterConfig.from_env(environment)
        api = Api(Access.in_cluster(environment, config.namespace), OUTAGE)
        wait(config, Followers(api.follow_pod), _say)
    except (WaiterConfigError, NotInCluster) as error:
        return _fail(exitcodes.USAGE, str(error), termination_log)
    except WaitError as error:
        return _fail(error.code, str(error), termination_log)
    return exitcodes.OK


def _say(line: str) -> None:
    print(f"watcher-loop: {line}", flush=True)


def _fail(code: int, message: str, termination_log: Path) -> int:
    print(f"watcher-loop: {message}", file=sys.stderr, flush=True)
    if termination_log.exists():
        with termination_log.open("wb") as file:
            file.write(message.encode()[:_TERMINATION_BYTES])
    return code
