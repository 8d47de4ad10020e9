"""What a receiver is told when it is started: from whom it pulls, with which keys, and where to."""

import json
from dataclasses import asdict, dataclass
from typing import TypeVar

from dglrun.agent import tls

T = TypeVar("T")


class OrderError(ValueError):
    """The text is no order of this version."""


@dataclass(frozen=True)
class Order:
    """One transfer, as its receiver sees it.

    Attributes:
        owner: The pod that has the files, whose name its certificate has.
        host: Where it listens.
        port: Where it listens.
        keys: This receiver's own.
        target: Folder in which the files appear.
        patience: Seconds without a new block after which the receiver gives up.
        keeps_sums: Whether the sums of all blocks stay in the target folder, for the next hop.
        connections: How many it opens.
        receiver: The pod that receives, whose own the unfinished files in a shared target are.
        folder: Where the owner has the files.
        marker: Name of a file there: a receiver that sees it needs nothing sent. Empty: there is none.
    """

    owner: str
    host: str
    port: int
    keys: tls.Keys
    target: str
    patience: float
    keeps_sums: bool = False
    connections: int = 2
    receiver: str = ""
    folder: str = ""
    marker: str = ""


def encode(order: Order) -> str:
    """Write an order as one line of JSON."""
    return json.dumps(asdict(order))


def decode(text: str) -> Order:
    """Read what `encode` wrote.

    Raises:
        OrderError: it is something else.
    """
    return read(text, Order, "a receiver's order")


def read(text: str, kind: type[T], what: str) -> T:
    """Read a dataclass with keys that was written as one line of JSON.

    Raises:
        OrderError: it is something else.
    """
    try:
        raw = json.loads(text)
        return kind(**{**raw, "keys": tls.Keys(**raw["keys"])})
    except (ValueError, TypeError, KeyError):
        raise OrderError(f"expected {what} as one JSON line") from None
