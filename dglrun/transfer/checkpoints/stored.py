"""Checkpoints in a place of the user's, which each keeper reaches by itself. Needs pyarrow."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from dglrun.errors import DataError, StoreError
from dglrun.formats import store
from dglrun.transfer.checkpoints.folder import RANKS_FILE, Version, has_kept, is_whole
from dglrun.transfer.checkpoints.limit import Limit
from dglrun.transfer.checkpoints.order import KeeperOrder
from dglrun.transfer.checkpoints.target import KeepError, require_unchanged

PIECE = 8 << 20
"""Bytes that are read at a time: S3 takes a file in parts of at least 5 MiB."""
ROUND_SECONDS = 10.0
"""How long a file is tried again within a round; the next round tries it, too."""
LAST_SECONDS = 180.0
"""The same in the last round."""

T = TypeVar("T")


class StoredTarget:
    """Keeps files in a place.

    Args:
        order: Which place, which ranks, and how long it may be away when files are brought back.
        limit: Bounds what is sent.

    Raises:
        KeepError: it is no place.
    """

    def __init__(self, order: KeeperOrder, limit: Limit) -> None:
        self._order, self._limit = order, limit
        self._place = _told(lambda: store.place(order.place))

    def ranks(self, ranks: int) -> int:
        """As `Target` says; keepers that find nothing write the same."""
        return self._patiently(lambda: _recorded(self._place, ranks))

    def kept(self) -> set[str]:
        """As `Target` says."""
        return {
            f"{rank}/{name}"
            for rank in self._order.folders
            for name in self._patiently((self._place / rank).files)
            if is_whole(name)
        }

    def fetch(self, name: str, path: Path) -> None:
        """As `Target` says."""
        place, seconds = self._place / name, self._order.patience
        if place.is_remote:  # each range is tried again by itself
            _told(lambda: place.download(path, patience=seconds))
        else:
            self._patiently(lambda: place.download(path))

    def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
        """As `Target` says."""
        limit = self._limit if is_limited else None
        seconds = ROUND_SECONDS if is_limited else LAST_SECONDS
        place = self._place / name
        _told(lambda: store.retried(lambda: place.write(_pieces(file, version, limit)), seconds))

    def remove(self, name: str) -> None:
        """As `Target` says."""
        _told(lambda: store.retried((self._place / name).remove_tree, ROUND_SECONDS))

    def _patiently(self, call: Callable[[], T]) -> T:
        return _told(lambda: store.retried(call, self._order.patience))


def _pieces(file: int, version: Version, limit: Limit | None) -> Iterator[bytes]:
    """The bytes of a file.

    Raises:
        ChangedError: it is not of this version, before the first piece or after the last one.
    """
    require_unchanged(file, version)
    at = 0
    while piece := os.pread(file, PIECE, at):
        if limit:
            limit.take(len(piece))
        yield piece
        at += len(piece)
    require_unchanged(file, version)


def _recorded(place: store.Place, ranks: int) -> int:
    record = place / RANKS_FILE
    found = None if record.stat() is None else _number(record)
    if found is not None and found != ranks and has_kept(place.files()):
        return found
    if found != ranks:
        record.write_bytes(json.dumps({"ranks": ranks}).encode())
    return ranks


def _number(record: store.Place) -> int:
    try:
        return int(json.loads(record.read_bytes(0))["ranks"])
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{record}: expected a number of ranks") from None


def _told(call: Callable[[], T]) -> T:
    try:
        return call()
    except (DataError, StoreError) as error:
        raise KeepError(str(error), error.exit_code) from error
