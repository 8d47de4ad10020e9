"""Where the example's scripts are; pyproject.toml puts the folder on the path, as running a script does."""

from pathlib import Path

import pytest

CODE = Path(__file__).parents[3] / "images" / "examples" / "graphsage" / "code"


@pytest.fixture(scope="session")
def example_code() -> Path:
    """The folder of the example's scripts."""
    return CODE
