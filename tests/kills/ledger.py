"""Every pod that there ever was in a namespace, by a watch: one made twice shows even if it is gone."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable

from dgl_operator.runtime.cluster import ClusterBusy
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from tests.support.api_client import ApiServer

Slot = tuple[str, str, str]
"""Job, attempt, pod."""


class Made:
    """Pods by what they were made for. Safe for several threads."""

    def __init__(self) -> None:
        self._pods: dict[Slot, dict[str, None]] = defaultdict(dict)
        self._lock = threading.Lock()

    def note(self, pod: Json) -> None:
        """Take down a pod that was made."""
        metadata = pod["metadata"]
        labels = metadata["labels"]
        slot = (labels[names.LABEL_JOB], labels.get(names.LABEL_ATTEMPT, "0"), metadata["name"])
        with self._lock:
            self._pods[slot][metadata["uid"]] = None

    def twice(self, is_allowed: Callable[[Slot], bool] = lambda slot: False) -> list[str]:
        """What was made more than once; more than twice where that is allowed."""
        with self._lock:
            made = {slot: len(uids) for slot, uids in self._pods.items()}
        return [
            f"{pod} of attempt {attempt} was made {count} times"
            for (job, attempt, pod), count in made.items()
            if count > (2 if is_allowed((job, attempt, pod)) else 1)
        ]

    def __len__(self) -> int:
        with self._lock:
            return sum(len(uids) for uids in self._pods.values())


class Ledger:
    """A watch that takes down all pods of a namespace.

    Attributes:
        made: What it has seen.
    """

    def __init__(self, api: ApiServer, namespace: str) -> None:
        self.made = Made()
        self._api, self._namespace = api, namespace
        self._error: BaseException | None = None
        self._version = next(iter(api.pages(Kind.POD, namespace))).version
        threading.Thread(target=self._follow, name="ledger", daemon=True).start()

    def check(self) -> None:
        """Raise an error if the watch has ended, so that pods may be missing."""
        if self._error:
            raise RuntimeError("the watch over pods ended") from self._error

    def _follow(self) -> None:
        try:
            while True:
                with contextlib.suppress(ClusterBusy):  # taken up where it stopped
                    for change in self._api.watch(Kind.POD, self._namespace, self._version):
                        self._version = int(change.item["metadata"]["resourceVersion"])
                        if change.type == "ADDED":
                            self.made.note(change.item)
        except BaseException as error:
            self._error = error
