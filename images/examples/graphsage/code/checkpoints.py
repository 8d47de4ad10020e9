"""Checkpoints of a training: each rank saves its own, and all go on from the newest that all of them have.

dglrun gives each rank a folder of its own as DGL_CHECKPOINT_DIR. What is renamed into place there is kept
elsewhere while the training goes on, and is there again when the job starts anew.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch as th

KEPT = 2
"""Checkpoints that stay: an older one is there until all ranks have the newer one."""
_PREFIX, _SUFFIX = "epoch-", ".pt"


def folder() -> Path | None:
    """This rank's folder; None where nobody keeps checkpoints."""
    name = os.environ.get("DGL_CHECKPOINT_DIR")
    return Path(name) if name else None


def save(path: Path | None, epochs: int, state: dict[str, Any]) -> None:
    """Save the state after so many epochs, and remove what is too old.

    Nobody ever sees a part of a file under its name: it is renamed when it is whole.
    """
    if path is None:
        return
    path.mkdir(parents=True, exist_ok=True)
    whole = path / f"{_PREFIX}{epochs}{_SUFFIX}"
    unfinished = whole.with_suffix(".tmp")
    th.save(state, unfinished)
    os.replace(unfinished, whole)  # noqa: PTH105 - what users know
    for old in sorted(saved(path))[:-KEPT]:
        (path / f"{_PREFIX}{old}{_SUFFIX}").unlink()


def load(path: Path, epochs: int) -> dict[str, Any]:
    """Read what `save` wrote."""
    state: dict[str, Any] = th.load(path / f"{_PREFIX}{epochs}{_SUFFIX}", map_location="cpu")
    return state


def forget_newer(path: Path | None, epochs: int) -> None:
    """Remove what this rank has saved after so many epochs: the others will not go on from there."""
    for newer in saved(path):
        if path and newer > epochs:
            (path / f"{_PREFIX}{newer}{_SUFFIX}").unlink()


def saved(path: Path | None) -> set[int]:
    """After how many epochs there are checkpoints of this rank."""
    found = path.glob(f"{_PREFIX}*{_SUFFIX}") if path else ()
    return {int(each.name[len(_PREFIX) : -len(_SUFFIX)]) for each in found}


def newest_of_all(own: set[int], least: Callable[[int], int]) -> int:
    """The newest checkpoint that all ranks have; 0 without one.

    Args:
        own: Those of this rank.
        least: The lowest of the numbers that all ranks give; each rank has to call it.
    """
    newest = max(own, default=0)
    while (wanted := least(newest)) > 0:
        newest = max((each for each in own if each <= wanted), default=0)
        if least(newest) == wanted:
            return wanted
    return 0
