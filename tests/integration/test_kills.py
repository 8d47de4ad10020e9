"""An operator that is killed after what it has written."""

import random
from pathlib import Path

import pytest

from tests.kills import run
from tests.kills.stories import TEST_LIMIT

pytestmark = [pytest.mark.integration, pytest.mark.timeout(TEST_LIMIT)]
KILLS = 20


def test_an_operator_killed_again_and_again_loses_doubles_and_leaves_nothing(tmp_path: Path) -> None:
    """Each job gets to its right end; `make kills N=1000` is the long run of the same."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")

    assert run.kills(KILLS, seed, log=tmp_path).findings == ()
