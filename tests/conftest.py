"""Settings of all tests."""

import os
import secrets
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.skip_check import SkipCheck

# No deadline for one example: a busy machine is no failure. Nor is it one that chance draws fifty examples
# that assume() refuses before ten others, as it does once in a thousand runs where it refuses two thirds.
# A test that is left without any example still fails. Every run draws other examples and prints
# their seed; a failure prints the decorator that repeats its example.
# Where CI is set, hypothesis would derandomize of itself.
settings.register_profile(
    "gate",
    deadline=None,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    print_blob=True,
)
settings.register_profile("long", settings.get_profile("gate"), max_examples=5000)
settings.load_profile("gate")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag by which the gate refuses skips."""
    parser.addoption(
        "--strict-skips",
        action="store_true",
        help="fail for each skip that is not in tests/support/expected_skips.py, and for each stale entry",
    )


# First: before hypothesis reads its seed, and before there are workers that are given it.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose hypothesis's seed, and check the skips where results come together: not in a worker of xdist."""
    # A shell ignores SIGINT for its background commands, and what tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Arrow's S3 client would ask 169.254.169.254 for a region, and wait where nobody answers.
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(secrets.randbits(32))
    if config.getoption("strict_skips") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipCheck(config), "skip-check")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how the examples of this run are made again."""
    seed = terminalreporter.config.option.hypothesis_seed
    terminalreporter.line(f"hypothesis: repeat these examples by --hypothesis-seed={seed}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what a machine without torch, DGL and MPI cannot run, if it says that it is one."""
    if os.environ.get("DGL_OPERATOR_LIGHT") != "1":
        return
    light = pytest.mark.skip(reason="DGL_OPERATOR_LIGHT=1: no torch, DGL and MPI here")
    for item in items:
        if item.get_closest_marker("dgl") or item.get_closest_marker("mpi"):
            item.add_marker(light)
