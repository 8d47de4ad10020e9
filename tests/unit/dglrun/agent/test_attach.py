"""The socket of a supervisor: who reaches it commands the worker's processes."""

import stat
from pathlib import Path

from dglrun.agent import attach


def test_nobody_but_its_user_reaches_a_supervisor(tmp_path: Path) -> None:
    """The folder may be a volume that other containers and users have, too."""
    with attach.listen(tmp_path), attach.connect(tmp_path):
        mode = (tmp_path / attach.SOCKET).stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
