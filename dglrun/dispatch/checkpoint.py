"""What an interrupted dispatch has finished, and how the result appears at once.

Everything is written into a hidden folder beside the result. Its state file names the finished stages
and the input that they belong to; a run on other input, other flags or other ranks starts anew.
"""

import hashlib
import json
import shutil
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dglrun.formats.chunked import input_file
from dglrun.formats.chunked.input_file import File
from dglrun.formats.output_folder import HIDDEN

_PREFIX = f"{HIDDEN}dispatch-"
_STATE = "state.json"


def fingerprint(options: dict[str, Any], files: Iterable[File]) -> str:
    """A hash of the options and of path, size and modification time of every input file."""
    digest = hashlib.sha256(json.dumps(options, sort_keys=True).encode())
    for path in files:
        stat = input_file.stat(path)
        digest.update(f"{path}\0{stat.size}\0{stat.mtime_ns}\n".encode())
    return digest.hexdigest()


@dataclass
class Checkpoint:
    """A rank's hidden folder.

    Attributes:
        folder: Where its parts grow.
        print: Fingerprint of the input.
        finished: Finished stages in order, each with the facts that later stages need.
    """

    folder: Path
    print: str
    finished: dict[str, Any] = field(default_factory=dict)

    def part(self, part: int) -> Path:
        """The folder of a part under construction."""
        return self.folder / f"part{part}"

    def begin(self, stages: Iterable[str]) -> None:
        """Keep the given finished stages and drop everything else."""
        self.finished = {stage: self.finished[stage] for stage in stages}
        if not self.finished:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._save()

    def finish(self, stage: str, facts: Any = None) -> None:
        """Record a stage; its files must be whole."""
        self.finished[stage] = facts
        self._save()

    def publish(self, out_dir: Path, parts: Iterable[int]) -> None:
        """Move the parts into place, into folders from which the earlier ones' files have gone."""
        for part in parts:
            target = out_dir / f"part{part}"
            if target.is_symlink():  # removed by another host, of which a network's file system tells late
                target.unlink(missing_ok=True)
            if not target.exists():
                self.part(part).rename(target)
                continue
            for path in self.part(part).iterdir():  # files of the user's are in it
                path.replace(target / path.name)

    def remove(self) -> None:
        """Drop the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _save(self) -> None:
        sizes = {
            str(path.relative_to(self.folder)): path.stat().st_size
            for path in sorted(self.folder.glob("part*/*"))
        }
        state = {"fingerprint": self.print, "finished": self.finished, "sizes": sizes}
        draft = self.folder / (_STATE + ".partial")
        draft.write_text(json.dumps(state))
        draft.replace(self.folder / _STATE)


def load_checkpoint(out_dir: Path, rank: int, fingerprint: str) -> Checkpoint:
    """See what an earlier run left for this rank; changes nothing."""
    folder = out_dir / f"{_PREFIX}{rank}"
    return Checkpoint(folder, fingerprint, _finished(folder, fingerprint))


def remove_stale_ranks(out_dir: Path, ranks: Container[int]) -> None:
    """Remove what an earlier run left for other ranks than those that write this folder now."""
    for folder in out_dir.glob(f"{_PREFIX}*"):
        rank = folder.name.removeprefix(_PREFIX)
        if rank.isdigit() and int(rank) not in ranks:
            shutil.rmtree(folder, ignore_errors=True)


def is_unfinished(out_dir: Path) -> bool:
    """Whether an earlier run was ended before it had removed its hidden folders."""
    return any(out_dir.glob(f"{_PREFIX}*"))


def _finished(folder: Path, fingerprint: str) -> dict[str, Any]:
    try:
        state = json.loads((folder / _STATE).read_bytes())
        whole = all((folder / name).stat().st_size == size for name, size in state["sizes"].items())
    except (OSError, ValueError, KeyError):
        return {}
    return dict(state["finished"]) if whole and state["fingerprint"] == fingerprint else {}
