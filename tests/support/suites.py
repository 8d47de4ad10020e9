"""Whether a run of pytest takes a whole suite or a selection of its tests."""

from pathlib import Path

import pytest


def whole_suite(config: pytest.Config) -> str | None:
    """The folder that a run was given, from the checkout on, if it was given that alone and all of it."""
    option = config.option
    if len(config.args) != 1 or option.keyword or option.deselect or option.maxfail or option.collectonly:
        return None
    given = Path(config.invocation_params.dir, config.args[0]).resolve()
    if not given.is_dir() or not given.is_relative_to(config.rootpath):
        return None
    return str(given.relative_to(config.rootpath))
