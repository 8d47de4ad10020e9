"""An operator that is killed after what it has written."""

import random

import pytest

from tests.kills import run

pytestmark = pytest.mark.integration
KILLS = 20


def test_an_operator_killed_again_and_again_loses_doubles_and_leaves_nothing() -> None:
    """Each job gets to its right end; `make kills N=1000` is the long run of the same."""
    seed = random.SystemRandom().randrange(10**9)
    print(f"seed {seed}")

    assert run.kills(KILLS, seed) == []
