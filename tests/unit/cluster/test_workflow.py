"""The workflow of the repository's host: what it takes from others is pinned."""

import re

from tests.support.measured import ROOT


def test_actions_are_pinned_by_commit() -> None:
    """A tag can be moved by whoever takes the action over; the version stands beside it."""
    text = "".join(path.read_text() for path in (ROOT / ".github" / "workflows").glob("*.yml"))
    used = re.findall(r"^\s*-?\s*uses: (.*)$", text, re.MULTILINE)

    assert used
    assert [each for each in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", each)] == []
