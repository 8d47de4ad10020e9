"""The address files of a job's ConfigMap: one parser and one writer for each format.

hostfile, partfile and leadfile have `<ip> <port> <pod>` with ` slots=<n>` on the hostfile's lines;
ipconfig has `<ip> <port> <worker num> <pod> <gpu num>`; DGL's own ip_config has `<ip> <port>`.
A file is published whole or not at all, so a reader knows an unfinished file by its line count.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass


class HostfileError(ValueError):
    """A line is not what the format demands; names the line, what was expected and what was found."""


@dataclass(frozen=True)
class Host:
    """One pod's line.

    Attributes:
        ip: IPv4 literal of the pod (DGL takes nothing else).
        port: DGL server port.
        name: Pod name.
        slots: MPI slots, only on the hostfile's lines.
    """

    ip: str
    port: int
    name: str
    slots: int | None = None


@dataclass(frozen=True)
class Worker:
    """One line of ipconfig: a worker with its index from 0 and its number of GPUs."""

    ip: str
    port: int
    index: int
    name: str
    gpus: int


def format_hosts(hosts: Iterable[Host]) -> str:
    """Write hostfile, partfile or leadfile text; the empty text for no hosts."""
    return "".join(_host_line(host) + "\n" for host in hosts)


def format_workers(workers: Iterable[Worker]) -> str:
    """Write ipconfig text; the empty text for no workers."""
    return "".join(f"{w.ip} {w.port} {w.index} {w.name} {w.gpus}\n" for w in workers)


def format_dgl(hosts: Iterable[Host]) -> str:
    """Write DGL's two-column ip_config: line i is machine i."""
    return "".join(f"{host.ip} {host.port}\n" for host in hosts)


def parse_hosts(text: str) -> tuple[Host, ...]:
    """Read hostfile, partfile or leadfile text.

    Raises:
        HostfileError: a line has another shape, or two lines name one pod.
    """
    hosts = tuple(_parse_host(number, line) for number, line in _lines(text))
    _refuse_duplicates([host.name for host in hosts])
    return hosts


def parse_workers(text: str) -> tuple[Worker, ...]:
    """Read ipconfig text.

    Raises:
        HostfileError: a line has another shape, or two lines name one pod.
    """
    found = tuple(_parse_worker(number, line) for number, line in _lines(text))
    _refuse_duplicates([worker.name for worker in found])
    return found


def _lines(text: str) -> Iterable[tuple[int, str]]:
    return enumerate(text.splitlines(), start=1)


def _host_line(host: Host) -> str:
    slots = "" if host.slots is None else f" slots={host.slots}"
    return f"{host.ip} {host.port} {host.name}{slots}"


def _parse_host(number: int, line: str) -> Host:
    fields = line.split()
    if len(fields) not in (3, 4) or (len(fields) == 4 and not fields[3].startswith("slots=")):
        raise HostfileError(f"line {number}: expected '<ip> <port> <pod> [slots=<n>]', got {line!r}")
    slots = _number(number, "slots", fields[3].removeprefix("slots=")) if len(fields) == 4 else None
    return Host(_ip(number, fields[0]), _number(number, "port", fields[1]), fields[2], slots)


def _parse_worker(number: int, line: str) -> Worker:
    fields = line.split()
    if len(fields) != 5:
        raise HostfileError(f"line {number}: expected '<ip> <port> <worker> <pod> <gpus>', got {line!r}")
    ip, port, index, name, gpus = fields
    return Worker(
        _ip(number, ip),
        _number(number, "port", port),
        _number(number, "worker number", index),
        name,
        _number(number, "gpu number", gpus),
    )


def _ip(number: int, text: str) -> str:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        raise HostfileError(f"line {number}: expected an IPv4 address, got {text!r}") from None


def _number(number: int, what: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise HostfileError(f"line {number}: expected a number as {what}, got {text!r}")
    return int(text)


def _refuse_duplicates(found: list[str]) -> None:
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise HostfileError(f"pod {name} is named twice")
        seen.add(name)
