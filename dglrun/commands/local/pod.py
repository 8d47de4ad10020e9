"""One pod as this machine runs it, and where its files lie."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dglrun.commands.local.job import Mount
from dglrun.contract.names import Role


@dataclass(frozen=True)
class Pod:
    """A pod's main container with all that it gets.

    Attributes:
        folder: Its files on this machine: workspace, tmp and volumes.
        ip: Its address.
        container: The main container's name.
        command: What it runs; empty: it idles.
        env: Its whole environment.
        cwd: Its working directory.
        mounts: What it has where.
        image: As the template names it; it is not run.
    """

    name: str
    role: Role
    folder: Path
    ip: str
    container: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = "/"
    mounts: tuple[Mount, ...] = ()
    image: str = ""

    def source(self, mount: Mount) -> Path | None:
        """What a mount shows: a file or folder of this machine; None: a file system in memory."""
        if mount.source is not None:
            return mount.source
        return None if mount.is_memory else self.volume(mount.volume)

    def volume(self, name: str) -> Path:
        """A folder of the pod's own."""
        return self.folder / "volumes" / name

    def make_folders(self) -> None:
        """Make the empty folders that the pod starts with."""
        for folder in self._folders():
            folder.mkdir(parents=True, exist_ok=True)

    def _folders(self) -> Iterator[Path]:
        yield self.folder / "root"
        for mount in self.mounts:
            if mount.source is None and not mount.is_memory:
                yield self.volume(mount.volume)
