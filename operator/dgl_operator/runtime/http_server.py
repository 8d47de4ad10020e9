"""A tiny HTTP server for probes and metrics, in its own thread so that it tells a stuck event loop."""

import contextlib
import errno
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dgl_operator.runtime.settings import Address


@dataclass(frozen=True)
class Answer:
    """What a path answers."""

    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]

MAX_CONNECTIONS = 16
"""Connections at once, each with a thread; a further one closes the oldest."""
TIMEOUT_SECONDS = 5.0
"""A connection that asks nothing for so long is closed."""

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)
"""What a kernel without IPv6 says to its socket or to its address."""


def start(address: Address, routes: Routes) -> ThreadingHTTPServer | None:
    """Serve GET on the routes; None when the address switches it off.

    Without a host it listens on every address of both families: the kubelet probes the pod's primary
    address, which is an IPv6 one on clusters that put IPv6 first.

    Raises:
        OSError: the address is not free.
    """
    if address.port == 0:
        return None
    server = _listen(address, _handler(routes))
    threading.Thread(target=server.serve_forever, name=f"http :{address.port}", daemon=True).start()
    return server


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = threading.Lock()  # connections come in one thread and end in their own
        self._open: OrderedDict[Any, None] = OrderedDict()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Take IPv4 clients on an IPv6 socket, too, whatever the node's default is."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection; where there are many, the oldest makes room.

        Idle or slow ones must neither fill the process with threads nor keep the kubelet's probe out.
        """
        with self._lock:
            self._open[request] = None
            surplus = [next(iter(self._open))] if len(self._open) > MAX_CONNECTIONS else []
            for oldest in surplus:
                del self._open[oldest]
        for oldest in surplus:
            with contextlib.suppress(OSError):  # its client may have gone
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that ends."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is not worth a line."""


def _listen(address: Address, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    if address.host:
        return _Server(address.host, address.port, handler)
    try:
        return _Server("::", address.port, handler)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
    return _Server("0.0.0.0", address.port, handler)  # noqa: S104 - the kubelet asks from outside


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = TIMEOUT_SECONDS

        def do_GET(self) -> None:
            """Answer one request."""
            route = routes.get(self.path.partition("?")[0])
            answer = route() if route else Answer(404, b"not found\n")
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.text)))
            self.end_headers()
            self.wfile.write(answer.text)

        def log_message(self, format: str, *args: object) -> None:
            """Probes are not worth a line."""

    return Handler
