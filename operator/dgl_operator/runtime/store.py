"""What the watches have brought, by job: the only thing that the hot path reads.

Fed by events, by the answers to our own writes, and by a periodic list that drops what is gone (after an
expired watch kopf lists again but reports no deletions). Threads read while the event loop writes.
"""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable

from dgl_operator.runtime.cluster import Listing
from dgl_operator.runtime.kinds import Json, Key, Kind

_REMEMBERED_DEAD = 10_000
"""UIDs of deleted objects that a late answer must not bring back."""


class Store:
    """Objects by job and kind; newer versions win, deleted UIDs stay deleted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: dict[Key, Json] = {}
        self._children: defaultdict[Key, dict[tuple[Kind, str], Json]] = defaultdict(dict)
        self._dead: OrderedDict[str, None] = OrderedDict()

    def job(self, key: Key) -> Json | None:
        """The job as last seen."""
        with self._lock:
            return self._jobs.get(key)

    def children(self, key: Key) -> tuple[Json, ...]:
        """All objects with the job's label, whoever owns them."""
        with self._lock:
            return tuple(self._children.get(key, {}).values())

    def keys(self) -> frozenset[Key]:
        """All known jobs."""
        with self._lock:
            return frozenset(self._jobs)

    def put(self, kind: Kind, item: Json) -> Key | None:
        """Take an object as it is now; returns the job concerned."""
        with self._lock:
            return self._put(kind, item)

    def put_alive(self, kind: Kind, item: Json) -> Key | None:
        """Take an object that was just read or written, even if a watch has reported it gone.

        A watch by label reports an object as deleted when the label is taken off.
        """
        with self._lock:
            self._dead.pop(item["metadata"]["uid"], None)
            return self._put(kind, item)

    def drop(self, kind: Kind, item: Json) -> Key | None:
        """Forget a deleted object; returns the job concerned."""
        with self._lock:
            return self._drop(kind, item)

    def replace(self, kind: Kind, listing: Listing, within: Callable[[Key], bool]) -> frozenset[Key]:
        """Take a complete list; what it lacks is dropped, except what is newer than the list.

        Args:
            kind: Kind of all objects of the list.
            listing: The list.
            within: Whether a job belongs to what was listed.
        """
        with self._lock:
            listed = {item["metadata"]["uid"] for item in listing.items}
            concerned = {self._put(kind, item) for item in listing.items}
            for item in self._known(kind, within):
                if item["metadata"]["uid"] not in listed and _version(item) <= listing.version:
                    concerned.add(self._drop(kind, item))
            return frozenset(key for key in concerned if key)

    def forget(self, key: Key) -> None:
        """Forget a job that does not exist."""
        with self._lock:
            self._jobs.pop(key, None)

    def _known(self, kind: Kind, within: Callable[[Key], bool]) -> list[Json]:
        if kind is Kind.JOB:
            return [job for key, job in self._jobs.items() if within(key)]
        listed = [children for key, children in self._children.items() if within(key)]
        return [item for children in listed for (of, _), item in children.items() if of is kind]

    def _put(self, kind: Kind, item: Json) -> Key | None:
        key = Key.of_job(item) if kind is Kind.JOB else Key.of_owner(item)
        if key is None or item["metadata"]["uid"] in self._dead:
            return key
        item = _lean(item)
        if kind is Kind.JOB:
            self._jobs[key] = _newer(self._jobs.get(key), item)
        else:
            place = (kind, item["metadata"]["name"])
            self._children[key][place] = _newer(self._children[key].get(place), item)
        return key

    def _drop(self, kind: Kind, item: Json) -> Key | None:
        uid = item["metadata"]["uid"]
        self._dead[uid] = None
        while len(self._dead) > _REMEMBERED_DEAD:
            self._dead.popitem(last=False)
        key = Key.of_job(item) if kind is Kind.JOB else Key.of_owner(item)
        if key is None:
            return None
        if kind is Kind.JOB:
            if key in self._jobs and self._jobs[key]["metadata"]["uid"] == uid:
                del self._jobs[key]
            return key
        place = (kind, item["metadata"]["name"])
        known = self._children.get(key, {})
        if place in known and known[place]["metadata"]["uid"] == uid:
            del known[place]
        if not known:
            self._children.pop(key, None)
        return key


def _lean(item: Json) -> Json:
    """Without the field managers, which nobody here reads and which double a pod's size."""
    return {**item, "metadata": {k: v for k, v in item["metadata"].items() if k != "managedFields"}}


def _version(item: Json) -> int:
    """Versions of one kind are ordered numbers (KEP-5504)."""
    return int(item["metadata"]["resourceVersion"])


def _newer(old: Json | None, new: Json) -> Json:
    return old if old is not None and _version(old) > _version(new) else new
