"""The environment of watcher-loop."""

from pathlib import Path

import pytest

from dglrun.pod_waiter.config import WaiterConfig, WaiterConfigError, WatchMode

WHOLE = {"NAMESPACE": "graphs", "WATCHERFILE": "/etc/dgl/hostfile", "WATCHERMODE": "ready"}


def test_the_2021_environment_is_enough() -> None:
    """Three variables as the 2021 operator set them; no deadline but for pods that never appear."""
    assert WaiterConfig.from_env(WHOLE) == WaiterConfig(
        "graphs", Path("/etc/dgl/hostfile"), WatchMode.READY, None, None, 600.0
    )


def test_counts_and_deadlines_are_read() -> None:
    """All variables of the contract; 0 switches a deadline off."""
    config = WaiterConfig.from_env(
        {
            **WHOLE,
            "WATCHERMODE": "finished",
            "WATCHER_EXPECTED": "12",
            "WATCHER_TIMEOUT_SECONDS": "30",
            "WATCHER_APPEAR_TIMEOUT_SECONDS": "0",
        }
    )

    assert config == WaiterConfig("graphs", Path("/etc/dgl/hostfile"), WatchMode.FINISHED, 12, 30.0, None)


def test_every_problem_is_named_at_once() -> None:
    """One line for each, with the variable's name, what was expected and what was found."""
    with pytest.raises(WaiterConfigError) as error:
        WaiterConfig.from_env(
            {"WATCHERMODE": "done", "WATCHER_EXPECTED": "0", "WATCHER_TIMEOUT_SECONDS": "1m"}
        )

    assert str(error.value).splitlines() == [
        "NAMESPACE is not set",
        "WATCHERFILE is not set",
        "WATCHERMODE: expected ready or finished, got 'done'",
        "WATCHER_EXPECTED: expected a number of lines from 1 on, got '0'",
        "WATCHER_TIMEOUT_SECONDS: expected whole seconds, got '1m'",
    ]
