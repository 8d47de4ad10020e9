"""A real API server behind `Cluster`. The only user of `kubernetes`.

The verbs here are the operator's RBAC rules: list, watch, get, create, patch (apply, mark, stop, status),
delete, events, and update of its own Lease. There is no exec. Answers are read with a bound on their size
and depth, since any object may have been written by anybody.
"""

import json
import re
import time
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import Any

import urllib3
import urllib3.exceptions
from kubernetes import client, config

from dgl_operator.domain.verdict import STOPPING_DEADLINE
from dgl_operator.runtime import decode
from dgl_operator.runtime.authorization import Authorization
from dgl_operator.runtime.cluster import (
    AlreadyExists,
    Change,
    ClusterBusy,
    Conflict,
    NotFound,
    Page,
    Place,
    Refused,
    WatchExpired,
)
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names

FIELD_MANAGER = "dgl-operator"
TIMEOUT_SECONDS = 30
WATCH_SECONDS = 280
"""The API server ends a watch after this time; it is then taken up where it stopped."""
SILENCE_SECONDS = 90
"""A watch without a byte for so long is dead: the API server sends a bookmark each minute."""
POOL = 64
"""Connections kept open: the reconcile threads, the pod creators and the watches."""

FIRST_PAGE, LARGEST_PAGE = 20, 500
PAGE_BYTES = 1 << 18
"""The size that pages are steered to, by the objects of the page before. Read objects take several times the
memory of their text, and all kinds and namespaces are listed side by side."""
MAX_ANSWER_BYTES = 8 << 20
"""No object is larger than etcd's 1.5 MiB; of a list answer beyond this a smaller page is asked for."""

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_RETRIES = urllib3.Retry(total=2, redirect=0, status=0, other=0, respect_retry_after_header=False)
"""A kept connection that the server has closed is opened again; an answer is never asked for twice here."""


@dataclass(frozen=True)
class Request:
    """One request to the API server.

    Attributes:
        path: Below the server's address, without the query.
        body: Sent as JSON that is YAML as well.
    """

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Json | None = None
    content_type: str = "application/json"

    @property
    def name(self) -> str:
        """As messages call it."""
        return f"{self.method} {self.path}"


class KubeCluster:
    """A real API server, reached by the pod's account or by KUBECONFIG.

    Args:
        timeout: Seconds for each request but watches.
        retries: How often a request is sent again whose kept connection has broken.
    """

    def __init__(self, timeout: float = TIMEOUT_SECONDS, retries: int = 2) -> None:
        self._timeout = timeout
        self._retries = _RETRIES.new(total=retries)
        settings = client.Configuration()
        try:
            config.load_incluster_config(client_configuration=settings)
        except config.ConfigException:
            config.load_kube_config(client_configuration=settings)
        settings.connection_pool_maxsize = POOL
        self._settings = settings
        self._pool: urllib3.PoolManager = client.ApiClient(settings).rest_client.pool_manager
        self._server, self._prefix = _server(self._pool, str(settings.host))
        self._authorization = Authorization(settings.auth_settings)
        self._headers = {
            "Accept": "application/json",
            "User-Agent": f"{FIELD_MANAGER}/{metadata.version('dgl-operator')}",
        }

    def pages(self, kind: Kind, namespace: str | None, job: str | None = None) -> Iterator[Page]:
        """See `Cluster`; a page is as large as the objects of the one before let expect."""
        query = {"limit": str(FIRST_PAGE), **_selector(kind, job)}
        while True:
            try:
                data = self._send(Request("GET", kind.path(namespace), query))
            except _TooLarge:
                if query["limit"] == "1":
                    raise ClusterBusy(f"GET {kind.path(namespace)}: one object is over 8 MiB") from None
                query["limit"] = str(max(1, int(query["limit"]) // 8))
                continue
            page, more = _page(kind, data)
            yield page
            if not more:
                return
            query |= {"continue": more, "limit": str(_next_page(int(query["limit"]), len(data)))}

    def watch(self, kind: Kind, namespace: str | None, version: int) -> Iterator[Change]:
        """See `Cluster`."""
        query = {
            **_selector(kind, None),
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": str(version),
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        what = f"watch {kind.path(namespace)}"
        timeout = urllib3.Timeout(connect=TIMEOUT_SECONDS, read=SILENCE_SECONDS)
        try:
            response = self._request(Request("GET", kind.path(namespace), query), timeout)
        except Refused as error:
            if error.status == 410:
                raise WatchExpired(str(error)) from error
            raise
        try:
            yield Change("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})  # it has begun
            # No name for a line: a watch would hold the last one until the next, which may be 8 MiB.
            yield from map(partial(_change, kind, what), _lines(response, what))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterBusy(f"{what}: {error}") from error
        finally:
            response.close()

    def get(self, kind: Kind, namespace: str | None, name: str) -> Json | None:
        """See `Cluster`."""
        try:
            return self._call(Request("GET", kind.path(namespace, name)))
        except NotFound:
            return None

    def serves(self, kind: Kind, verb: str = "") -> bool:
        """See `Cluster`; whoever may not discover APIs has none."""
        try:
            found = self._call(Request("GET", f"/apis/{kind.api_version}"))
        except Refused:
            return False
        resources = (each for each in found.get("resources") or () if each.get("name") == kind.plural)
        return any(not verb or verb in (each.get("verbs") or ()) for each in resources)

    def create(self, body: Json, *, rehearse: bool = False, strict: bool = True) -> Json:
        """See `Cluster`."""
        query = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict" if strict else "Ignore"}
        if rehearse:
            query["dryRun"] = "All"
        return self._call(Request("POST", Kind.of(body).path(body["metadata"]["namespace"]), query, body))

    def apply(self, body: Json, actual: Mapping[str, Any]) -> Json:
        """See `Cluster`."""
        known = {**body["metadata"], **_as_seen(actual)}
        path = Kind.of(body).path(known["namespace"], known["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return self._call(Request("PATCH", path, query, {**body, "metadata": known}, _APPLY))

    def replace(self, body: Json) -> Json:
        """See `Cluster`."""
        known = body["metadata"]
        path = Kind.of(body).path(known["namespace"], known["name"])
        return self._call(Request("PUT", path, {"fieldManager": FIELD_MANAGER}, body))

    def mark(
        self,
        kind: Kind,
        place: Place,
        metadata: Mapping[str, Mapping[str, str]],
        without: Sequence[str] = (),
    ) -> Json | None:
        """See `Cluster`."""
        data = {"data": dict.fromkeys(without)} if without else {}
        return self._merge(kind, place, {"metadata": dict(metadata), **data})

    def stop(self, place: Place) -> Json | None:
        """See `Cluster`; a deadline may be set while a pod runs, and the kubelet then ends it as failed."""
        return self._merge(Kind.POD, place, {"spec": {"activeDeadlineSeconds": STOPPING_DEADLINE}})

    def delete(self, kind: Kind, place: Place, *, force: bool = False) -> Json | None:
        """See `Cluster`."""
        body: Json = {"preconditions": {"uid": place.uid}}
        if force:
            body["gracePeriodSeconds"] = 0
        try:
            found = self._call(Request("DELETE", kind.path(place.namespace, place.name), None, body))
        except (NotFound, Conflict):
            return None
        # An object that went with this very request has the timestamp, too, but no version any more.
        is_leaving = {"deletionTimestamp", "resourceVersion"} <= (found.get("metadata") or {}).keys()
        return found if is_leaving else None

    def delete_job(self, job: Mapping[str, Any]) -> None:
        """See `Cluster`; its dependents go first, as those of a batch/v1 Job do."""
        known = job["metadata"]
        body = {"propagationPolicy": "Foreground", "preconditions": _as_seen(job)}
        with suppress(NotFound):
            self._call(Request("DELETE", Kind.JOB.path(known["namespace"], known["name"]), None, body))

    def write_status(self, job: Mapping[str, Any], status: Json) -> Json:
        """See `Cluster`.

        The version makes the write safe: the status subresource of a custom resource takes the stored
        metadata before it validates, so that a wrong UID alone would pass and the status of a deleted
        job would land on its successor of the same name.
        """
        known = job["metadata"]
        body = {
            "apiVersion": Kind.JOB.api_version,
            "kind": Kind.JOB.value[0],
            "metadata": {"name": known["name"], "namespace": known["namespace"], **_as_seen(job)},
            "status": status,
        }
        path = Kind.JOB.path(known["namespace"], known["name"]) + "/status"
        return self._call(
            Request("PATCH", path, {"fieldManager": FIELD_MANAGER, "force": "true"}, body, _APPLY)
        )

    def patch_status(self, actual: Mapping[str, Any], status: Json) -> Json:
        """See `Cluster`."""
        known = actual["metadata"]
        path = Kind.of(actual).path(known["namespace"], known["name"]) + "/status"
        body = {"metadata": _as_seen(actual), "status": status}
        return self._call(Request("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, _MERGE))

    def post_event(self, body: Json) -> None:
        """See `Cluster`."""
        self._call(Request("POST", Kind.EVENT.path(body["metadata"]["namespace"]), None, body))

    def _merge(self, kind: Kind, place: Place, change: Json) -> Json | None:
        """Change one object; the server calls another UID an invalid change of an immutable field."""
        body = {**change, "metadata": {**change.get("metadata", {}), "uid": place.uid}}
        path, query = kind.path(place.namespace, place.name), {"fieldManager": FIELD_MANAGER}
        try:
            return self._call(Request("PATCH", path, query, body, _MERGE))
        except Refused as error:
            if error.status in (404, 409, 422):
                return None
            raise

    def _call(self, request: Request) -> Json:
        try:
            return decode.one(self._send(request))
        except _TooLarge:
            raise ClusterBusy(f"{request.name}: the answer is over 8 MiB") from None
        except decode.DecodeError as error:  # a proxy's page in between, perhaps
            raise ClusterBusy(f"{request.name}: {error}") from error

    def _send(self, request: Request) -> bytes:
        response = self._request(request, urllib3.Timeout(total=self._timeout))
        try:
            data = _read(response, request.name, time.monotonic() + self._timeout)
        except _TooLarge:
            response.close()
            raise
        response.release_conn()
        return data

    def _request(self, request: Request, timeout: urllib3.Timeout) -> urllib3.BaseHTTPResponse:
        words = f"?{urllib.parse.urlencode(request.query, safe='/')}" if request.query else ""
        known_by = self._authorization.headers()
        headers = {**self._headers, "Content-Type": request.content_type, **known_by}
        try:
            response = self._server.urlopen(
                request.method,
                f"{self._prefix}{request.path}{words}",
                body=None if request.body is None else _text(request.body),
                headers=headers,
                timeout=timeout,
                retries=self._retries,
                preload_content=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterBusy(f"{request.name}: {error}") from error
        if response.status < 400:
            return response
        try:
            data = _read(response, request.name, time.monotonic() + self._timeout)
        finally:
            response.release_conn()
        if response.status == 401:
            self._authorization.forget(known_by)
        raise _error(response.status, data, response.headers.get("Retry-After"), request.name)


def _server(
    pool: urllib3.PoolManager, host: str
) -> tuple[urllib3.PoolManager | urllib3.HTTPConnectionPool, str]:
    """Return what sends requests to the one server, and what comes before their paths.

    A pool manager reads the URL and looks for the server's connections with each request, which takes it a
    tenth of a millisecond; but only it knows how to ask a proxy.
    """
    if pool.proxy is not None:
        return pool, host
    return pool.connection_from_url(host), (urllib3.util.parse_url(host).path or "").rstrip("/")


_NOT_PLAIN = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
"""Characters that YAML does not take as they are, or takes for the end of a line."""


def _text(body: Json) -> bytes:
    """Return JSON that is YAML as well, as which an applied object is read.

    YAML knows no escapes of surrogate pairs, so that other characters than the above are not escaped.
    """
    text = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
    if text.isascii() and "\x7f" not in text:  # nearly always, and found out in no time
        return text.encode()
    return _NOT_PLAIN.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


class _TooLarge(Exception):
    """An answer is over the bound."""


def _read(response: urllib3.BaseHTTPResponse, what: str, deadline: float) -> bytes:
    """Read a whole answer; a server that sends it byte by byte does not hold a thread for ever."""
    parts, size = [], 0
    try:
        for part in response.stream(1 << 16):
            parts.append(part)
            size += len(part)
            if size > MAX_ANSWER_BYTES:
                raise _TooLarge(what)
            if time.monotonic() > deadline:
                raise ClusterBusy(f"{what}: no whole answer in time")
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise ClusterBusy(f"{what}: {error}") from error
    return b"".join(parts)


def _lines(response: urllib3.BaseHTTPResponse, what: str) -> Iterator[bytes]:
    """Yield the lines of a stream; the pieces of a long one are joined once, when it is whole."""
    pieces: list[bytes] = []
    size = 0
    for part in response.stream(1 << 16):
        *whole, rest = part.split(b"\n")
        for end in whole:
            yield b"".join([*pieces, end])
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_ANSWER_BYTES:
            raise ClusterBusy(f"{what}: one event is over 8 MiB")


def _page(kind: Kind, data: bytes) -> tuple[Page, str | None]:
    """Return a page and the token of the next, None after the last."""
    try:
        answer = decode.listed(data)
        version = int(answer["metadata"]["resourceVersion"])
        items = tuple(_typed(kind, item) for item in answer["items"] or ())
    except (decode.DecodeError, KeyError) as error:
        raise ClusterBusy(
            f"list of {kind.plural}: expected a list, got an answer without: {error}"
        ) from error
    return Page(items, version), answer["metadata"].get("continue") or None


def _change(kind: Kind, what: str, line: bytes) -> Change:
    """Read one event.

    Raises:
        WatchExpired: the API server says that the version is too old.
        ClusterBusy: it ends the watch for another reason.
    """
    try:
        type_, item = decode.event(line)
    except decode.DecodeError as error:
        raise ClusterBusy(f"{what}: {error}") from error
    if type_ != "ERROR":
        return Change(type_, _typed(kind, item))
    if item.get("code") == 410:
        raise WatchExpired(str(item.get("message")))
    raise ClusterBusy(f"{what}: {item.get('message')}", status=int(item.get("code") or 0))


def _typed(kind: Kind, item: Json) -> Json:
    """Items of a list do not say what they are."""
    return {**item, "kind": kind.value[0], "apiVersion": kind.api_version}


def _selector(kind: Kind, job: str | None) -> dict[str, str]:
    if kind is Kind.JOB:
        return {}
    return {"labelSelector": f"{names.LABEL_JOB}={job}" if job else names.LABEL_JOB}


def _next_page(limit: int, size: int) -> int:
    """Objects for the next page, by the bytes of the last; it grows slowly and shrinks at once."""
    return max(1, min(limit * PAGE_BYTES // max(size, 1), limit * 4, LARGEST_PAGE))


def _as_seen(actual: Mapping[str, Any]) -> Json:
    """Metadata by which the server refuses a write that was decided on another object or version."""
    return {key: actual["metadata"][key] for key in ("uid", "resourceVersion")}


def _error(status: int, data: bytes, retry_after: str | None, what: str) -> Exception:
    """Turn an answer into one of the errors above; 401 may pass when the token is renewed."""
    answer = _status(data)
    reason, message = answer.get("reason") or "", answer.get("message") or data[:500].decode(errors="replace")
    if status in (401, 408, 429) or status >= 500:
        wait = float(retry_after) if retry_after and retry_after.isdecimal() else 0.0
        return ClusterBusy(f"{what}: HTTP {status}: {message}", wait, status, reason)
    if status == 404:
        return NotFound(status, reason, message)
    if status == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
        return kind(status, reason, message)
    return Refused(status, reason, message)


def _status(data: bytes) -> Json:
    try:
        return decode.one(data)
    except decode.DecodeError:
        return {}
