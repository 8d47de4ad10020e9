"""The benchmark of training: what it takes from a run, and what it makes of several."""

import json
from pathlib import Path

import pytest

from tests.benchmarks import training_bench


def test_the_first_epoch_of_a_run_does_not_count(tmp_path: Path) -> None:
    """Processes meet in it, and memory is touched for the first time."""
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps({"epochs": [{"seconds": seconds} for seconds in (9.0, 1.0, 2.0)]}))

    assert training_bench.epoch_seconds(metrics) == 1.5


def test_a_run_of_one_epoch_says_nothing(tmp_path: Path) -> None:
    """It would be a median of nothing."""
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps({"epochs": [{"seconds": 9.0}]}))

    with pytest.raises(SystemExit, match="expected at least two epochs, got 1"):
        training_bench.epoch_seconds(metrics)


def test_a_row_is_the_median_of_the_runs_beside_the_base() -> None:
    """One slow run changes the range alone."""
    cells = training_bench.cells("under dglrun", [2.0, 9.0, 2.1], base=2.0)

    assert cells == ["under dglrun", "3", "2.100", "2.000 to 9.000", "1.050"]


def test_by_hand_there_is_one_server_and_every_rank(tmp_path: Path) -> None:
    """As many processes, and with the same roles, as the agent starts."""
    server, *trainers = training_bench._environments(tmp_path, tmp_path)

    assert (server["DGL_ROLE"], {each["DGL_ROLE"] for each in trainers}) == ("server", {"client"})
    assert [each["RANK"] for each in trainers] == [str(rank) for rank in range(training_bench.TRAINERS)]
    assert {each["DGL_NUM_CLIENT"] for each in (server, *trainers)} == {str(training_bench.TRAINERS)}
