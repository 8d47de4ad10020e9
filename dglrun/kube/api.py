"""Requests that job pods send to the API server: single pods by name, one ConfigMap, what they may do.

Safe for many threads: each request has its own connection, and the TLS context is shared.
"""

import http.client
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from dglrun.kube.access import Access
from dglrun.kube.errors import ApiError, Expired, Forbidden, NotFound, Refused, Unavailable
from dglrun.kube.pods import Pod
from dglrun.kube.retry import Backoff, until_available

REQUEST_SECONDS = 10.0
"""A request without an answer for so long counts as failed."""
FORBIDDEN_SECONDS = 30.0
"""For so long after the start of a pod's program 403 is repeated: the operator binds the job's Role to the
account only when the pods that the Role names exist, and an authorizer may read the binding late."""
OUTAGE = Backoff(longest=5.0, give_up_after=900.0)
"""A control plane may be away for ten minutes while it is upgraded, and then has others to serve first."""
WATCH_SECONDS = 240
"""The server ends a watch after so long; it is then taken up again."""

_EXEC_VERBS = ("create", "get")
"""Either may be what a release of kubectl and API server asks for; the operator grants both."""
_CONTENT = {"PATCH": "application/merge-patch+json", "POST": "application/json"}


class PodEvent(NamedTuple):
    """One event of a watch.

    Attributes:
        kind: ADDED, MODIFIED, DELETED or BOOKMARK.
        pod: The pod after the event; of a BOOKMARK only the resource version counts.
    """

    kind: str
    pod: Pod


class Listed(NamedTuple):
    """A pod as a list found it.

    Attributes:
        pod: None when it does not exist.
        resource_version: From where to watch.
    """

    pod: Pod | None
    resource_version: str


class Api:
    """The API server of one job's pod.

    Args:
        access: Where it is and who we are.
        backoff: How long and how often requests are repeated while the server is unavailable.
        forbidden_seconds: How long from now on 403 is repeated, too, and after each time that the server was
            away: one that starts answers before it has read all bindings.
        on_wait: Called before each pause until a request is repeated, with what has failed.
    """

    def __init__(
        self,
        access: Access,
        backoff: Backoff | None = None,
        forbidden_seconds: float = 0.0,
        on_wait: Callable[[ApiError], None] = lambda _error: None,
    ) -> None:
        self.access = access
        self._on_wait = on_wait
        self.backoff = backoff or Backoff()
        self._forbidden_seconds = forbidden_seconds
        self._allowed_by = time.monotonic() + forbidden_seconds
        self._tls = access.tls()

    @classmethod
    def in_cluster(
        cls, namespace: str | None = None, on_wait: Callable[[ApiError], None] = lambda _error: None
    ) -> "Api":
        """The client of the pod that this process runs in, as patient as OUTAGE and FORBIDDEN_SECONDS say.

        Raises:
            NotInCluster: it runs in none.
        """
        return cls(Access.in_cluster(os.environ, namespace), OUTAGE, FORBIDDEN_SECONDS, on_wait)

    def at_once(self) -> "Api":
        """The same server for questions that are asked again anyway: each is one request, 403 an answer."""
        return Api(self.access, Backoff(give_up_after=0.0))

    def get_pod(self, name: str) -> Pod:
        """Read one pod (verb get).

        Raises:
            NotFound: there is none.
            Forbidden: the account may not read it.
            Unavailable: no answer before the backoff gave up.
        """
        return self._json("GET", self._pods(quote(name)))

    def list_pod(self, name: str) -> Listed:
        """Read one pod, existing or not, and from where to watch it (verb list with the field selector).

        Raises:
            Forbidden: the account may not list it.
            Unavailable: no answer before the backoff gave up.
        """
        found = self._json("GET", self._pods(), {"fieldSelector": f"metadata.name={name}"})
        items = found.get("items") or [None]
        return Listed(items[0], found["metadata"]["resourceVersion"])

    def watch_pod(self, name: str, resource_version: str) -> Iterator[PodEvent]:
        """Yield what happens to one pod after `resource_version` (verb watch with the field selector).

        Ends normally when the server ends the watch, which it does after WATCH_SECONDS; the caller
        goes on from the last resource version seen, bookmarks included. One try, no backoff.

        Raises:
            Expired: the resource version is too old; list again.
            Forbidden: the account may not watch it.
            Unavailable: the connection broke or could not be made.
        """
        query = {
            "fieldSelector": f"metadata.name={name}",
            "watch": "1",
            "allowWatchBookmarks": "1",
            "timeoutSeconds": str(WATCH_SECONDS),
            "resourceVersion": resource_version,
        }
        with self._answer("GET", self._pods(), query, timeout=WATCH_SECONDS + REQUEST_SECONDS) as answer:
            while line := _line(answer):
                yield _event(line)

    def follow_pod(self, name: str) -> Iterator[Pod | None]:
        """Yield a pod as it is now, then after each change; None while it does not exist.

        Endless. Lists and watches again as needed (410, end of the watch, broken connection), so a
        state in between may be skipped, but never the latest one.

        Raises:
            Forbidden: the account may not list or watch it.
            Unavailable: no answer before the backoff gave up.
        """
        while True:
            pod, version = self.list_pod(name)
            yield pod
            try:
                yield from self._changes(name, version)
            except (Expired, Unavailable):
                # list_pod has the backoff; this pause is for a server that lists but does not watch.
                time.sleep(next(self.backoff.pauses()))

    def require_exec(self, name: str) -> None:
        """Ask whether this account may exec into a pod; the answer costs the pod nothing.

        Raises:
            Forbidden: it may not.
            ApiError: nobody says.
        """
        once = replace(self.backoff, give_up_after=0.0)  # each request is repeated for itself
        until_available(lambda: self._require_exec(name), once, lambda: self._allowed_by)

    def _require_exec(self, name: str) -> None:
        answers = [self._review(name, verb) for verb in _EXEC_VERBS]
        if not any(answer.get("allowed") for answer in answers):
            reason = answers[0].get("reason") or "no rule allows it"
            raise Forbidden(f"this account may not exec into pod {name}: {reason}")

    def _review(self, name: str, verb: str) -> dict[str, Any]:
        about = {"namespace": self.access.namespace, "name": name, "resource": "pods", "subresource": "exec"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {**about, "verb": verb}},
        }
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        status: dict[str, Any] = self._json("POST", path, body=json.dumps(review)).get("status", {})
        return status

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Set keys of a ConfigMap, leaving its others (merge patch, RFC 7396).

        Raises:
            NotFound: there is none.
            Forbidden: the account may not patch it.
            Refused: the server does not take it, for example because it is too large.
            Unavailable: no answer before the backoff gave up.
        """
        path = f"/api/v1/namespaces/{quote(self.access.namespace)}/configmaps/{quote(name)}"
        self._json("PATCH", path, body=json.dumps({"data": dict(data)}))

    def _changes(self, name: str, version: str) -> Iterator[Pod | None]:
        while True:
            for kind, pod in self.watch_pod(name, version):
                version = pod["metadata"]["resourceVersion"]
                if kind != "BOOKMARK":
                    yield None if kind == "DELETED" else pod

    def _pods(self, name: str = "") -> str:
        base = f"/api/v1/namespaces/{quote(self.access.namespace)}/pods"
        return f"{base}/{name}" if name else base

    def _json(
        self, method: str, path: str, query: Mapping[str, str] | None = None, body: str | None = None
    ) -> dict[str, Any]:
        def once() -> dict[str, Any]:
            with self._answer(method, path, query or {}, body) as answer:
                return _object(answer.read())

        return until_available(once, self.backoff, lambda: self._allowed_by, self._on_wait)

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: str | None = None,
        timeout: float = REQUEST_SECONDS,
    ) -> Iterator[http.client.HTTPResponse]:
        """One request; the answer is good (2xx) or raised as an error, and the connection is closed after."""
        url = f"{path}?{urlencode(query)}" if query else path
        connection = self._connection()
        try:
            connection.connect()
            stream: socket.socket = connection.sock
            _keep_alive(stream)
            connection.request(method, url, body=body, headers=self._headers(method))
            answer = connection.getresponse()
            if answer.status >= 300:
                raise _error(answer, f"{method} {path}")
            stream.settimeout(timeout)
            yield answer
        except Unavailable:
            self._was_away()
            raise
        except (OSError, http.client.HTTPException) as error:
            self._was_away()
            raise Unavailable(f"{method} {path}: {type(error).__name__}: {error}") from error
        finally:
            connection.close()

    def _was_away(self) -> None:
        self._allowed_by = max(self._allowed_by, time.monotonic() + self._forbidden_seconds)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self.access.host, self.access.port
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=REQUEST_SECONDS)
        return http.client.HTTPSConnection(host, port, timeout=REQUEST_SECONDS, context=self._tls)

    def _headers(self, method: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "dglrun"}
        if (token := self.access.token()) is not None:
            headers["Authorization"] = f"Bearer {token}"
        if method in _CONTENT:
            headers["Content-Type"] = _CONTENT[method]
        return headers


def _keep_alive(stream: socket.socket) -> None:
    """Notice within half a minute that the server's machine is gone, also on a silent watch."""
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):  # Linux; macOS lacks the first
            stream.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)


def _line(answer: http.client.HTTPResponse) -> bytes:
    """The next event of a watch; empty at its end.

    Raises:
        Unavailable: the stream ended within an event.
    """
    line = answer.readline()
    if line and not line.endswith(b"\n"):
        raise Unavailable("watch: the connection ended within an event")
    return line


def _event(line: bytes) -> PodEvent:
    event = _object(line)
    kind, pod = event["type"], event["object"]
    if kind == "ERROR":
        raise _status_error(int(pod.get("code") or 500), f"watch: {pod.get('message', '')}", None)
    return PodEvent(kind, pod)


def _object(content: bytes) -> dict[str, Any]:
    try:
        value = json.loads(content)
    except ValueError as error:
        raise Unavailable(f"the answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Unavailable(f"the answer is not a JSON object but {type(value).__name__}")
    return value


def _error(answer: http.client.HTTPResponse, what: str) -> ApiError:
    content = answer.read(65536)
    try:
        reason = str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        reason = content.decode(errors="replace").strip()[:500] or answer.reason
    return _status_error(answer.status, f"{what}: {answer.status} {reason}", answer.getheader("Retry-After"))


def _status_error(status: int, message: str, retry_after: str | None) -> ApiError:
    """Sort an HTTP status by what can be done about it.

    401 is worth another try: a token that the kubelet is just rotating is good then.
    """
    known = {403: Forbidden, 404: NotFound, 410: Expired}
    if status in known:
        return known[status](message)
    if status in (401, 408, 429) or status >= 500:
        seconds = float(retry_after) if retry_after and retry_after.isdigit() else None
        return Unavailable(message, seconds)
    return Refused(message)
