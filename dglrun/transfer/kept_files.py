"""What a pod is given of a kept partition: a reference, by which it takes the files from the store itself."""

from dataclasses import dataclass
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.formats.kept import reference
from dglrun.formats.kept.kept_partition import KeptPartition
from dglrun.transfer.tar_stream import Item


@dataclass(frozen=True)
class KeptFiles:
    """The reference to a kept partition on disk; stands where `PartitionFiles` stands for a partition.

    Attributes:
        path: The reference.
        kept: The partition.
        place: URI of its store.
    """

    path: Path
    kept: KeptPartition
    place: str

    @classmethod
    def find(cls, path: Path, expected: int) -> "KeptFiles":
        """Read the reference.

        Args:
            path: Where it lies.
            expected: Number of parts that the partition must have.

        Raises:
            RunError: it is missing, names no partition, or one of another number of parts.
        """
        found = reference.read(path)
        if found.kept is None:
            raise RunError(f"{path}: expected a partition in {found.place}, found none", exitcodes.DATA)
        if found.kept.parts != expected:
            what = f"expected {expected} parts in {found.place}/{found.kept.path}, found {found.kept.parts}"
            raise RunError(f"{path}: {what}", exitcodes.DATA)
        return cls(path, found.kept, found.place)

    @property
    def folder(self) -> Path:
        """The folder of the reference."""
        return self.path.parent

    def files(self, _part: int) -> list[Item]:
        """The same for each worker: the reference."""
        return self.all_files()

    def all_files(self) -> list[Item]:
        """The reference."""
        return [Item(self.path, self.path.name)]
