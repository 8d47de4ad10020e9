"""`python -m dglrun.transfer.send_output`: sends a worker's output folder home, by an order on stdin.

A fork of the worker's agent runs it. It connects once: the launcher tells the agent again if nothing comes.
"""

import json
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from dglrun.agent import tls
from dglrun.contract import exitcodes
from dglrun.transfer import output_stream
from dglrun.transfer.pull import order as orders
from dglrun.transfer.pull import wire

CONNECT_SECONDS = 10.0


@dataclass(frozen=True)
class SendOrder:
    """What is sent to whom.

    Attributes:
        owner: The name in the launcher's certificate.
        host: Where it listens.
        port: Where it listens.
        keys: This worker's own.
        folder: The output folder here.
        marker: Name of a file in it if it is the launcher's own.
    """

    owner: str
    host: str
    port: int
    keys: tls.Keys
    folder: str
    marker: str


def encode(order: SendOrder) -> str:
    """Write an order as one line of JSON."""
    return json.dumps(asdict(order))


def main() -> int:
    """Send; returns the exit code."""
    try:
        order = orders.read(sys.stdin.readline(), SendOrder, "an order to send the output")
    except orders.OrderError as error:
        sys.stderr.write(f"dglrun.transfer.send_output: {error}\n")
        return exitcodes.USAGE
    try:
        with (
            socket.create_connection((order.host, order.port), CONNECT_SECONDS) as raw,
            tls.client_context(order.keys).wrap_socket(raw, server_hostname=order.owner) as connection,
        ):
            wire.configure(connection)
            output_stream.send(connection, Path(order.folder), order.marker)
    except OSError as error:
        sys.stderr.write(f"the output could not be sent: {error}\n")
        return exitcodes.UNAVAILABLE
    return exitcodes.OK


if __name__ == "__main__":
    sys.exit(main())
