"""The files of a partition folder: are they all there, and which are part i's."""

from dataclasses import dataclass
from pathlib import Path

from dglrun.errors import DataError
from dglrun.formats.dgl import part_config
from dglrun.formats.dgl.part_config import PartConfig
from dglrun.transfer.tar_stream import Item, items


@dataclass(frozen=True)
class PartitionFiles:
    """A partition on disk, whoever wrote it.

    Attributes:
        config: Its JSON.
    """

    config: PartConfig

    @classmethod
    def find(cls, path: Path, expected: int) -> "PartitionFiles":
        """Read the JSON and check that the files that it names are there.

        Args:
            path: The JSON; paths in it are relative to its folder.
            expected: Number of parts.

        Raises:
            DataError: something is missing, lies outside of the folder, or is of another number of parts.
        """
        config = part_config.load(path, expected)
        for index, part in enumerate(config.parts):
            for name in part.values():
                _check(config.path, index, name)
        return cls(config)

    @property
    def folder(self) -> Path:
        """The folder of the JSON, to which all names are relative."""
        return self.config.path.parent

    def files(self, part: int) -> list[Item]:
        """What worker `part` needs: the folders of its files, and the JSON last."""
        paths = [Path(name) for name in self.config.parts[part].values()]
        folders = sorted({path.parent for path in paths if path.parent != Path()})
        found = {item.name: item for each in folders for item in items(self.folder / each, str(each))}
        for path in paths:
            found.setdefault(str(path), Item(self.folder / path, str(path)))
        own = self.config.path
        found.pop(own.name, None)
        return [*found.values(), Item(own, own.name)]

    def size_and_form(self) -> tuple[int, bool]:
        """Bytes of all files, and whether they have the form that dglrun verify reads (`part_graph`)."""
        size = sum(item.path.stat().st_size for item in self.all_files())
        return size, all("part_graph" in part for part in self.config.parts)

    def all_files(self) -> list[Item]:
        """What the launcher needs: the files of all parts, other JSON files beside it, and the JSON last."""
        found = {item.name: item for part in range(len(self.config.parts)) for item in self.files(part)}
        own = found.pop(self.config.path.name)
        beside = [Item(path, path.name) for path in sorted(self.folder.glob("*.json")) if path.is_file()]
        found.update({item.name: item for item in beside if item.name != own.name})
        return [*found.values(), own]


def _check(config: Path, index: int, name: str) -> None:
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise DataError(f"{config}: part-{index}: expected a path within {config.parent}, found {name}")
    if not (config.parent / name).is_file():
        raise DataError(f"{config.parent / name}: expected a file of part {index}, found none")
