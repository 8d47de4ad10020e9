"""The folder of local runs of a job: one run at a time, leftovers of a killed one removed, outputs kept."""

import fcntl
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from dglrun.commands.arguments import UsageError

_MARK = ".dglrun-local"
_OF_A_RUN = ("pods", "config", "kube", "account", "programs")


class Workdir:
    """A locked folder.

    Args:
        folder: Made if missing; one that holds other things is refused.

    Raises:
        UsageError: it is another program's, or another run uses it.
        OSError: it cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.folder.mkdir(parents=True, exist_ok=True)
        mark = self.folder / _MARK
        if not mark.exists() and any(self.folder.iterdir()):
            raise UsageError(f"--workdir: expected an empty folder or one of an earlier run, got {folder}")
        # Released by the kernel however this process ends; the pods do not inherit it.
        self._lock = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UsageError(f"--workdir: another run uses {folder}; name another one") from None

    @property
    def output(self) -> Path:
        """What the run leaves."""
        return self.folder / "output"

    def pod(self, name: str) -> Path:
        """A pod's folder."""
        return self.folder / "pods" / name

    def clear(self) -> bool:
        """Remove what an earlier run has left, but number its output; whether it left any files of pods."""
        found = self.remove()
        if self.output.is_dir() and any(self.output.iterdir()):
            number = 1
            while (kept := self.folder / f"output.{number}").exists():
                number += 1
            self.output.rename(kept)
        self.output.mkdir(exist_ok=True)
        return found

    def remove(self) -> bool:
        """Remove the files of the pods; whether there were any."""
        found = [self.folder / name for name in _OF_A_RUN if (self.folder / name).exists()]
        for path in found:
            shutil.rmtree(path)
        return bool(found)

    def write(self, folder: str, files: Mapping[str, str], mode: int = 0o444) -> Path:
        """Write files that pods find in a folder of theirs; returns the folder."""
        found = self.folder / folder
        found.mkdir(mode=0o700, exist_ok=True)
        for name, text in files.items():
            path = found / name
            path.write_text(text)
            path.chmod(0o555 if text.startswith("#!") else mode)
        return found

    def close(self) -> None:
        """Let the next run begin."""
        os.close(self._lock)
