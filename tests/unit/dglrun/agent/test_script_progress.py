"""What a training script tells of its progress reaches the reader, and never harms the script."""

import json
import math
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun import progress
from dglrun.agent import PROGRESS_VARIABLE
from dglrun.agent.script_progress import EVERY_SECONDS, ProgressFile
from dglrun.contract import report


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProgressFile:
    """The reader of what this process tells."""
    path = tmp_path / "progress.json"
    monkeypatch.setenv(PROGRESS_VARIABLE, str(path))
    return ProgressFile(path)


class Odd:
    """An object of the user's that cannot be a number."""

    def __float__(self) -> float:
        raise ZeroDivisionError


def test_what_is_told_is_read_once(file: ProgressFile) -> None:
    """The reader passes news on, not the same again."""
    progress(epoch=3, loss=0.123456789, percent=40)

    assert file.news(0.0) == {"epoch": 3, "loss": "0.123457", "percent": 40}
    assert file.news(10.0) is None


def test_of_many_calls_the_last_one_counts(file: ProgressFile) -> None:
    """A script may tell each step."""
    for epoch in range(1000):
        progress(epoch=epoch)

    assert file.news(0.0) == {"epoch": 999}


def test_news_are_passed_on_at_a_bounded_rate_and_the_last_ones_in_any_case(file: ProgressFile) -> None:
    """Each is a record to the launcher."""
    progress(epoch=1)
    assert file.news(0.0)
    progress(epoch=2)

    assert file.news(EVERY_SECONDS / 2) is None
    assert file.news(EVERY_SECONDS / 2, is_last=True) == {"epoch": 2}


@pytest.mark.parametrize("loss", [math.nan, math.inf, "much", Odd(), object(), True, 10**400])
def test_what_is_no_finite_number_is_left_out(file: ProgressFile, loss: object) -> None:
    """A loss may be NaN; the epoch still counts."""
    progress(epoch=1, loss=loss)

    assert file.news(0.0) == {"epoch": 1}


def test_outside_of_a_job_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same script runs on a laptop."""
    monkeypatch.delenv(PROGRESS_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)

    progress(epoch=1, loss=0.5)

    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_gone_harms_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has left, or its disk is full."""
    path = tmp_path / "gone/progress.json"
    monkeypatch.setenv(PROGRESS_VARIABLE, str(path))

    progress(epoch=1)

    assert not path.parent.exists()


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "null", '{"epoch": []}', "[" * 5000, "\xff"])
def test_what_is_no_report_is_no_news(file: ProgressFile, text: str) -> None:
    """Whoever has written it."""
    Path(os.environ[PROGRESS_VARIABLE]).write_text(text, encoding="latin-1")

    assert file.news(0.0) is None


def test_what_an_earlier_run_has_left_is_no_news(tmp_path: Path) -> None:
    """A worker serves one run after the other."""
    path = tmp_path / "progress.json"
    path.write_text('{"epoch": 9}')

    assert ProgressFile(path).news(0.0) is None


numbers = st.integers() | st.floats() | st.text(max_size=8) | st.none() | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(["epoch", "loss", "percent", "stage"]), numbers))
def test_all_that_passes_the_check_is_json_within_bounds(raw: dict[str, object]) -> None:
    """And passes it again unchanged: agent and launcher both check."""
    found = report.script_values(raw)

    assert set(found) <= {"epoch", "loss", "percent"}
    assert len(json.dumps(found)) < 100
    assert 0 <= int(found.get("epoch", 0)) < 2**31
    assert 0 <= int(found.get("percent", 0)) <= 100
    assert math.isfinite(float(found.get("loss", 0)))
    assert report.script_values(found) == found


def test_the_largest_loss_stays_a_number() -> None:
    """Its text must not be rounded beyond what a float holds."""
    assert report.script_values({"loss": sys.float_info.max}) == {"loss": "1.79769e+308"}
