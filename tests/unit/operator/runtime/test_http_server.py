"""Probes and metrics over HTTP, and the liveness verdict."""

import errno
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer

import pytest

from dgl_operator.runtime import http_server
from dgl_operator.runtime.http_server import Answer
from dgl_operator.runtime.settings import Address


def test_routes_answer_and_others_do_not() -> None:
    """On a port of the system's choice."""
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), http_server._handler({"/healthz": lambda: Answer(503, b"stuck\n")})
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
    assert http_server.start(Address("", 0), {}) is None


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this kernel has no IPv6")
def test_without_a_host_both_families_are_served() -> None:
    """The kubelet probes the primary pod IP, which is an IPv6 address where IPv6 comes first."""
    with _listening("") as port:
        found = [_get(f"http://{host}:{port}/healthz") for host in ("127.0.0.1", "[::1]")]

    assert found == [(200, b"ok\n")] * 2


@pytest.mark.parametrize("missing", [errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL])
def test_where_ipv6_is_absent_ipv4_is_served(monkeypatch: pytest.MonkeyPatch, missing: int) -> None:
    """Such a kernel refuses the socket or the address."""
    real = socket.socket.bind

    def bind(self: socket.socket, to: tuple[str, int]) -> None:
        if self.family == socket.AF_INET6:
            raise OSError(missing, "no IPv6")
        real(self, to)

    monkeypatch.setattr("socket.socket.bind", bind)

    with _listening("") as port:
        found = _get(f"http://127.0.0.1:{port}/healthz")

    assert found == (200, b"ok\n")


def test_a_host_that_was_named_is_the_only_one() -> None:
    """An administrator may keep the metrics on the loopback."""
    with _listening("127.0.0.1") as port, pytest.raises(OSError, match=r"refused|unreachable"):
        socket.create_connection(("127.0.0.2", port), timeout=60)


def test_a_port_that_is_taken_is_an_error() -> None:
    """It is not mistaken for a missing family: the operator would serve beside a stranger."""
    with socket.create_server(("0.0.0.0", 0)) as other, pytest.raises(OSError, match="in use") as caught:  # noqa: S104
        http_server.start(Address("", other.getsockname()[1]), {})

    assert caught.value.errno == errno.EADDRINUSE


@contextmanager
def _listening(host: str) -> Iterator[int]:
    server = _started(host)
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def _started(host: str) -> ThreadingHTTPServer:
    """A server on a free port, which another process may take first: then on another."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = int(free.getsockname()[1])
        try:
            server = http_server.start(Address(host, port), {"/healthz": lambda: Answer(200, b"ok\n")})
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            continue
        assert server is not None
        return server


def _get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - http on this machine
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def test_idle_connections_neither_fill_the_process_nor_keep_a_probe_out() -> None:
    """800 of them made 802 threads; the oldest make room, and a probe is answered at once."""
    with _listening("127.0.0.1") as port:
        many = 4 * http_server.MAX_CONNECTIONS
        idle = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(many)]
        closed = sum(_is_closed(each) for each in idle[: many - http_server.MAX_CONNECTIONS])
        found = _get(f"http://127.0.0.1:{port}/healthz")
        for each in idle:
            each.close()

    assert closed == many - http_server.MAX_CONNECTIONS
    assert found == (200, b"ok\n")


def test_a_connection_that_asks_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would hold one of few places for ever."""
    monkeypatch.setattr(http_server, "TIMEOUT_SECONDS", 0.1)
    with _listening("127.0.0.1") as port, socket.create_connection(("127.0.0.1", port), timeout=60) as idle:
        assert idle.recv(1) == b""


def _is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def _answer(url: str) -> tuple[int, bytes] | None:
    """What is answered; None while no place is free."""
    try:
        return _get(url)
    except OSError:
        return None
