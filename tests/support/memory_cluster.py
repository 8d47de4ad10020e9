"""An API server in memory for the tests of reconcile: UIDs, versions, name clashes, preconditions, quota.

It is no proof of server-side apply or RBAC: those are proved on a real API server (tests/integration).
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dgl_operator.runtime.cluster import (
    AlreadyExists,
    Change,
    ClusterBusy,
    Conflict,
    NotFound,
    Page,
    Place,
    Refused,
)
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names


class MemoryCluster:
    """Objects by kind, namespace and name, and a journal of all writes.

    Attributes:
        writes: `<verb> <Kind> <name>` for each write that was accepted.
        reads: The same for each read.
        rehearsed: Names of the pods that were rehearsed and would be taken.
        admit: Called with each object that is to be created, even if its name is taken; raises to refuse it.
        events: Posted Events.
        is_down: Whether every request fails.
        time: When objects are created and deleted.
        served: Kinds of optional APIs that the API server offers.
        ending: Those of them whose definition is being deleted.
        is_graceful: Whether a deleted pod stays until somebody removes it, as while its containers end.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[Kind, str, str], Json] = {}
        self.writes: list[str] = []
        self.reads: list[str] = []
        self.rehearsed: list[str] = []
        self.events: list[Json] = []
        self.strict: dict[str, bool] = {}
        self.admit: Callable[[Json], None] = lambda _body: None
        self.served: set[Kind] = set()
        self.ending: set[Kind] = set()
        self.is_down = False
        self.is_graceful = False
        self.time = "2026-11-21T12:00:00Z"
        self._version = 0
        self._listed: dict[tuple[Kind, str, str], Json] = {}

    def add(self, body: Json) -> Json:
        """Put an object there as somebody else would."""
        stored = self._stamp(copy.deepcopy(body), new=True)
        self.objects[_place(stored)] = stored
        return stored

    def set_pod_status(self, namespace: str, name: str, status: Mapping[str, Any]) -> Json:
        """Play the kubelet."""
        pod = self.objects[Kind.POD, namespace, name]
        return self._store({**pod, "status": dict(status)})

    def remove(self, kind: Kind, namespace: str, name: str) -> Json:
        """Delete an object as somebody else would."""
        return self.objects.pop((kind, namespace, name))

    def pages(self, kind: Kind, namespace: str | None, job: str | None = None) -> Iterator[Page]:
        """See `Cluster`; all in one page."""
        self._read("list", kind, job or "*")
        self._notice_edits(kind)
        found = [
            copy.deepcopy(item)
            for (of, place, _), item in list(self.objects.items())  # other threads write meanwhile
            if of is kind and namespace in (None, place) and _is_listed(kind, item, job)
        ]
        yield Page(tuple(found), self._version)

    def watch(self, kind: Kind, namespace: str | None, version: int) -> Iterator[Change]:
        """See `Cluster`; ends at once: a test brings the store what it wants to be seen."""
        self._read("watch", kind, str(version))
        yield from ()

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """See `Cluster`."""
        self._read("get", kind, name)
        return copy.deepcopy(self.objects.get((kind, namespace or "", name)))

    def serves(self, kind: Kind, verb: str = "") -> bool:
        """See `Cluster`."""
        self._read("discover", kind, kind.api_version)
        return kind in self.served and not (verb == "create" and kind in self.ending)

    def create(self, body: Json, *, rehearse: bool = False, strict: bool = True) -> Json:
        """See `Cluster`."""
        self.strict[body["metadata"]["name"]] = strict
        self._check_up()
        self.admit(body)
        if _place(body) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{body['metadata']['name']} already exists")
        stored = self._stamp(copy.deepcopy(body), new=True)
        if rehearse:
            self.rehearsed.append(body["metadata"]["name"])
            return stored
        self._note("create", body)
        return self._store(stored)

    def apply(self, body: Json, actual: Mapping[str, Any]) -> Json:
        """See `Cluster`; merges, which is enough where we own all fields."""
        actual = self._mine(actual)
        self._note("apply", body)
        return self._store(_merged(actual, body))

    def replace(self, body: Json) -> Json:
        """See `Cluster`."""
        self._check_up()
        actual = self.objects.get(_place(body))
        if actual is None:
            raise NotFound(404, "NotFound", "no such object")
        if actual["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        return self._store(copy.deepcopy(body))

    def mark(
        self,
        kind: Kind,
        place: Place,
        metadata: Mapping[str, Mapping[str, str]],
        without: Sequence[str] = (),
    ) -> Json | None:
        """See `Cluster`."""
        stored = self._change("mark", kind, place, {"metadata": metadata})
        if stored and without and "data" in stored:
            kept = {key: value for key, value in stored["data"].items() if key not in without}
            stored = self._store({**stored, "data": kept})
        return stored

    def stop(self, place: Place) -> Json | None:
        """See `Cluster`; the pod's end is for the test to play."""
        return self._change("stop", Kind.POD, place, {"spec": {"activeDeadlineSeconds": 1}})

    def _change(self, verb: str, kind: Kind, place: Place, change: Json) -> Json | None:
        self._check_up()
        actual = self.objects.get((kind, place.namespace, place.name))
        if actual is None or actual["metadata"]["uid"] != place.uid:
            return None
        self._note(verb, actual)
        return self._store(_merged(actual, change))

    def delete(self, kind: Kind, place: Place, *, force: bool = False) -> Json | None:
        """See `Cluster`."""
        self._check_up()
        actual = self.objects.get((kind, place.namespace, place.name))
        if actual is not None and actual["metadata"]["uid"] == place.uid:
            self._note("force" if force else "delete", actual)
            if kind is Kind.POD and self.is_graceful and not force:
                return self._store(_merged(actual, {"metadata": {"deletionTimestamp": self.time}}))
            del self.objects[kind, place.namespace, place.name]
        return None

    def delete_job(self, job: Mapping[str, Any]) -> None:
        """See `Cluster`; what it owns is left to the test."""
        actual = self._mine(job)
        self._note("delete", actual)
        del self.objects[_place(actual)]

    def write_status(self, job: Mapping[str, Any], status: Json) -> Json:
        """See `Cluster`."""
        actual = self._mine(job)
        self._note("status", actual)
        return self._store({**actual, "status": copy.deepcopy(status)})

    def patch_status(self, actual: Mapping[str, Any], status: Json) -> Json:
        """See `Cluster`; a field with null is removed."""
        stored = self._mine(actual)
        self._note("status", stored)
        merged = {**(stored.get("status") or {}), **status}
        return self._store({**stored, "status": {k: v for k, v in merged.items() if v is not None}})

    def post_event(self, body: Json) -> None:
        """See `Cluster`."""
        self._check_up()
        self.events.append(body)

    def _notice_edits(self, kind: Kind) -> None:
        """Give what a test has edited in place another version, as a real server would have."""
        for place, item in list(self.objects.items()):
            if place[0] is not kind:
                continue
            last = self._listed.get(place)
            is_same = last is not None and _identity(last) == _identity(item)
            if is_same and last != item:
                self._version += 1
                item["metadata"]["resourceVersion"] = str(self._version)
            if last != item:
                self._listed[place] = copy.deepcopy(item)

    def _mine(self, seen: Mapping[str, Any]) -> Json:
        self._check_up()
        actual = self.objects.get(_place(seen))
        if actual is None:
            raise NotFound(404, "NotFound", f"{seen['metadata']['name']} not found")
        for key in ("uid", "resourceVersion"):
            if actual["metadata"][key] != seen["metadata"][key]:
                raise Conflict(409, "Conflict", f"{seen['metadata']['name']} has another {key}")
        return actual

    def _check_up(self) -> None:
        if self.is_down:
            raise ClusterBusy("the API server is down")

    def _read(self, verb: str, kind: Kind, name: str) -> None:
        self._check_up()
        self.reads.append(f"{verb} {kind.value[0]} {name}")

    def _note(self, verb: str, body: Mapping[str, Any]) -> None:
        self.writes.append(f"{verb} {body['kind']} {body['metadata']['name']}")

    def _store(self, body: Json) -> Json:
        stored = self._stamp(copy.deepcopy(body), new=False)
        self.objects[_place(stored)] = stored
        return copy.deepcopy(stored)

    def _stamp(self, body: Json, *, new: bool) -> Json:
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        if new:
            metadata.setdefault("uid", f"uid-{self._version}")
            metadata.setdefault("creationTimestamp", self.time)
        return {**body, "metadata": metadata}


def over_quota(kind: str) -> Callable[[Json], None]:
    """Admit no object of this kind, as a spent quota does."""

    def admit(body: Json) -> None:
        if body["kind"] == kind:
            name = body["metadata"]["name"]
            raise Refused(403, "Forbidden", f'pods "{name}" is forbidden: exceeded quota: small')

    return admit


def _identity(item: Json) -> tuple[str, str]:
    return item["metadata"]["uid"], item["metadata"]["resourceVersion"]


def _place(body: Mapping[str, Any]) -> tuple[Kind, str, str]:
    return Kind.of(body), body["metadata"].get("namespace", ""), body["metadata"]["name"]


def _is_listed(kind: Kind, item: Json, job: str | None) -> bool:
    label = (item["metadata"].get("labels") or {}).get(names.LABEL_JOB)
    return kind is Kind.JOB or (label is not None and job in (None, label))


def _merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(before, value) if both else copy.deepcopy(value)  # type: ignore[arg-type]
    return merged
