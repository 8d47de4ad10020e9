"""A small API server on a real socket: pods with resource versions, lists, watches, a ConfigMap patch.

It speaks HTTP or HTTPS as the real one does (chunked watches, Status objects, bookmarks, 410), so the
client under test runs unchanged. Faults are ordered by tests: `break_next`, `forget_history`, `hang_up`.
"""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dglrun.kube.access import Access

NAMESPACE = "graphs"
TOKEN = "first-token"


@dataclass
class Fault:
    """How the next requests are answered: with a status, or by cutting the connection (status 0)."""

    status: int
    times: int
    retry_after: str | None = None


@dataclass
class Store:
    """Pods, their history, and what was asked."""

    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    history: list[tuple[int, str, str, dict[str, Any]]] = field(default_factory=list)
    version: int = 100
    oldest: int = 0
    config_maps: dict[str, dict[str, str]] = field(default_factory=dict)
    token: str = TOKEN
    forbidden: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    generation: int = 0
    stopped: bool = False
    changed: threading.Condition = field(default_factory=threading.Condition)


class ApiServer:
    """The server and the hands with which a test moves its world."""

    def __init__(self, folder: Path, tls: bool = False) -> None:
        self.store = Store()
        self._folder = folder
        self._http = _QuietServer(("127.0.0.1", 0), _handler(self.store))
        self.ca = _use_tls(self._http, folder) if tls else None
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def access(self) -> Access:
        """A client's way in, with a token file as the kubelet mounts it."""
        token = self._folder / "token"
        token.write_text(self.store.token + "\n")
        return Access("127.0.0.1", self.port, NAMESPACE, token, self.ca)

    def put_pod(self, name: str, uid: str = "uid-1", **status: Any) -> None:
        """Create a pod or change its status."""
        with self.store.changed:
            kind = "MODIFIED" if name in self.store.pods else "ADDED"
            self._record(kind, name, {"metadata": {"name": name, "uid": uid}, "status": status})

    def put_object(self, name: str, pod: dict[str, Any]) -> None:
        """Create or replace a pod as a whole object."""
        with self.store.changed:
            self._record("MODIFIED" if name in self.store.pods else "ADDED", name, pod)

    def delete_pod(self, name: str) -> None:
        with self.store.changed:
            self._record("DELETED", name, self.store.pods.pop(name))
            self.store.pods.pop(name)

    def forbid(self, name: str) -> None:
        """Answer requests for this pod or ConfigMap with 403."""
        self.store.forbidden.add(name)

    def allow(self, name: str) -> None:
        """Take `forbid` back."""
        self.store.forbidden.discard(name)

    def bookmark(self, name: str) -> None:
        with self.store.changed:
            self._record("BOOKMARK", name, {"metadata": {"name": name}})

    def break_next(self, status: int = 0, times: int = 1, retry_after: str | None = None) -> None:
        """Answer the next requests with this status; 0 cuts the connection without an answer."""
        with self.store.changed:
            self.store.faults.append(Fault(status, times, retry_after))

    def forget_history(self) -> None:
        """Compact: watches from before now get 410."""
        with self.store.changed:
            self.store.version += 1
            self.store.oldest = self.store.version
            self.store.history.clear()
            self.store.generation += 1
            self.store.changed.notify_all()

    def hang_up(self) -> None:
        """Cut all running watches."""
        with self.store.changed:
            self.store.generation += 1
            self.store.changed.notify_all()

    def wait_for_request(self, part: str, times: int = 1, seconds: float = 60.0) -> None:
        """Wait until requests whose line holds `part` came so many times."""

        def came() -> bool:
            return sum(part in line for line in self.store.requests) >= times

        with self.store.changed:
            assert self.store.changed.wait_for(came, seconds), self.store.requests

    def close(self) -> None:
        with self.store.changed:
            self.store.stopped = True
            self.store.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def _record(self, kind: str, name: str, pod: dict[str, Any]) -> None:
        self.store.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.store.version)}}
        if kind != "BOOKMARK":
            self.store.pods[name] = pod
        self.store.history.append((self.store.version, kind, name, pod))
        self.store.changed.notify_all()


class _QuietServer(ThreadingHTTPServer):
    """Clients that hang up or distrust the certificate are part of the tests."""

    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


@contextmanager
def running(folder: Path, tls: bool = False) -> Iterator[ApiServer]:
    """A server for the time of one test."""
    server = ApiServer(folder, tls)
    try:
        yield server
    finally:
        server.close()


def _handler(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(_Handler):
        pass

    Handler.store = store
    return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store
    generation: int

    def do_GET(self) -> None:
        if self._refused():
            return
        url = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if url.path != f"/api/v1/namespaces/{NAMESPACE}/pods":
            self._one(url.path.rpartition("/")[2])
            return
        name = query["fieldSelector"].removeprefix("metadata.name=")
        if name in self.store.forbidden:
            self._status(403, f'pods "{name}" is forbidden')
        elif "watch" in query:
            self._watch(name, int(query["resourceVersion"]))
        else:
            self._list(name)

    def do_POST(self) -> None:
        """A SelfSubjectAccessReview about a pod."""
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused():
            return
        if self.path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
            self._status(404, f"no such path: {self.path}")
            return
        about = review["spec"]["resourceAttributes"]
        kind = (about["namespace"], about["resource"], about["subresource"])
        is_allowed = kind == (NAMESPACE, "pods", "exec") and about["name"] not in self.store.forbidden
        self._send(201, {**review, "status": {"allowed": is_allowed}})

    def do_PATCH(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        if self._refused():
            return
        name = urlsplit(self.path).path.rpartition("/")[2]
        if self.headers["Content-Type"] != "application/merge-patch+json":
            self._status(415, "unsupported patch type")
        elif name in self.store.forbidden:
            self._status(403, f'configmaps "{name}" is forbidden')
        elif name not in self.store.config_maps:
            self._status(404, f'configmaps "{name}" not found')
        else:
            self.store.config_maps[name].update(json.loads(content)["data"])
            self._send(200, {"kind": "ConfigMap"})

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the tests' output quiet."""

    def _refused(self) -> bool:
        with self.store.changed:
            self.store.requests.append(f"{self.command} {self.path}")
            self.generation = self.store.generation
            fault = self.store.faults[0] if self.store.faults else None
            if fault:
                fault.times -= 1
                if fault.times == 0:
                    self.store.faults.pop(0)
            self.store.changed.notify_all()
        if fault and fault.status == 0:
            self.close_connection = True
        elif fault:
            self._status(fault.status, "ordered by the test", fault.retry_after)
        elif self.headers.get("Authorization") != f"Bearer {self.store.token}":
            self._status(401, "Unauthorized")
        else:
            return False
        return True

    def _one(self, name: str) -> None:
        if name in self.store.forbidden:
            self._status(403, f'pods "{name}" is forbidden')
        elif (pod := self.store.pods.get(name)) is None:
            self._status(404, f'pods "{name}" not found')
        else:
            self._send(200, pod)

    def _list(self, name: str) -> None:
        with self.store.changed:
            items = [pod for key, pod in self.store.pods.items() if key == name]
            version = str(self.store.version)
        self._send(200, {"metadata": {"resourceVersion": version}, "items": items})

    def _watch(self, name: str, since: int) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if since < self.store.oldest:
            self._chunk({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}})
        else:
            self._stream(name, since)
        self._end()

    def _stream(self, name: str, since: int) -> None:
        while True:
            with self.store.changed:
                self.store.changed.wait_for(partial(self._news, name, since), 60)
                if self._cut():
                    return
                events = [event for event in self.store.history if event[0] > since and event[2] == name]
            for version, kind, _, pod in events:
                since = version
                self._chunk({"type": kind, "object": pod})

    def _news(self, name: str, since: int) -> bool:
        newer = any(event[0] > since and event[2] == name for event in self.store.history)
        return newer or self._cut()

    def _cut(self) -> bool:
        return self.store.stopped or self.store.generation != self.generation

    def _chunk(self, value: dict[str, Any]) -> None:
        line = json.dumps(value).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _end(self) -> None:
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _status(self, code: int, message: str, retry_after: str | None = None) -> None:
        extra = {"Retry-After": retry_after} if retry_after else {}
        self._send(code, {"kind": "Status", "code": code, "message": message}, extra)

    def _send(self, code: int, value: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        for key, text in (headers or {}).items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _use_tls(http: ThreadingHTTPServer, folder: Path) -> Path:
    certificate, key = folder / "server.crt", folder / "server.key"
    make_certificate(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    # The handshake must not run in the accepting thread: a client that is slow would block the others.
    http.socket = context.wrap_socket(http.socket, server_side=True, do_handshake_on_connect=False)
    return certificate


def make_certificate(certificate: Path, key: Path) -> None:
    """A self-signed certificate for 127.0.0.1, its own CA."""
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "2", "-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
