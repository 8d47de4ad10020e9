"""What a job of the kill run leads to: nothing that goes wrong with it is lost."""

import pytest

from tests.kills.run import finding


def test_a_job_that_ends_as_it_must_is_no_finding() -> None:
    """Nothing is to be said of it."""
    assert finding(lambda: None) == ""


@pytest.mark.parametrize("error", [AssertionError, TimeoutError, KeyError, RuntimeError, OSError])
def test_whatever_is_raised_is_a_finding_by_its_name(error: type[Exception]) -> None:
    """Also what nobody thought of, such as a status without a field."""

    def play() -> None:
        raise error("attempts")

    assert finding(play).startswith(f"{error.__name__}: ")
    assert "attempts" in finding(play)
