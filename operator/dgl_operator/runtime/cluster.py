"""The API server as the operator uses it: six verbs on plain dictionaries. The only user of `kubernetes`.

The verbs here are the operator's RBAC rules: list, get, create, patch (apply, annotate, status), delete
of pods, and events. There is no exec.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import urllib3.exceptions
from kubernetes import client, config

from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names

FIELD_MANAGER = "dgl-operator"
TIMEOUT_SECONDS = 30
PAGE = 500
POOL = 40
"""Connections kept open: the reconcile threads and the pod creators."""

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"


class ClusterBusy(Exception):
    """The API server could not answer now; the same request may succeed later.

    Attributes:
        retry_after: Seconds that the server asked for, 0 if it did not say.
    """

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


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
class Listing:
    """One list call: the objects with their kind, and the version of the whole."""

    items: tuple[Json, ...]
    version: int


class Place(NamedTuple):
    """Where an object is, and which one is meant."""

    namespace: str
    name: str
    uid: str


class Cluster(Protocol):
    """What reconcile needs of an API server; tests have one in memory."""

    def list(self, kind: Kind, namespace: str | None, job: str | None = None) -> Listing:
        """List jobs, or children by the job label (of one job if named); None: all namespaces."""

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Read one object, None when it does not exist."""

    def create(self, body: Json, *, rehearse: bool = False) -> Json:
        """Create an object and return it as stored; a rehearsal is a server-side dry run.

        Raises:
            AlreadyExists: there is one of this name.
            Refused: it is not admitted.
        """

    def apply(self, body: Json, actual: Mapping[str, Any]) -> Json:
        """Apply our fields by force to the object as it was last seen.

        Raises:
            Conflict: it has changed since, is gone, or the name belongs to another object now.
        """

    def annotate(self, kind: Kind, place: Place, annotations: Mapping[str, str]) -> Json | None:
        """Set annotations and return the object, None when it is gone or replaced."""

    def delete(self, kind: Kind, place: Place) -> None:
        """Delete an object; nothing happens when it is gone or replaced."""

    def write_status(self, job: Mapping[str, Any], status: Json) -> Json:
        """Apply the whole status to the job as it was last seen and return it as stored.

        Raises:
            NotFound: the job is gone.
            Conflict: it has changed since, or the name belongs to another job now.
        """

    def post_event(self, body: Json) -> None:
        """Create an Event."""


class KubeCluster:
    """A real API server, reached by the pod's account or by KUBECONFIG."""

    def __init__(self) -> None:
        settings = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(client_configuration=settings)
        settings.connection_pool_maxsize = POOL
        self._client = client.ApiClient(settings)

    def list(self, kind: Kind, namespace: str | None, job: str | None = None) -> Listing:
        """See `Cluster`; pages so that a large cluster does not come in one answer."""
        query = {"limit": str(PAGE)}
        if kind is not Kind.JOB:
            query["labelSelector"] = f"{names.LABEL_JOB}={job}" if job else names.LABEL_JOB
        items: list[Json] = []
        while True:
            page = self._request("GET", kind.path(namespace), query)
            items += [
                {**item, "kind": kind.value[0], "apiVersion": kind.api_version} for item in page["items"]
            ]
            more = page["metadata"].get("continue")
            if not more:
                return Listing(tuple(items), int(page["metadata"]["resourceVersion"]))
            query["continue"] = more

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """See `Cluster`."""
        try:
            return self._request("GET", kind.path(namespace, name))
        except NotFound:
            return None

    def create(self, body: Json, *, rehearse: bool = False) -> Json:
        """See `Cluster`."""
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if rehearse else {})}
        path = Kind.of(body).path(body["metadata"]["namespace"])
        return self._request("POST", path, query, body)

    def apply(self, body: Json, actual: Mapping[str, Any]) -> Json:
        """See `Cluster`."""
        metadata = {**body["metadata"], **_as_seen(actual)}
        path = Kind.of(body).path(metadata["namespace"], metadata["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self._request("PATCH", path, query, {**body, "metadata": metadata}, _APPLY)

    def annotate(self, kind: Kind, place: Place, annotations: Mapping[str, str]) -> Json | None:
        """See `Cluster`; the server calls another UID an invalid change of an immutable field."""
        body = {"metadata": {"uid": place.uid, "annotations": dict(annotations)}}
        path, query = kind.path(place.namespace, place.name), {"fieldManager": FIELD_MANAGER}
        try:
            return self._request("PATCH", path, query, body, _MERGE)
        except Refused as error:
            if error.status in (404, 409, 422):
                return None
            raise

    def delete(self, kind: Kind, place: Place) -> None:
        """See `Cluster`."""
        body = {"preconditions": {"uid": place.uid}}
        try:
            self._request("DELETE", kind.path(place.namespace, place.name), None, body)
        except (NotFound, Conflict):
            return

    def write_status(self, job: Mapping[str, Any], status: Json) -> Json:
        """See `Cluster`.

        The version makes the write safe: the status subresource of a custom resource takes the stored
        metadata before it validates, so that a wrong UID alone would pass and the status of a deleted
        job would land on its successor of the same name.
        """
        metadata = job["metadata"]
        body = {
            "apiVersion": Kind.JOB.api_version,
            "kind": Kind.JOB.value[0],
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"], **_as_seen(job)},
            "status": status,
        }
        path = Kind.JOB.path(metadata["namespace"], metadata["name"]) + "/status"
        return self._request("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body, _APPLY)

    def post_event(self, body: Json) -> None:
        """See `Cluster`."""
        self._request("POST", Kind.EVENT.path(body["metadata"]["namespace"]), None, body)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Json | None = None,
        content_type: str = "application/json",
    ) -> Json:
        request = self._client.param_serialize(
            method,
            path,
            query_params=list((query or {}).items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = self._client.call_api(*request, _request_timeout=TIMEOUT_SECONDS)
            data = response.read()
        except (urllib3.exceptions.HTTPError, OSError, client.ApiException) as error:
            raise ClusterBusy(f"{method} {path}: {error}") from error
        if response.status >= 400:
            raise _error(response.status, data, response.getheader("Retry-After"), f"{method} {path}")
        found: Json = json.loads(data)
        return found


def _as_seen(actual: Mapping[str, Any]) -> Json:
    """Metadata by which the server refuses a write that was decided on another object or version."""
    return {key: actual["metadata"][key] for key in ("uid", "resourceVersion")}


def _error(status: int, data: bytes, retry_after: str | None, what: str) -> Exception:
    """Turn an answer into one of the errors above; 401 may pass when the token is renewed."""
    answer = _status(data)
    reason, message = answer.get("reason") or "", answer.get("message") or data[:500].decode(errors="replace")
    if status in (401, 408, 429) or status >= 500:
        wait = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        return ClusterBusy(f"{what}: HTTP {status}: {message}", wait)
    if status == 404:
        return NotFound(status, reason, message)
    if status == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        return kind(status, reason, message)
    return Refused(status, reason, message)


def _status(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
