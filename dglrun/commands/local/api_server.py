"""The API server of a local run: its pods by name, and the report that they write. HTTP with one token.

It listens where the pods alone reach it, or on the loopback interface.
"""

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = Mapping[str, Any]
GetPod = Callable[[str], Json | None]
Report = Callable[[Mapping[str, str]], None]

_LARGEST = 1 << 20


class LocalApiServer:
    """Serves from its own threads.

    Args:
        address: Where it listens; port 0: a free one.
        token: What pods prove themselves with.
        get_pod: A pod as an object; None: there is none.
        report: Takes the keys that a pod has changed in the report.
    """

    def __init__(self, address: tuple[str, int], token: str, get_pod: GetPod, report: Report) -> None:
        self._server = _Server(address, token, get_pod, report)
        threading.Thread(target=self._server.serve_forever, args=(0.1,), name="api", daemon=True).start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], token: str, get_pod: GetPod, report: Report) -> None:
        super().__init__(address, _Handler)
        self.token, self.get_pod, self.report = token, get_pod, report

    def handle_error(self, _request: Any, _address: Any) -> None:
        """A caller that goes away is nothing to tell."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 30.0

    def do_GET(self) -> None:
        """One pod by name."""
        kind, name = self._object()
        found = self.server.get_pod(name) if kind == "pods" else None
        if self._may():
            self._send(200, found) if found else self._refuse(404, f"{kind} {name!r} not found")

    def do_PATCH(self) -> None:
        """The report's keys."""
        size = int(self.headers.get("Content-Length") or 0)
        kind, name = self._object()
        if not self._may():
            return
        if kind != "configmaps" or size > _LARGEST:
            self._refuse(404, f"{kind} {name!r} not found")
            return
        data = json.loads(self.rfile.read(size)).get("data") or {}
        self.server.report(data)
        self._send(200, {"metadata": {"name": name}, "data": data})

    def log_message(self, *_: Any) -> None:
        """The run's own lines say what happens."""

    def _object(self) -> tuple[str, str]:
        """Kind and name of /api/v1/namespaces/NAMESPACE/KIND/NAME."""
        words = self.path.partition("?")[0].split("/")
        return (words[5], words[6]) if len(words) == 7 else ("", "")

    def _may(self) -> bool:
        allowed = self.headers.get("Authorization") == f"Bearer {self.server.token}"
        if not allowed:
            self._refuse(401, "Unauthorized")
        return allowed

    def _refuse(self, code: int, message: str) -> None:
        self._send(code, {"kind": "Status", "code": code, "message": message})

    def _send(self, code: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
