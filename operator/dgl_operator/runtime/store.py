"""What the watches have brought, by job: the only thing that the hot path reads.

Fed by the watches and by the answers to our own writes. Of a pod it keeps what is decided on, read once;
of other objects the reduced form as JSON text (a tenth of the memory of the decoded object); and of
children only those that a job which we know owns and names: nobody can fill it with objects that merely
carry our label. Thread-safe.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from dgl_operator.api import kueue
from dgl_operator.domain import fields, observed, reduced
from dgl_operator.domain.observed import Observed, Pod, controller_uid
from dgl_operator.runtime import decode
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.kinds import Json, Key, Kind
from dglrun.contract import names

SPEC_BYTES = 256 * 1024
"""Largest spec that a new job may have: each of its pods holds a copy of its template."""
KEPT_SPEC_BYTES = 16 * 1024
"""A larger spec is not kept, but read when its job is looked at."""
SPEC_SIZE = "dgl-operator/spec-size"
"""Key at the top of a job whose spec is not kept; its value is the spec's size in bytes."""

MANAGED_BY = "dgl-operator/managed-by"
"""Key at the top of a job whose spec says which controller looks after it; its value is that name."""

_REMEMBERED_DELETIONS, _REMEMBERED_SECONDS = 10_000, 300.0
"""So many UIDs of deleted objects, for so long. A request that is sent three times has its answer before; a
silent watch is taken up again after 90 s, and may then bring objects that a read has found deleted since."""


@dataclass(frozen=True, slots=True)
class _Record:
    """One object: identity, version, and what is kept of it without the version."""

    uid: str
    version: int
    kept: bytes | Pod

    def item(self) -> Json:
        """The object, decoded; a pod is not kept as one."""
        assert isinstance(self.kept, bytes)  # noqa: S101 - for the type checker
        found: Json = decode.parsed(self.kept)
        found["metadata"]["resourceVersion"] = str(self.version)
        return found


class _Deletions:
    """UIDs of objects that a late answer must not bring back, for as long as one can come.

    They are short texts made between large objects, whose memory only goes back when they are gone: those of
    a job's children go with the job.
    """

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: dict[str, float] = {}  # the oldest first

    def __contains__(self, uid: str) -> bool:
        return uid in self._times

    def add(self, uid: str, now: float) -> None:
        """Remember one, and no more than a bound of all."""
        self._times.pop(uid, None)  # else it would keep its old place
        self._times[uid] = now
        if len(self._times) > _REMEMBERED_DELETIONS:
            del self._times[next(iter(self._times))]

    def discard(self, uid: str) -> None:
        """It is alive."""
        self._times.pop(uid, None)

    def forget_before(self, oldest: float) -> None:
        """Forget what was deleted before."""
        if self._times:
            self._times = {uid: since for uid, since in self._times.items() if since >= oldest}


class _Family:
    """A job and its children."""

    __slots__ = ("children", "deletions", "is_new", "job", "revision")

    def __init__(self, job: _Record, is_new: bool) -> None:
        self.job = job
        self.is_new = is_new
        self.revision = 0
        self.children: dict[tuple[Kind, str], _Record] = {}
        self.deletions = _Deletions()


@dataclass(frozen=True)
class Seen:
    """The children of a job at one moment.

    Attributes:
        revision: Grows with each change of them.
    """

    observed: Observed
    revision: int

    def without(self, pods: Iterable[Pod]) -> "Seen":
        """The children as they are when these pods are gone."""
        gone = {pod.uid for pod in pods}
        left = tuple(pod for pod in self.observed.pods if pod.uid not in gone)
        return replace(self, observed=replace(self.observed, pods=left))

    def without_kueue(self) -> "Seen":
        """The children where nobody can say whether the job has a Workload."""
        return replace(self, observed=replace(self.observed, hears_kueue=False))


class Store:
    """Objects by job and kind; newer versions win, deleted UIDs stay deleted.

    Args:
        hears_kueue: Whether Workloads are brought, so that one that is absent is none.
        seconds: A clock that never jumps.
    """

    def __init__(self, *, hears_kueue: bool = True, seconds: Callable[[], float] = time.monotonic) -> None:
        self._hears_kueue = hears_kueue
        self._seconds = seconds
        self._lock = threading.Lock()
        self._families: dict[Key, _Family] = {}
        self._deletions = _Deletions()  # of jobs

    def job(self, key: Key) -> Json | None:
        """The job as last seen."""
        with self._lock:
            family = self._families.get(key)
        return family.job.item() if family else None

    def seen(self, key: Key, before: Seen | None = None) -> Seen:
        """What the job owns; `before` itself when nothing of it has changed since.

        Whether Kueue was heard is found out once in a look, and stays as it was `before`.
        """
        with self._lock:
            family = self._families.get(key)
            if family is None:
                return Seen(Observed(), 0)
            if before is not None and before.revision == family.revision:
                return before
            records, revision = tuple(family.children.values()), family.revision
        pods = [record.kept for record in records if isinstance(record.kept, Pod)]
        others = [record.item() for record in records if not isinstance(record.kept, Pod)]
        found = Seen(Observed.from_pods(pods, others), revision)
        hears_kueue = before.observed.hears_kueue if before else self._hears_kueue
        return found if hears_kueue else found.without_kueue()

    def keys(self) -> frozenset[Key]:
        """All known jobs."""
        with self._lock:
            return frozenset(self._families)

    def is_new(self, key: Key) -> bool:
        """Whether the job has no status yet."""
        with self._lock:
            family = self._families.get(key)
            return family is not None and family.is_new

    def put(self, kind: Kind, item: Json) -> Key | None:
        """Take an object as it is now; returns the job concerned, None when nothing changed for one."""
        with self._lock:
            return self._put(kind, item)

    def put_alive(self, kind: Kind, item: Json) -> Key | None:
        """Take an object that was just read or written, even if a watch has reported it gone.

        A watch by label reports an object as deleted when the label is taken off.
        """
        with self._lock:
            deletions = self._deletions_of(kind, _key(kind, item))
            if deletions is not None:
                deletions.discard(item["metadata"]["uid"])
            return self._put(kind, item)

    def drop(self, kind: Kind, item: Json) -> Key | None:
        """Forget a deleted object; returns the job concerned, None when it was not known."""
        name, uid = item["metadata"]["name"], item["metadata"]["uid"]
        with self._lock:
            return self._drop(kind, _key(kind, item), name, uid, controller_uid(item))

    def drop_missing(
        self, kind: Kind, present: Iterable[str], version: int, within: Callable[[Key], bool]
    ) -> frozenset[Key]:
        """Forget what a complete list lacks, except what is newer than the list; returns the jobs concerned.

        Args:
            kind: Kind of the listed objects.
            present: UIDs in the list.
            version: The list's version.
            within: Whether a job belongs to what was listed.
        """
        listed = set(present)
        with self._lock:
            gone = [
                (key, name, record.uid)
                for key, name, record in self._known(kind, within)
                if record.uid not in listed and record.version <= version
            ]
            dropped = [self._drop(kind, key, name, uid) for key, name, uid in gone]
        return frozenset(key for key in dropped if key)

    def forget_deletions(self) -> None:
        """Forget the UIDs that no late answer can bring any more."""
        with self._lock:
            oldest = self._seconds() - _REMEMBERED_SECONDS
            for deletions in (self._deletions, *(family.deletions for family in self._families.values())):
                deletions.forget_before(oldest)

    def _known(self, kind: Kind, within: Callable[[Key], bool]) -> list[tuple[Key, str, _Record]]:
        families = [(key, family) for key, family in self._families.items() if within(key)]
        if kind is Kind.JOB:
            return [(key, key.name, family.job) for key, family in families]
        return [
            (key, name, record)
            for key, family in families
            for (of, name), record in family.children.items()
            if of is kind
        ]

    def _put(self, kind: Kind, item: Json) -> Key | None:
        deletions = self._deletions_of(kind, _key(kind, item))
        if deletions is None or item["metadata"]["uid"] in deletions:
            return None
        return self._put_job(item) if kind is Kind.JOB else self._put_child(kind, item)

    def _deletions_of(self, kind: Kind, key: Key | None) -> _Deletions | None:
        """Those among which an object would be, None for a child of a job that is not known."""
        if kind is Kind.JOB:
            return self._deletions
        family = self._families.get(key) if key else None
        return family.deletions if family else None

    def _put_job(self, item: Json) -> Key | None:
        key, new = Key.of_job(item), _record(_reduced_job(item))
        family = self._families.get(key)
        is_new = not (item.get("status") or {}).get("phase")
        if family is None or family.job.uid != new.uid:
            if family is not None and family.job.version > new.version:
                return None
            self._families[key] = _Family(new, is_new)
            return key
        if family.job.version > new.version:
            return None
        changed = family.job.kept != new.kept
        family.job, family.is_new = new, is_new
        return key if changed else None

    def _put_child(self, kind: Kind, item: Json) -> Key | None:
        key = Key.of_owner(item)
        family = self._families.get(key) if key else None
        place = (kind, item["metadata"]["name"])
        if key is None or family is None or not _is_child(key, family.job.uid, kind, item):
            return None
        old = family.children.get(place)
        if old is not None and _is_known(old, kind, item):
            return None
        new = _child(key, kind, item)
        if old is not None and old.version > new.version:
            return None
        family.children[place] = new
        family.revision += 1
        return None if old is not None and (old.uid, old.kept) == (new.uid, new.kept) else key

    def _drop(self, kind: Kind, key: Key | None, name: str, uid: str, owner: str | None = None) -> Key | None:
        family = self._families.get(key) if key else None
        if key is None or family is None:  # no answer brings back what no job that we know owns
            return None
        if kind is Kind.JOB:
            self._deletions.add(uid, self._seconds())
            if family.job.uid == uid:
                del self._families[key]
            return key
        known = family.children.get((kind, name))
        is_known = known is not None and known.uid == uid
        # Of what would never be kept no deletion is remembered: others could displace the job's own by it.
        if is_known or (owner == family.job.uid and is_named(key.name, kind, name)):
            family.deletions.add(uid, self._seconds())
        if not is_known:
            return None
        del family.children[kind, name]
        family.revision += 1
        return key


def _is_known(record: _Record, kind: Kind, item: Json) -> bool:
    """Whether the object was read in just this version: a watch brings back what our own write was answered.

    Another schema may show another Workload, or job, in the same version.
    """
    metadata = item["metadata"]
    is_same = record.uid == metadata["uid"] and record.version == int(metadata["resourceVersion"])
    return is_same and kind is not Kind.WORKLOAD


def _key(kind: Kind, item: Json) -> Key | None:
    return Key.of_job(item) if kind is Kind.JOB else Key.of_owner(item)


def _child(key: Key, kind: Kind, item: Json) -> _Record:
    if kind is not Kind.POD:
        return _record(reduced.other(item))
    pod, metadata = observed.pod_of(reduced.pod(item), key.name), item["metadata"]
    assert pod is not None  # noqa: S101 - its name is one of the job's
    return _Record(metadata["uid"], int(metadata["resourceVersion"]), pod)


def _record(item: Json) -> _Record:
    metadata = item["metadata"]
    rest = {key: value for key, value in metadata.items() if key != "resourceVersion"}
    text = decode.encoded({**item, "metadata": rest})
    return _Record(metadata["uid"], int(metadata["resourceVersion"]), text)


_JOB_METADATA = ("name", "namespace", "uid", "resourceVersion", "generation", "deletionTimestamp")


def _reduced_job(item: Json) -> Json:
    """The job without what nobody here reads; a spec that is unreadable or large is left out, and says so."""
    kept: dict[str, Any] = {
        key: item[key] for key in ("apiVersion", "kind", "status", UNREADABLE) if key in item
    }
    kept["metadata"] = {key: item["metadata"][key] for key in _JOB_METADATA if key in item["metadata"]}
    if labels := _labels_of_queue(item):
        kept["metadata"]["labels"] = labels
    run_policy = fields.mapping(fields.mapping(item.get("spec")).get("runPolicy"))
    if MANAGED_BY in item or "managedBy" in run_policy:
        kept[MANAGED_BY] = item.get(MANAGED_BY) or fields.text(run_policy.get("managedBy"))
    if UNREADABLE in item or "spec" not in item:
        return kept
    size = len(decode.encoded(item["spec"]))
    return {**kept, SPEC_SIZE: size} if size > KEPT_SPEC_BYTES else {**kept, "spec": item["spec"]}


def _labels_of_queue(item: Json) -> dict[str, str]:
    labels = fields.mapping(item["metadata"].get("labels"))
    return {key: fields.text(labels[key]) for key in kueue.LABELS if key in labels}


def _is_child(key: Key, uid: str, kind: Kind, item: Json) -> bool:
    """Whether the job owns the object and gives it this name: an owner reference may be forged."""
    return controller_uid(item) == uid and is_named(key.name, kind, item["metadata"]["name"])


def is_named(job: str, kind: Kind, name: str) -> bool:
    """Whether the job gives this name to an object of the kind."""
    if kind is Kind.POD:
        return names.role_of(job, name) is not None
    if kind is Kind.CONFIG_MAP:
        return name in (names.config(job), names.report(job))
    if kind is Kind.SERVICE:
        return name == names.service(job)
    if kind is Kind.NETWORK_POLICY:
        return name == names.network_policy(job)
    if kind is Kind.WORKLOAD:
        return name == kueue.workload_name(job)
    return name in (names.launcher(job), names.partitioner(job))
