"""Settings of all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# No deadline for one example: a busy machine is no failure. The same examples in every run of the gate:
# a new one is found by `--hypothesis-profile=default`.
settings.register_profile(
    "gate", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("gate")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what a machine without torch, DGL and MPI cannot run, if it says that it is one."""
    if os.environ.get("DGL_OPERATOR_LIGHT") != "1":
        return
    light = pytest.mark.skip(reason="DGL_OPERATOR_LIGHT=1: no torch, DGL and MPI here")
    for item in items:
        if item.get_closest_marker("dgl") or item.get_closest_marker("mpi"):
            item.add_marker(light)
