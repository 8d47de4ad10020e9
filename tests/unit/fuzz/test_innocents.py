"""How long an innocent job may take."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from dgl_operator.runtime.cluster import ClusterBusy, Refused
from tests.fuzz import innocents
from tests.fuzz.findings import Finding
from tests.fuzz.innocents import SLOWEST, Innocents, Times, judged, lacking


@pytest.fixture
def times() -> Times:
    """What was measured before the fuzz: jobs of 2 s, writes of 0.1 s."""
    return Times(usual=[2.0, 1.0, 4.0], plain=[0.1, 0.05, 0.3], cpu=[1.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("plain", "limit"),
    [((0.05, 0.1), 7.0), ((0.1, 0.3, 0.2), 14.0), ((0.1, 0.1, 900.0), 7.0), ((900.0, 0.1, 800.0), 56.0)],
)
def test_the_limit_grows_as_plain_writes_get_slower(
    times: Times, plain: tuple[float, ...], limit: float
) -> None:
    """By the median of the samples, not below the usual one, and not without end."""
    assert times.limit(times.slower(plain, 1.0)) == pytest.approx(limit)
    assert 1.0 <= times.slowness <= SLOWEST


@pytest.mark.parametrize(
    ("plain", "cpu", "slowness"),
    [
        ((0.1,), 3.0, 3.0),
        ((0.4,), 3.0, 4.0),
        ((0.1,), 0.5, 1.0),
        ((0.1,), 900.0, SLOWEST),
        ((math.inf, 0.1), 1.0, SLOWEST),
        ((0.1, 0.1, math.inf), 1.0, 1.0),
    ],
)
def test_the_machine_is_as_slow_as_the_worse_of_both_measures_says(
    times: Times, plain: tuple[float, ...], cpu: float, slowness: float
) -> None:
    """A wait for a CPU shows in the one, a slow disk in the other, a refusal is no quick answer."""
    assert times.slower(plain, cpu) == pytest.approx(slowness)


def test_patience_is_a_factor(times: Times) -> None:
    """Of the same limit."""
    times.patience = 3.0

    assert times.limit(1.0) == pytest.approx(21.0)


def kinds(times: Times, seconds: float, slowness: float, error: Exception | None = None) -> list[str]:
    """What is told of a job."""
    return [each.kind for each in judged("here", times, seconds, slowness, error)]


def test_a_job_that_is_given_up_is_always_told_and_counted(times: Times) -> None:
    """However short the wait was: on no machine may a job that hangs go unseen."""
    assert kinds(times, 0.5, SLOWEST, TimeoutError("late")) == ["an innocent job was not Completed"]
    assert (times.given_up, times.beside) == (1, [])


def test_a_job_is_judged_by_its_limit(times: Times) -> None:
    """7 s on a machine that is as fast as before, and so on up to the slowest that is judged."""
    assert kinds(times, 6.9, 1.0) == []
    assert kinds(times, 7.1, 1.0) == ["an innocent job took too long"]
    assert kinds(times, 34.0, 5.0) == []
    assert kinds(times, 36.0, 5.0) == ["an innocent job took too long"]
    assert times.beside == [6.9, 7.1, 34.0, 36.0]


def test_on_a_machine_that_is_too_busy_no_job_is_late(times: Times) -> None:
    """What is too late even for the slowest machine that is judged may be the machine's fault."""
    assert kinds(times, 57.0, SLOWEST) == []
    assert kinds(times, 55.0, SLOWEST) == []
    assert (times.unjudged, times.beside) == (1, [57.0, 55.0])


def test_an_answer_that_the_api_server_owes_is_no_fault_of_the_operator(times: Times) -> None:
    """Nor does such a job count as one that was Completed."""
    assert kinds(times, 31.0, 1.0, ClusterBusy("POST: timed out")) == []
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


class Played(Innocents):
    """Innocents of one namespace whose only job is `job`; plain writes take a tenth of a second."""

    def __init__(self, job: Callable[[], float]) -> None:
        self.told: list[Finding] = []
        super().__init__(SimpleNamespace(), ("here",), self.told.append, 1.0, lambda: ())  # type: ignore[arg-type]
        self.times["here"] = Times(usual=[2.0], plain=[0.1], cpu=[1.0])
        self.job = job

    def _one(self, namespace: str, seconds: float = 60.0) -> float:
        self._stopped.set()
        return self.job()

    def _plain(self, namespace: str) -> float:
        return 0.1

    def kinds(self) -> list[str]:
        """What was told, when the thread has ended."""
        self.begin()
        self.stop()
        return [each.kind for each in self.told]


def fails(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_given: object) -> NoReturn:
        raise error

    return fail


def test_a_job_that_ends_by_an_error_of_any_kind_is_told() -> None:
    """The thread that played it ended, and nobody judged any job after it."""
    played = Played(fails(Refused(403, "Forbidden", "no")))

    told = played.kinds()

    assert told == ["an innocent job was not Completed", "0 innocent jobs Completed beside the fuzz"]
    assert "Refused: " in played.told[0].details


def test_a_thread_that_cannot_go_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends it."""
    played = Played(lambda: 2.0)
    monkeypatch.setattr(played, "_plain", fails(RuntimeError("no list")))

    assert played.kinds() == ["innocent jobs were not played to the end"]


def test_a_job_in_time_is_counted() -> None:
    """With its own seconds, not those of its deletion."""
    played = Played(lambda: 2.5)

    assert played.kinds() == []
    assert played.times["here"].beside == [2.5]


class Job:
    """A job that is Completed at once, and whose deletion the API server has no time for."""

    name, raw = "innocent-0", {"metadata": {"uid": "u"}}

    def __init__(self, *_given: object) -> None:
        self.delete = fails(ClusterBusy("DELETE: HTTP 429"))

    def complete(self, *_given: object) -> None: ...


def an_api(**calls: Any) -> Innocents:
    """Innocents on an API server with these calls only."""
    return Innocents(SimpleNamespace(**calls), ("here",), lambda _found: None, 1.0, lambda: ())  # type: ignore[arg-type]


def test_a_job_is_completed_though_its_deletion_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counted as one of which nothing is known."""
    monkeypatch.setattr(innocents, "PlayedJob", Job)

    assert an_api()._one("here") >= 0.0


def test_plain_writes_that_are_refused_are_not_quick() -> None:
    """Else the limit is that of an idle machine while the API server asks for patience."""
    assert an_api(put=fails(ClusterBusy("PATCH: HTTP 429")))._plain("here") == math.inf
