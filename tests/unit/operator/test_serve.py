"""Probes and metrics over HTTP, and the liveness verdict."""

import threading
import urllib.error
import urllib.request
from http.server import ThreadingHTTPServer

from dgl_operator.runtime import serve
from dgl_operator.runtime.serve import Answer
from dgl_operator.runtime.settings import Address


def test_routes_answer_and_others_do_not() -> None:
    """On a port of the system's choice."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), serve._handler({"/healthz": lambda: Answer(503, b"stuck\n")})
    )
    port = server.server_address[1]
    threading.Thread(target=server.serve_forever, daemon=True).start()

    found = {path: _get(f"http://127.0.0.1:{port}{path}") for path in ("/healthz", "/healthz?verbose", "/x")}
    server.shutdown()
    server.server_close()

    assert found == {
        "/healthz": (503, b"stuck\n"),
        "/healthz?verbose": (503, b"stuck\n"),
        "/x": (404, b"not found\n"),
    }


def test_port_zero_switches_a_server_off() -> None:
    """As the 2021 flag did."""
    assert serve.start(Address("", 0), {}) is None


def _get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - http on this machine
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
