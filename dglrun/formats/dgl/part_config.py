"""The JSON of a partition (`part_config` in DGL's words): which files each part has. The only reader of it.

Standard library only: the launcher reads it before it sends the parts, and starts without numpy.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglrun.errors import DataError


@dataclass(frozen=True)
class PartConfig:
    """What the JSON says; `folder.load_folder` knows what it says of ranges and types.

    Attributes:
        path: The JSON.
        raw: Its content.
        parts: Of each part its entries (`part_graph`, `node_feats`, `edge_feats`, ...), paths relative to the
            JSON's folder.
    """

    path: Path
    raw: dict[str, Any]
    parts: tuple[dict[str, str], ...]

    @property
    def backend(self) -> str | None:
        """The program or library that assigned the nodes; None: unknown, as DGL does not write it."""
        found = self.raw.get("part_backend")
        return None if found is None else str(found)


def load(path: Path, expected: int | None = None) -> PartConfig:
    """Read the JSON.

    Args:
        path: The JSON.
        expected: Number of parts that it must have; None: any.

    Raises:
        DataError: it is missing, is no JSON object, has another number of parts, or names no files of a part.
    """
    raw = _object(path)
    count = raw.get("num_parts")
    if type(count) is not int or count < 1 or expected not in (None, count):
        wanted = "a number from 1 on" if expected is None else expected
        raise DataError(f"{path}: num_parts: expected {wanted}, found {count!r}")
    return PartConfig(path, raw, tuple(_part(path, raw, index) for index in range(count)))


def describes_parts(path: Path) -> bool:
    """Whether a JSON file is one that describes parts, of whatever graph."""
    try:
        return "part-0" in _object(path)
    except DataError:
        return False


def _object(path: Path) -> dict[str, Any]:
    try:
        raw = json.loads(path.read_bytes())
    except OSError as error:
        reason = f"found none: {error.strerror}"
        raise DataError(f"{path}: expected the partition's JSON (<graph name>.json), {reason}") from None
    except ValueError as error:
        raise DataError(f"{path}: expected JSON: {error}") from None
    if not isinstance(raw, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(raw).__name__}")
    return raw


def _part(path: Path, raw: dict[str, Any], index: int) -> dict[str, str]:
    part = raw.get(f"part-{index}")
    entries = part.items() if isinstance(part, dict) else ()
    files = {key: name for key, name in entries if isinstance(name, str)}
    if not files:
        raise DataError(f"{path}: part-{index}: expected an object with the part's files, found {part!r}")
    return files
