"""Makes the cluster hold what is wanted: creates what lacks, applies what differs, leaves what is foreign."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from dgl_operator.domain.observed import Observed, Pod, Problem, attempt_of, controller_uid
from dgl_operator.domain.validate import INVALID_SPEC
from dgl_operator.runtime import decode
from dgl_operator.runtime.cluster import AlreadyExists, Cluster, ClusterBusy, Conflict, Place, Refused
from dgl_operator.runtime.is_applied import is_met
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.settings import PARALLEL_CALLS
from dgl_operator.runtime.store import Store
from dglrun.contract import names

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

_INVALID = (400, 422)
"""The object cannot be read as its kind (a text where a number belongs), or is no valid one; or an admission
policy denies it, which has the same codes and another text."""
_WRITTEN_BY_USERS = (Kind.POD, Kind.NETWORK_POLICY)
"""Kinds that hold what the API server has not checked in the DGLJob."""
_DENIALS = ('admission webhook "', "ValidatingAdmissionPolicy '", "does not support dry run")
_AT_ONCE, _BYTES_AT_ONCE = 32, 1 << 20
"""Pods that are held, and created, before anybody looks whether they were taken: so many, or so much JSON."""
_ONE_BY_ONE = 3
"""So few quick calls are made one after the other: threads would cost more than they save."""


class Applier:
    """Writes children of jobs and remembers the server's answers in the store."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store

    def objects(self, wanted: Iterable[Json], seen: Observed, uid: str) -> Problem | None:
        """Create or correct objects in their order; stops at the first that cannot be had."""
        for body in wanted:
            if problem := self._object(body, _actual(body, seen), uid):
                return problem
        return None

    def policies(self, wanted: Iterable[Json], seen: Observed, uid: str) -> Problem | None:
        """Create or correct NetworkPolicies, whose rules the user may change while the job runs.

        A change is rehearsed as if it were new: a server-side apply answers 500 to a field that it does not
        know, which would be tried again and again.
        """
        for body in wanted:
            is_new = _actual(body, seen) is None
            if not is_new and not _is_there(body, seen) and (problem := self.rehearse(body)):
                return problem
        return self.objects(wanted, seen, uid)

    def rights(self, wanted: Sequence[Json], seen: Observed, uid: str) -> Problem | None:
        """Create or correct Roles side by side, then the RoleBindings, which need them.

        The API server takes a tenth of a second for each, to look whether we hold what we grant. Most looks
        find them all there, and start no thread.
        """
        lacking = [body for body in wanted if not _is_there(body, seen)]
        for kind in (Kind.ROLE, Kind.ROLE_BINDING):
            bodies = [body for body in lacking if Kind.of(body) is kind]
            found = in_parallel(lambda body: self.objects([body], seen, uid), bodies, one_by_one=1)
            if problem := next((each for each in found if each), None):
                return problem
        return None

    def pods(self, wanted: Iterable[Json], uid: str, *, strict: bool) -> Problem | None:
        """Create pods side by side, and no more after a problem; returns the first in their order.

        Args:
            wanted: The pods.
            uid: The job's UID.
            strict: Whether a field that the API server does not know is an error. Of a job under way, whose
                templates were taken before, it is not: it would cost the work that is done.
        """
        rest = iter(wanted)
        while some := _few(rest):
            problems = in_parallel(lambda body: self._create(body, uid, strict=strict), some)
            if problem := next((found for found in problems if found), None):
                return problem  # a thousand more would be refused for the same reason
        return None

    def rehearse(self, body: Json) -> Problem | None:
        """Ask the API server whether it would take an object, such as a pod that is needed later."""
        try:
            self._cluster.create(body, rehearse=True)
        except AlreadyExists:
            return None  # whose it is shows when it is needed
        except Conflict:
            raise  # of a quota's counter, as below
        except Refused as error:
            return None if _cannot_rehearse(error) else _refused(body, error)
        return None

    def delete(
        self, kind: Kind, namespace: str, doomed: Iterable[tuple[str, str]], *, force: bool = False
    ) -> None:
        """Delete objects, given by name and UID, side by side; by force without waiting for their end."""
        places = [Place(namespace, name, uid) for name, uid in doomed]
        in_parallel(lambda place: self._delete(kind, place, force=force), places)

    def stop(self, namespace: str, pods: Iterable[Pod]) -> None:
        """End pods and keep them with their logs."""
        for pod in pods:
            if stored := self._cluster.stop(Place(namespace, pod.name, pod.uid)):
                self._store.put(Kind.POD, stored)

    def find(self, namespace: str, name: str, uid: str) -> bool:
        """Look for a pod of the job that a watch by label does not show; give it its label back.

        Args:
            namespace: The job's namespace.
            name: The pod's name.
            uid: The job's UID.

        Returns:
            Whether the pod is there and the job's.
        """
        found = self._cluster.get(Kind.POD, namespace, name)
        if found is None or controller_uid(found) != uid:
            return False
        self._taken_back(found)
        return True

    def relabel(self, place: Place, attempt: int) -> None:
        """Give a pod the label of its attempt back."""
        if stored := self._cluster.mark(Kind.POD, place, {"labels": {names.LABEL_ATTEMPT: str(attempt)}}):
            self._store.put(Kind.POD, stored)

    def _delete(self, kind: Kind, place: Place, *, force: bool) -> None:
        if leaving := self._cluster.delete(kind, place, force=force):
            self._store.put(kind, leaving)  # else the next look would delete it again

    def _object(self, body: Json, actual: Mapping[str, Any] | None, uid: str) -> Problem | None:
        if actual is None:
            return self._create(body, uid)
        if is_met(body, actual):
            return None
        try:
            stored = self._cluster.apply(body, actual)
        except Conflict:
            return self._create(body, uid)  # it was deleted, or another has its name now
        except Refused as error:
            return _refused(body, error)
        self._store.put(Kind.of(body), stored)
        return None

    def _create(self, body: Json, uid: str, *, strict: bool = True) -> Problem | None:
        try:
            stored = self._cluster.create(body, strict=strict)
        except AlreadyExists:
            return self._present(body, uid)
        except Conflict:
            raise  # of a quota's counter that many write at once: the whole look is tried again
        except Refused as error:
            return _refused(body, error)
        self._store.put(Kind.of(body), stored)
        return None

    def _present(self, body: Json, uid: str) -> Problem | None:
        """Look whose the object of the name is: ours was merely not seen yet, another's stays untouched."""
        kind, metadata = Kind.of(body), body["metadata"]
        found = self._cluster.get(kind, metadata["namespace"], metadata["name"])
        if found is None:
            return Problem(
                "ObjectConflict", f"{body['kind']} {metadata['name']} is being replaced by another"
            )
        if controller_uid(found) != uid:
            what = f"{body['kind']} {metadata['name']} exists and {_owner(found)}"
            if "deletionTimestamp" in found["metadata"]:
                return Problem("PredecessorLeaving", f"{what}; it is being deleted")
            return Problem("ObjectConflict", f"{what}; delete it or rename the job")
        if kind is Kind.POD:
            self._taken_back(found)
            return _predecessor(body, found)
        return self._corrected(body, found)

    def _corrected(self, body: Json, found: Json) -> Problem | None:
        """Ours, but not seen: the watch was late, or somebody took the label off by which it is watched."""
        if not is_met(body, found):
            try:
                found = self._cluster.apply(body, found)
            except Conflict:
                raise
            except Refused as error:
                return _refused(body, error)
        self._store.put_alive(Kind.of(body), found)
        return None

    def _taken_back(self, found: Json) -> None:
        """Put the label back by which a pod is watched: without it its end would not be seen."""
        metadata = found["metadata"]
        label = {names.LABEL_JOB: next(o["name"] for o in metadata["ownerReferences"] if o.get("controller"))}
        if not label.items() <= (metadata.get("labels") or {}).items():
            place = Place(metadata["namespace"], metadata["name"], metadata["uid"])
            found = self._cluster.mark(Kind.POD, place, {"labels": label}) or found
        self._store.put_alive(Kind.POD, found)


def _actual(body: Json, seen: Observed) -> Mapping[str, Any] | None:
    return seen.objects.get((body["kind"], body["metadata"]["name"]))


def _is_there(body: Json, seen: Observed) -> bool:
    actual = _actual(body, seen)
    return actual is not None and is_met(body, actual)


def in_parallel(
    call: Callable[[ItemT], ResultT], items: Sequence[ItemT], one_by_one: int = _ONE_BY_ONE
) -> list[ResultT]:
    """Call for each item and return the results in their order; so few are called one after the other.

    Each caller has threads of its own, so that the slow calls of one job do not delay those of another.
    """
    if len(items) <= one_by_one:
        return [call(item) for item in items]
    with ThreadPoolExecutor(min(PARALLEL_CALLS, len(items)), thread_name_prefix="calls") as threads:
        return list(threads.map(call, items))


def _few(pods: Iterator[Json]) -> list[Json]:
    """Take the next pods, at least one while there are any."""
    some: list[Json] = []
    size = 0
    for pod in pods:
        some.append(pod)
        size += len(decode.encoded(pod))
        if len(some) == _AT_ONCE or size >= _BYTES_AT_ONCE:
            break
    return some


def prevented(error: ClusterBusy) -> Problem | None:
    """What a failure of the API server itself means for a job, None for one that passes unseen.

    A server that cannot be reached takes no status either, and 429 is its ordinary way to slow us down; a
    webhook that cannot be called is an answer 500.
    """
    if error.status < 500:
        return None
    return Problem(error.reason or "ServerError", str(error))


def _owner(found: Mapping[str, Any]) -> str:
    owners = [each for each in found["metadata"].get("ownerReferences") or () if each.get("controller")]
    if not owners:
        return "has no controller owner"
    return f"belongs to {owners[0]['kind']} {owners[0]['name']} (uid {owners[0]['uid']})"


def _refused(body: Json, error: Refused) -> Problem:
    """Anything but a wrong template may change without the job: quotas, policies, accounts."""
    what = f"{body['kind']} {body['metadata']['name']}: {error}"
    if _is_wrong_for_ever(body, error):
        return Problem(INVALID_SPEC, what)
    if "exceeded quota" in str(error):
        return Problem("QuotaExceeded", what)
    return Problem(error.reason or "Refused", what)


def _is_wrong_for_ever(body: Json, error: Refused) -> bool:
    """Whether the user's part of it can never be: refused for what it is, not by a policy that may change."""
    is_denial = any(words in str(error) for words in _DENIALS)
    return Kind.of(body) in _WRITTEN_BY_USERS and error.status in _INVALID and not is_denial


def _predecessor(body: Json, found: Json) -> Problem | None:
    """Say that a pod of an earlier attempt has the name still; it is known from now on, and is deleted."""
    if attempt_of(found) >= attempt_of(body):
        return None
    return Problem(
        "PredecessorLeaving", f"Pod {body['metadata']['name']} of an earlier attempt is still there"
    )


def _cannot_rehearse(error: Refused) -> bool:
    """A webhook with side effects refuses every dry run, which says nothing about the pod."""
    return "does not support dry run" in str(error)
