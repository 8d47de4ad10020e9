"""A partition folder as `partition_graph` writes it: is it whole, and which files are part i's."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dglrun.transfer.tar_stream import Item, items


class PartitionError(Exception):
    """The folder is not a partition for this job; names the file, what was expected and what was found."""


@dataclass(frozen=True)
class Partition:
    """A partition on disk.

    Attributes:
        config: Its JSON.
        parts: The JSON's `part-<i>` entries, by i.
    """

    config: Path
    parts: tuple[dict[str, Any], ...]

    @classmethod
    def read(cls, config: Path, expected: int) -> "Partition":
        """Read and check the JSON and that the files it names are there.

        Args:
            config: The JSON; paths in it are relative to its folder.
            expected: Number of parts.

        Raises:
            PartitionError: something is missing or another number.
        """
        raw = _json(config)
        if raw.get("num_parts") != expected:
            raise PartitionError(f"{config}: num_parts: expected {expected}, found {raw.get('num_parts')!r}")
        parts = tuple(_part(config, raw, index) for index in range(expected))
        return cls(config, parts)

    def files(self, part: int) -> list[Item]:
        """What worker `part` needs: the folders of its files, and the JSON last.

        Names are relative to the JSON's folder.
        """
        root = self.config.parent
        paths = [Path(value) for value in _paths(self.parts[part])]
        folders = sorted({path.parent for path in paths if path.parent != Path()})
        found = {item.name: item for folder in folders for item in items(root / folder, str(folder))}
        for path in paths:
            found.setdefault(str(path), Item(root / path, str(path)))
        found.pop(self.config.name, None)
        return [*found.values(), Item(self.config, self.config.name)]

    def size_and_form(self) -> tuple[int, bool]:
        """Bytes of all files, and whether they have the form that dglrun verify reads (`part_graph`)."""
        size = sum(item.path.stat().st_size for item in self.all_files())
        return size, all("part_graph" in part for part in self.parts)

    def all_files(self) -> list[Item]:
        """What the launcher needs: the files of all parts, other JSON files beside it, and the JSON last."""
        root = self.config.parent
        found = {item.name: item for part in range(len(self.parts)) for item in self.files(part)}
        own = found.pop(self.config.name)
        beside = [Item(path, path.name) for path in sorted(root.glob("*.json")) if path.is_file()]
        found.update({item.name: item for item in beside if item.name != own.name})
        return [*found.values(), own]


def _json(config: Path) -> dict[str, Any]:
    try:
        raw = json.loads(config.read_text(encoding="utf-8"))
    except OSError as error:
        raise PartitionError(
            f"{config}: expected the partition's JSON (<graph name>.json), found none: {error.strerror}"
        ) from error
    except ValueError as error:
        raise PartitionError(f"{config}: expected JSON: {error}") from error
    if not isinstance(raw, dict):
        raise PartitionError(f"{config}: expected a JSON object, found {type(raw).__name__}")
    return raw


def _part(config: Path, raw: dict[str, Any], index: int) -> dict[str, Any]:
    part = raw.get(f"part-{index}")
    if not isinstance(part, dict) or not _paths(part):
        raise PartitionError(
            f"{config}: part-{index}: expected an object with the part's files, found {part!r}"
        )
    for path in _paths(part):
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise PartitionError(
                f"{config}: part-{index}: expected a path within {config.parent}, found {path}"
            )
        if not (config.parent / path).is_file():
            raise PartitionError(f"{config.parent / path}: expected a file of part {index}, found none")
    return part


def _paths(part: dict[str, Any]) -> list[str]:
    return [value for value in part.values() if isinstance(value, str)]
