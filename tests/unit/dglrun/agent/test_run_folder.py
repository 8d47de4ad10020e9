"""Where an agent keeps its lock."""

import os
import socket
import stat
from pathlib import Path

import pytest

from dglrun.agent import run_folder


def test_workers_that_share_a_folder_have_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They ended each other's agent where it lay in a workspace that all mount."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(socket, "gethostname", lambda: "job-worker-0")
    first = run_folder.find()
    monkeypatch.setattr(socket, "gethostname", lambda: "job-worker-1")

    assert run_folder.find() != first
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to elsewhere: what is written through it goes where its maker wants."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "elsewhere").mkdir()
    name = f"dglrun-agent-{socket.gethostname()}-{os.getuid()}"
    (tmp_path / name).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OSError, match=f"{name}: expected a folder of this user"):
        run_folder.find()


def test_without_a_temporary_folder_another_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may set TMPDIR to what is not there."""
    monkeypatch.setenv("TMPDIR", "/nowhere")

    assert run_folder.find().is_dir()
