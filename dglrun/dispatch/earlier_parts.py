"""The parts that an earlier run left in the output folder: found by its JSON, and removed by it.

Of an earlier run are the JSON of the graph that is written now and those that dglrun or DGL's dispatch has
written. The JSON of another graph without our mark is of somebody's own script: it and its parts stay.

The JSON is put aside first, under a hidden name, so that a folder without whole parts has none; a run that
was killed in between is thereby still known to the next one.

A part or a JSON may be a link to where it is kept, or to another folder of the job: the link is removed, and
nothing is removed or written through it.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from dglrun.dispatch import checkpoint, graphbolt, write_part_config
from dglrun.formats import output_folder
from dglrun.formats.dgl import part_config
from dglrun.formats.output_folder import HIDDEN, OutputError, read_object
from dglrun.mpi import source_sums

_ASIDE = f"{HIDDEN}replaced-"
_PART = re.compile(r"part\d+")
_FILES = (
    *("graph.dgl", "node_feat.dgl", "edge_feat.dgl", "orig_nids.dgl", "orig_eids.dgl"),
    graphbolt.FILENAME,
)


def refuse_overwriting(out_dir: Path, graph_name: str, names: Iterable[str], parts: int) -> None:
    """Refuse a folder with a JSON or a part in the place of ours that is not of an earlier run.

    Other files do not matter: a job's partition script may keep its data beside the parts.

    Args:
        out_dir: The output folder.
        graph_name: Name of the graph that is written.
        names: Its JSON files.
        parts: Number of new parts.

    Raises:
        OutputError: names what is in the way.
    """
    ours = _folders(out_dir, graph_name)
    taken = [
        path for name in names if (path := out_dir / name).exists() and not part_config.describes_parts(path)
    ]
    if not checkpoint.is_unfinished(out_dir):
        taken += [
            path
            for part in range(parts)
            if (path := out_dir / f"part{part}").exists() and path.name not in ours
        ]
    if taken:
        raise OutputError(
            f"--out-dir {out_dir}: {taken[0].name} exists and is not of an earlier dispatch; "
            "move it away or name another folder"
        )
    folders = (Path(f"part{part}") for part in range(parts))
    output_folder.refuse_other_file_systems(out_dir, (f for f in folders if not (out_dir / f).is_symlink()))


def owned(out_dir: Path, graph_name: str) -> Iterator[Path]:
    """The earlier runs' JSON files, and the files of their parts, relative to the folder."""
    yield from (Path(path.name) for path in _descriptions(out_dir, graph_name))
    yield Path(source_sums.FILENAME)
    for folder in sorted(_folders(out_dir, graph_name)):
        yield from (Path(folder, name) for name in _FILES)


def put_aside(out_dir: Path, graph_name: str) -> None:
    """Take the earlier runs' JSON files out of the readers' sight."""
    for path in _descriptions(out_dir, graph_name):
        path.replace(path.with_name(f"{_ASIDE}{path.name}"))
    (out_dir / source_sums.FILENAME).unlink(missing_ok=True)
    for path in (out_dir / name for name in write_part_config.filenames(graph_name)):
        if path.is_symlink():  # to what is gone: the new JSON would be written there
            path.unlink(missing_ok=True)


def remove(out_dir: Path, graph_name: str, parts: int) -> None:
    """Remove the files of the earlier parts, and those in the place of the new ones.

    Args:
        out_dir: The output folder; its JSON files are aside.
        graph_name: Name of the graph that is written.
        parts: Number of new parts.
    """
    names = _folders(out_dir, graph_name) | {f"part{part}" for part in range(parts)}
    for folder in (out_dir / name for name in sorted(names)):
        if folder.is_symlink():
            folder.unlink(missing_ok=True)
            continue
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # not empty: what else is in it is the user's
            folder.rmdir()


def forget(out_dir: Path) -> None:
    """Remove what was put aside."""
    for path in _aside(out_dir):
        path.unlink(missing_ok=True)


def _descriptions(out_dir: Path, graph_name: str) -> list[Path]:
    names = {graph_name, read_object(out_dir / write_part_config.DISPATCH_NAME).get("graph_name")}
    return [path for path in write_part_config.descriptions(out_dir) if _is_ours(path, names)]


def _is_ours(path: Path, names: set[object]) -> bool:
    """Whether it has our mark, DGL's dispatch name, or the graph of one that has, or of the new parts."""
    raw = read_object(path)
    is_marked = "part_backend" in raw or path.name == write_part_config.DISPATCH_NAME
    return is_marked or raw.get("graph_name") in names


def _folders(out_dir: Path, graph_name: str) -> set[str]:
    """Names of the part folders that the JSON files name, those put aside too."""
    described = [*_descriptions(out_dir, graph_name), *_aside(out_dir)]
    return {name for path in described for name in _parts_of(path)}


def _parts_of(path: Path) -> Iterator[str]:
    for key, files in read_object(path).items():
        if key.startswith("part-") and isinstance(files, dict):
            first = str(files.get("part_graph", "")).split("/", maxsplit=1)[0]
            if _PART.fullmatch(first):
                yield first


def _aside(out_dir: Path) -> list[Path]:
    return sorted(out_dir.glob(f"{_ASIDE}*"))
