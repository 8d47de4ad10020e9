"""The socket of a supervisor: who reaches it commands the worker's processes."""

import stat
from pathlib import Path

from dglrun.supervise import view


def test_nobody_but_its_user_reaches_a_supervisor(tmp_path: Path) -> None:
    """The folder may be a volume that other containers and users have, too."""
    with view.listen(tmp_path), view.connect(tmp_path):
        mode = (tmp_path / view.SOCKET).stat().st_mode

    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
