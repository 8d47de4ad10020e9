"""How long an innocent job may take."""

import pytest

from dgl_operator.runtime.cluster import ClusterBusy
from tests.fuzz.innocents import SLOWEST, Times, judged, lacking


@pytest.fixture
def times() -> Times:
    """What was measured before the fuzz: jobs of 2 s, writes of 0.1 s."""
    return Times(usual=[2.0, 1.0, 4.0], plain=[0.1, 0.05, 0.3])


@pytest.mark.parametrize(
    ("plain", "limit"),
    [((0.05, 0.1), 7.0), ((0.1, 0.3, 0.2), 14.0), ((0.1, 0.1, 900.0), 7.0), ((900.0, 0.1, 800.0), 28.0)],
)
def test_the_limit_grows_as_plain_writes_get_slower(
    times: Times, plain: tuple[float, ...], limit: float
) -> None:
    """By the median of the samples, not below the usual one, and not without end."""
    assert times.limit(times.slower(*plain)) == pytest.approx(limit)
    assert 1.0 <= times.slowness <= SLOWEST


def test_patience_is_a_factor(times: Times) -> None:
    """Of the same limit."""
    times.patience = 3.0

    assert times.limit(1.0) == pytest.approx(21.0)


def kinds(times: Times, seconds: float, plain: list[float], error: Exception | None = None) -> list[str]:
    """What is told of a job."""
    return [each.kind for each in judged("here", times, seconds, plain, error)]


def test_a_job_that_is_given_up_is_always_told_and_counted(times: Times) -> None:
    """However short the wait was: on no machine may a job that hangs go unseen."""
    assert kinds(times, 0.5, [0.1], TimeoutError("late")) == ["an innocent job was not Completed"]
    assert (times.given_up, times.beside) == (1, [])


def test_a_job_is_judged_by_its_limit(times: Times) -> None:
    """7 s on a machine that is as fast as before."""
    assert kinds(times, 6.9, [0.1]) == []
    assert kinds(times, 7.1, [0.1]) == ["an innocent job took too long"]
    assert times.beside == [6.9, 7.1]


def test_on_a_machine_that_is_too_busy_no_job_is_late(times: Times) -> None:
    """What is too late even for the slowest machine that is judged may be the machine's fault."""
    assert kinds(times, 29.0, [0.4, 0.5]) == []
    assert kinds(times, 27.0, [0.4, 0.5]) == []
    assert (times.unjudged, times.beside) == (1, [29.0, 27.0])


def test_an_answer_that_the_api_server_owes_is_no_fault_of_the_operator(times: Times) -> None:
    """Nor does such a job count as one that was Completed."""
    assert kinds(times, 31.0, [0.1], ClusterBusy("POST: timed out")) == []
    assert (times.given_up, times.unjudged, times.unanswered, times.beside) == (0, 0, 1, [])
    assert "1 unanswered" in times.summary()


@pytest.mark.parametrize(
    ("beside", "unjudged", "unanswered", "given_up", "told"),
    [
        (0, 0, 0, 3, ["0 innocent jobs Completed beside the fuzz"]),
        (0, 0, 0, 0, ["0 innocent jobs Completed beside the fuzz"]),
        (8, 7, 0, 0, ["the machine was too busy to judge innocent jobs"]),
        (2, 0, 7, 0, ["the machine was too busy to judge innocent jobs"]),
        (2, 0, 6, 0, []),
        (8, 6, 0, 0, []),
        (8, 0, 0, 0, []),
    ],
)
def test_too_few_jobs_that_were_judged_are_told(
    times: Times, beside: int, unjudged: int, unanswered: int, given_up: int, told: list[str]
) -> None:
    """Else a machine that is always too busy would pass for an operator that is always in time."""
    times.beside, times.unjudged = [3.0] * beside, unjudged
    times.unanswered, times.given_up = unanswered, given_up

    assert [each.kind for each in lacking("here", times)] == told
