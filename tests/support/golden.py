"""Golden files: results as YAML that a reviewer reads; written anew by DGL_OPERATOR_UPDATE_GOLDEN=1."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "golden"
VARIABLE = "DGL_OPERATOR_UPDATE_GOLDEN"


def as_yaml(objects: Iterable[dict[str, Any]]) -> str:
    """The objects as one YAML stream, keys in the order of rendering, scripts as blocks."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, width=110)


def check(name: str, text: str) -> None:
    """Compare with a golden file, or write it when asked to.

    Args:
        name: Of the file below `tests/golden`, as `render/skip`.
        text: The result.

    Raises:
        AssertionError: they differ.
    """
    path = FOLDER / f"{name}.yaml"
    if os.environ.get(VARIABLE) == "1":
        path.write_text(text)
    assert path.exists(), f"{path} is missing; write it with {VARIABLE}=1"
    assert text == path.read_text()


class _Dumper(yaml.SafeDumper):
    """Block style for text of several lines, no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)
