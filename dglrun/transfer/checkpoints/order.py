"""What a keeper is told when it is started: whose folders it keeps, where, and who begins its rounds."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from dglrun.agent import tls
from dglrun.transfer.pull import order as orders


@dataclass(frozen=True)
class KeeperOrder:
    """One keeper's work.

    Attributes:
        owner: The launcher's pod, whose name its certificate has.
        host: Where it listens.
        port: Where it listens.
        keys: This keeper's own.
        folders: The folder of each rank here, by the rank's name in the place.
        ranks: How many ranks the training has on all workers.
        place: Where the user wants the checkpoints; empty: the launcher takes them.
        rate: Bytes per second at most, but for what is brought back and for the last round.
        patience: Seconds for which launcher or place are tried again that cannot be reached.
    """

    owner: str
    host: str
    port: int
    keys: tls.Keys
    folders: Mapping[str, str]
    ranks: int
    place: str
    rate: float
    patience: float


def encode(order: KeeperOrder) -> str:
    """Write an order as one line of JSON."""
    return json.dumps(asdict(order))


def decode(text: str) -> KeeperOrder:
    """Read what `encode` wrote.

    Raises:
        OrderError: it is something else.
    """
    return orders.read(text, KeeperOrder, "a keeper's order")
