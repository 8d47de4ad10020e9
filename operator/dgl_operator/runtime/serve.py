"""A tiny HTTP server for probes and metrics, in its own thread so that it tells a stuck event loop."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from dgl_operator.runtime.settings import Address


@dataclass(frozen=True)
class Answer:
    """What a path answers."""

    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


Routes = Mapping[str, Callable[[], Answer]]


def start(address: Address, routes: Routes) -> ThreadingHTTPServer | None:
    """Serve GET on the routes; None when the address switches it off.

    Raises:
        OSError: the address is not free.
    """
    if address.port == 0:
        return None
    server = ThreadingHTTPServer((address.host, address.port), _handler(routes))
    threading.Thread(target=server.serve_forever, name=f"http :{address.port}", daemon=True).start()
    return server


def _handler(routes: Routes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
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
