"""What runs in the pods of the benchmark `transfer`; its text is copied there, beside the image's own dglrun.

    give PLAIN|TLS FILE...       print a port, accept one connection, send the files one after the other
    take PLAIN|TLS IP PORT SIZE:FILE...    receive them
    deliver                      one `Serve` step of dglrun, as JSON on stdin

TLS wants keys as a line of JSON on stdin.
"""

import json
import os
import socket
import ssl
import sys
from pathlib import Path
from typing import Any

BLOCK = 1 << 20
OWNER = "owner"


def main(argv: list[str]) -> None:
    """Do one of the above."""
    match argv:
        case ["give", how, *files]:
            give(how, files)
        case ["take", how, ip, port, *files]:
            take(how, ip, int(port), files)
        case ["deliver"]:
            deliver(json.loads(sys.stdin.readline()))
        case _:
            sys.exit(f"expected give, take or deliver, got {argv}")


def give(how: str, files: list[str]) -> None:
    """Send files over one connection."""
    context = _context(how, is_server=True)
    with socket.create_server(("", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        connection, _ = listener.accept()
    peer = context.wrap_socket(connection, server_side=True) if context else connection
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with peer:
        for name in files:
            with Path(name).open("rb", buffering=0) as file:
                while count := file.readinto(buffer):
                    peer.sendall(view[:count])
        if context:
            peer.recv(1)  # the other end closes when it has all


def take(how: str, ip: str, port: int, files: list[str]) -> None:
    """Receive files of known sizes over one connection."""
    context = _context(how, is_server=False)
    connection = socket.create_connection((ip, port))
    peer = context.wrap_socket(connection, server_hostname=OWNER) if context else connection
    view = memoryview(bytearray(BLOCK))
    with peer:
        for each in files:
            size, _, name = each.partition(":")
            left = int(size)
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            with Path(name).open("wb", buffering=0) as file:
                while left:
                    count = peer.recv_into(view[: min(left, BLOCK)])
                    if not count:
                        sys.exit("cut short")
                    file.write(view[:count])
                    left -= count


def deliver(raw: dict[str, Any]) -> None:
    """Serve a partition as dglrun does."""
    from dglrun.transfer.partition_files import PartitionFiles  # noqa: PLC0415 - the others need no dglrun
    from dglrun.transfer.streams import Streams  # noqa: PLC0415
    from dglrun.workflow.part_delivery import PartDelivery  # noqa: PLC0415
    from dglrun.workflow.steps import Puller, Serve  # noqa: PLC0415

    pullers = tuple(Puller(**{**each, "argv": tuple(each["argv"])}) for each in raw["pullers"])
    step = Serve(**{**raw, "pullers": pullers})
    partition = PartitionFiles.find(Path(step.config), len(pullers) if len(pullers) > 1 else 2)
    PartDelivery(
        step, partition, Streams(), lambda _pod: None, lambda _pod: None, lambda _line, _percent: None
    ).run()


def _context(how: str, *, is_server: bool) -> ssl.SSLContext | None:
    if how == "PLAIN":
        return None
    from dglrun.agent import tls  # noqa: PLC0415 - as above

    keys = tls.decode(sys.stdin.readline())
    return tls.server_context(keys) if is_server else tls.client_context(keys)


if __name__ == "__main__":
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # no thread and no buffer is waited for
