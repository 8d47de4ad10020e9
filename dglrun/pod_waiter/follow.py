"""One thread for each pod: what the API server tells of it goes into one queue."""

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import NamedTuple

from dglrun.kube.errors import ApiError, Forbidden
from dglrun.kube.pods import Pod
from dglrun.kube.retry import Backoff
from dglrun.pod_waiter.pod_state import PodSnapshot

Follow = Callable[[str], Iterator[Pod | None]]
"""`Api.follow_pod`."""

FORBIDDEN = Backoff(first=0.5, longest=5.0)
"""Pauses between requests that are answered with 403: the Role may be created after the pods."""
_STACK_BYTES = 256 * 1024


class News(NamedTuple):
    """What a follower reports: a snapshot of the pod, None where it does not exist, or what went wrong.

    After Forbidden the follower asks again; after any other error it has given up.
    """

    name: str
    found: PodSnapshot | ApiError | None


class Followers:
    """Watches pods by name; RBAC lets a job's account see just these, one by one."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow
        self._names: set[str] = set()
        self.news: SimpleQueue[News] = SimpleQueue()

    def add(self, name: str) -> None:
        """Watch this pod too; does nothing for one that is watched already."""
        if name in self._names:
            return
        self._names.add(name)
        before = threading.stack_size(_STACK_BYTES)
        try:
            threading.Thread(target=self._run, args=(name,), name=f"follow-{name}", daemon=True).start()
        finally:
            threading.stack_size(before)  # of all threads that this process starts later

    def _run(self, name: str) -> None:
        pauses = FORBIDDEN.pauses()
        while True:
            try:
                for pod in self._follow(name):
                    pauses = FORBIDDEN.pauses()
                    self.news.put(News(name, None if pod is None else PodSnapshot.at(pod)))
            except Forbidden as error:
                self.news.put(News(name, error))
                time.sleep(next(pauses))
            except ApiError as error:
                self.news.put(News(name, error))
                return
