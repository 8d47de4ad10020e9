"""What the operator needs of an API server: few verbs on plain dictionaries, and their errors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dgl_operator.runtime.kinds import Json, Kind


class ClusterBusy(Exception):
    """The API server could not answer now; the same request may succeed later.

    Attributes:
        retry_after: Seconds that the server asked for, 0 if it did not say.
        status: HTTP status, 0 without an answer.
        reason: The server's one-word reason, "" without one.
    """

    def __init__(self, message: str, retry_after: float = 0.0, status: int = 0, reason: str = "") -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status
        self.reason = reason


class WatchExpired(Exception):
    """The version from which to watch is too old: list again."""


class Refused(Exception):
    """The API server refuses the request as it is.

    Attributes:
        status: HTTP status, 403 or 422 in most cases.
        reason: The server's one-word reason.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class AlreadyExists(Refused):
    """An object of this name is there."""


class Conflict(Refused):
    """The object is not the one that was meant: another UID or version."""


class NotFound(Refused):
    """No such object."""


@dataclass(frozen=True)
class Page:
    """A part of a list: the objects with their kind, and the version of the whole list."""

    items: tuple[Json, ...]
    version: int


class Change(NamedTuple):
    """One watch event: ADDED, MODIFIED, DELETED or BOOKMARK (of which only the version counts)."""

    type: str
    item: Json

    @property
    def version(self) -> int:
        """The version that the watch has reached."""
        return int(self.item["metadata"]["resourceVersion"])


class Place(NamedTuple):
    """Where an object is, and which one is meant."""

    namespace: str
    name: str
    uid: str


class Cluster(Protocol):
    """What the operator needs of an API server; tests have one in memory."""

    def pages(self, kind: Kind, namespace: str | None, job: str | None = None) -> Iterator[Page]:
        """List jobs, or children by the job label (of one job if named); None: all namespaces."""

    def watch(self, kind: Kind, namespace: str | None, version: int) -> Iterator[Change]:
        """Follow what `pages` lists from a version on, until the API server ends the answer.

        The first change is a BOOKMARK of that version, which says that the watch has begun.

        Raises:
            WatchExpired: the version is too old.
        """

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """Read one object, None when it does not exist."""

    def serves(self, kind: Kind, verb: str = "") -> bool:
        """Whether the API server has this kind in this version, and takes this verb for it if one is given.

        While a CustomResourceDefinition is being deleted, its kind is there without `create`.
        """

    def create(self, body: Json, *, rehearse: bool = False, strict: bool = True) -> Json:
        """Create an object and return it as stored; a rehearsal is a server-side dry run.

        Fields that the API server does not know are refused by name, or dropped without `strict`.

        Raises:
            AlreadyExists: there is one of this name.
            Refused: it is not admitted.
        """

    def apply(self, body: Json, actual: Mapping[str, Any]) -> Json:
        """Apply our fields by force to the object as it was last seen.

        Raises:
            Conflict: it has changed since, is gone, or the name belongs to another object now.
        """

    def replace(self, body: Json) -> Json:
        """Replace an object of the version that the body names, and return it as stored.

        Raises:
            NotFound: it is gone.
            Conflict: it has changed since.
        """

    def mark(
        self,
        kind: Kind,
        place: Place,
        metadata: Mapping[str, Mapping[str, str]],
        without: Sequence[str] = (),
    ) -> Json | None:
        """Set labels or annotations and return the object, None when it is gone or replaced.

        Args:
            kind: The object's kind.
            place: Where it is.
            metadata: The labels or annotations.
            without: Keys of a ConfigMap's data to remove in the same write.
        """

    def stop(self, place: Place) -> Json | None:
        """End a pod's containers and keep the pod with its logs; None when it is gone or replaced."""

    def delete(self, kind: Kind, place: Place, *, force: bool = False) -> Json | None:
        """Delete an object; nothing happens when it is gone or replaced.

        By force the object goes at once, whatever still runs on a node that nobody hears of.

        Returns:
            The object while it is being deleted, as a pod is until its containers have ended.
        """

    def delete_job(self, job: Mapping[str, Any]) -> None:
        """Delete a job with all that it owns; nothing happens when it is gone.

        Raises:
            Conflict: it has changed since it was seen, or the name belongs to another job now.
        """

    def write_status(self, job: Mapping[str, Any], status: Json) -> Json:
        """Apply the whole status to the job as it was last seen and return it as stored.

        Raises:
            NotFound: the job is gone.
            Conflict: it has changed since, or the name belongs to another job now.
        """

    def patch_status(self, actual: Mapping[str, Any], status: Json) -> Json:
        """Change fields of the status of an object that is no job, as it was last seen.

        A list is replaced as a whole, and a field with null is removed.

        Raises:
            NotFound: it is gone.
            Conflict: it has changed since, or the name belongs to another object now.
        """

    def post_event(self, body: Json) -> None:
        """Create an Event."""
