"""An operator that lives many times: `python -m tests.kills.lives KILLS SEED SHARE -- FLAGS OF THE OPERATOR`.

Each life is a child process with the operator's real entry point, which ends itself by SIGKILL after an
answer of the API server to a write: the write is done, and the operator has not noted it. The children are
forked off a process that has imported everything, so that a life begins within a second. After the last
kill one more life goes on to SIGTERM. A line on stdout for each death says which write it was.
"""

import os
import random
import signal
import sys
from types import FrameType

import urllib3

from dgl_operator import __main__ as entry
from dgl_operator.runtime.kube_cluster import KubeCluster, Request

WRITES = ("POST", "PUT", "PATCH", "DELETE")


def main(argv: list[str]) -> int:
    """Live and die; returns 0 when every death was a kill of our own and the last life ended well."""
    kills, seed, share = int(argv[0]), int(argv[1]), float(argv[2])
    flags = argv[argv.index("--") + 1 :]
    last = _Last()
    for number in range(kills + 1):
        child = os.fork()
        if child == 0:
            _live(flags, random.Random(f"{seed}-{number}"), share if number < kills else 0.0)  # noqa: S311
        last.child = child
        if last.is_told:  # told between the fork and now
            os.kill(child, signal.SIGTERM)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if last.is_told:
            return 0 if code in (0, -signal.SIGKILL) else 1
        if code != -signal.SIGKILL:
            print(f"life {number} ended with {code}", file=sys.stderr, flush=True)
            return 1
    print("the last life was killed by somebody else", file=sys.stderr)
    return 1


class _Last:
    """The life under way, which is told to stop when this process is."""

    def __init__(self) -> None:
        self.child = 0
        self.is_told = False
        signal.signal(signal.SIGTERM, self._tell)

    def _tell(self, number: int, frame: FrameType | None) -> None:
        self.is_told = True
        if self.child:
            os.kill(self.child, signal.SIGTERM)


def _live(flags: list[str], rng: random.Random, share: float) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if share:
        _die_after_writes(rng, share)
    code = 1
    try:
        code = entry.main(flags)
    finally:
        os._exit(code)


def _die_after_writes(rng: random.Random, share: float) -> None:
    """Let every write be the last thing that this process does, by chance."""
    send = KubeCluster._request

    def request(self: KubeCluster, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        answer = send(self, request, timeout)
        if request.method in WRITES and rng.random() < share:
            os.write(1, f"killed after {request.method} {request.path}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

    KubeCluster._request = request  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
