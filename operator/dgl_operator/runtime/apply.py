"""Makes the cluster hold what is wanted: creates what lacks, applies what differs, leaves what is foreign."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from dgl_operator.domain.observed import Observed, Problem, controller_uid
from dgl_operator.domain.validate import INVALID_SPEC
from dgl_operator.runtime.cluster import AlreadyExists, Cluster, Conflict, Refused
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.match import is_met
from dgl_operator.runtime.settings import POD_CREATORS
from dgl_operator.runtime.store import Store

_INVALID = (400, 422)
"""The template cannot be read as a pod (a text where a number belongs), or is no valid one; or an admission
policy denies it, which has the same codes and another text."""
_DENIALS = ('admission webhook "', "ValidatingAdmissionPolicy '", "does not support dry run")


class Applier:
    """Writes children of jobs and remembers the server's answers in the store."""

    def __init__(self, cluster: Cluster, store: Store) -> None:
        self._cluster = cluster
        self._store = store
        self._creators = ThreadPoolExecutor(POD_CREATORS, thread_name_prefix="create")

    def objects(self, wanted: Iterable[Json], seen: Observed, uid: str) -> Problem | None:
        """Create or correct objects in their order; stops at the first that cannot be had."""
        for body in wanted:
            actual = seen.objects.get((body["kind"], body["metadata"]["name"]))
            if problem := self._object(body, actual, uid):
                return problem
        return None

    def pods(self, wanted: Iterable[Json], uid: str) -> Problem | None:
        """Create pods side by side; returns the first problem in their order."""
        bodies = list(wanted)
        if len(bodies) == 1:
            return self._create(bodies[0], uid)
        return next(
            (found for found in self._creators.map(lambda body: self._create(body, uid), bodies) if found),
            None,
        )

    def rehearse(self, body: Json) -> Problem | None:
        """Ask the API server whether it would take a pod that is needed later."""
        try:
            self._cluster.create(body, rehearse=True)
        except Refused as error:
            return _refused(body, error) if _is_wrong_for_ever(body, error) else None
        return None

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

    def _create(self, body: Json, uid: str) -> Problem | None:
        try:
            stored = self._cluster.create(body)
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
            what = f"{body['kind']} {metadata['name']} exists and belongs to {_owner(found)}"
            if "deletionTimestamp" in found["metadata"]:
                return Problem("PredecessorLeaving", f"{what}; it is being deleted")
            return Problem("ObjectConflict", f"{what}; delete it or rename the job")
        return self._taken_back(body, found)

    def _taken_back(self, body: Json, found: Json) -> Problem | None:
        """Ours, but not seen: the watch was late, or somebody took the label off by which it is watched."""
        if body["kind"] != Kind.POD.value[0] and not is_met(body, found):
            try:
                found = self._cluster.apply(body, found)
            except Conflict:
                raise
            except Refused as error:
                return _refused(body, error)
        self._store.put_alive(Kind.of(body), found)
        return None


def _owner(found: Mapping[str, Any]) -> str:
    owners = [each for each in found["metadata"].get("ownerReferences") or () if each.get("controller")]
    return f"{owners[0]['kind']} {owners[0]['name']} (uid {owners[0]['uid']})" if owners else "nobody's job"


def _refused(body: Json, error: Refused) -> Problem:
    """Anything but a wrong template may change without the job: quotas, policies, accounts."""
    what = f"{body['kind']} {body['metadata']['name']}: {error}"
    if _is_wrong_for_ever(body, error):
        return Problem(INVALID_SPEC, what)
    if "exceeded quota" in str(error):
        return Problem("QuotaExceeded", what)
    return Problem(error.reason or "Refused", what)


def _is_wrong_for_ever(body: Json, error: Refused) -> bool:
    """Whether the pod can never be: refused for what it is, not by a policy that may change."""
    is_denial = any(words in str(error) for words in _DENIALS)
    return body["kind"] == Kind.POD.value[0] and error.status in _INVALID and not is_denial
