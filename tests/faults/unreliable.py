"""A proxy before the API server that is slow, refuses, or does what it is asked and says that it has not."""

import contextlib
import http.server
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3
import yaml

from tests.support.api_client import ApiServer

READS = ("GET", "HEAD")
REASONS = {
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
}
DELAYS = (0.2, 0.5, 2.0)
"""Seconds that a slow answer takes."""


class Fate:
    """What becomes of each request, by chance; counts it by name. Safe for several threads.

    Watches are few, so that chance alone may expire none: the first `expired` ones are answered with 410.
    """

    def __init__(self, seed: int, share: float, expired: int = 0) -> None:
        self.counts: Counter[str] = Counter()
        self._rng = random.Random(seed)  # noqa: S311 - a seed draws the same again
        self._share, self._expired = share, expired
        self._lock = threading.Lock()

    def draw(self, method: str, *, is_watch: bool) -> str:
        """`good`, `slow`, a status code that is answered, or `lost`: done, and answered with 500."""
        with self._lock:
            found = self._drawn(method, is_watch=is_watch)
            self.counts[found] += 1
            return found

    def delay(self) -> float:
        """Seconds of a slow answer."""
        with self._lock:
            return self._rng.choice(DELAYS)

    def _drawn(self, method: str, *, is_watch: bool) -> str:
        if is_watch and self._expired:
            self._expired -= 1
            return "410"
        if self._rng.random() >= self._share:
            return "good"
        common = ["slow", "429", "500", "503"]
        if is_watch:
            return self._rng.choice([*common, "410"])
        return self._rng.choice(common if method in READS else [*common, "409", "lost"])


class _Handler(http.server.BaseHTTPRequestHandler):
    """Forwards one request, or not."""

    protocol_version = "HTTP/1.1"
    server: "Proxy"

    def log_message(self, *args: object) -> None:
        """Say nothing."""

    def _any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else None
        is_watch = "watch=1" in self.path
        fate = self.server.fate.draw(self.command, is_watch=is_watch)
        if fate.isdecimal():
            self._refuse(int(fate))
            return
        if fate == "slow":
            time.sleep(self.server.fate.delay())
        answer = self.server.forward(self.command, self.path, dict(self.headers), body)
        try:
            if fate == "lost":
                answer.drain_conn()
                self._refuse(500)
            elif is_watch:
                self._stream(answer)
            else:
                data = answer.read()
                self._answer(answer.status, data, answer.headers.get("Retry-After"))
        finally:
            if is_watch:
                answer.close()
            else:
                answer.release_conn()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815

    def _refuse(self, code: int) -> None:
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        body = {**status, "reason": REASONS[code], "message": "told to refuse"}
        self._answer(code, json.dumps(body).encode(), "1" if code == 429 else None)

    def _answer(self, code: int, data: bytes, retry_after: str | None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if retry_after:
            self.send_header("Retry-After", retry_after)
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, answer: urllib3.BaseHTTPResponse) -> None:
        """Pass on a watch chunk by chunk, as it comes; it ends with its connection."""
        self.send_response(answer.status)
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        with contextlib.suppress(OSError, urllib3.exceptions.HTTPError):
            for part in answer.stream(1 << 16):
                self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")


class Proxy(http.server.ThreadingHTTPServer):
    """Listens on this machine, without TLS; the caller's token goes on to the API server."""

    daemon_threads = True

    def __init__(self, host: str, authority: Path, fate: Fate) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fate, self._host = fate, host
        self._pool = urllib3.PoolManager(64, ca_certs=str(authority), maxsize=64, retries=False)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def forward(
        self, method: str, path: str, headers: dict[str, str], body: bytes | None
    ) -> urllib3.BaseHTTPResponse:
        """Ask the API server, and return its answer unread."""
        kept = {key: value for key, value in headers.items() if key not in ("Host", "Connection")}
        return self._pool.request(
            method, f"{self._host}{path}", headers=kept, body=body, preload_content=False
        )

    def handle_error(self, request: object, client_address: object) -> None:
        """A caller that has gone is none of ours."""


@contextmanager
def before(api: ApiServer, kubeconfig: Path, folder: Path, fate: Fate) -> Iterator[Path]:
    """Return a kubeconfig that leads through a proxy for the time of the block."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    proxy = Proxy(cluster["server"], api.authority, fate)
    thread = threading.Thread(target=proxy.serve_forever, name="proxy", daemon=True)
    thread.start()
    config["clusters"][0]["cluster"] = {"server": proxy.address}
    written = folder / "unreliable.kubeconfig"
    written.write_text(yaml.safe_dump(config))
    try:
        yield written
    finally:
        proxy.shutdown()
        proxy.server_close()
