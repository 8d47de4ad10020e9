"""Print requirement lines of pyproject.toml, so that an image installs them in a layer below the code.

`requirements.py` prints the base install, `--extra operator` adds an extra (repeatable), and
`--base pydantic,pyyaml` keeps only these of the base.
"""

import argparse
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path


def requirements(pyproject: Path, wanted: Sequence[str], base: set[str] | None) -> list[str]:
    """Return requirement lines in the order of the file.

    Args:
        pyproject: The project's pyproject.toml.
        wanted: Names of extras to add.
        base: Names of base requirements to keep; None keeps all.

    Raises:
        SystemExit: there is no such extra, or no such base requirement.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    lines: list[str] = project["dependencies"]
    if base is not None:
        lines = [line for line in lines if _name(line) in base]
        if missing := base - {_name(line) for line in lines}:
            raise SystemExit(f"{pyproject}: no base requirement {', '.join(sorted(missing))}")
    extras = project["optional-dependencies"]
    if unknown := [extra for extra in wanted if extra not in extras]:
        raise SystemExit(f"{pyproject}: no extra {unknown[0]}, there are {', '.join(sorted(extras))}")
    return lines + [line for extra in wanted for line in extras[extra]]


def _name(line: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0].lower()


def main() -> None:
    """Read the command line and print one line for each requirement."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pyproject", type=Path, default=Path("pyproject.toml"))
    parser.add_argument("--extra", action="append", default=[])
    parser.add_argument("--base", help="comma-separated names, default all")
    arguments = parser.parse_args()
    base = None if arguments.base is None else set(arguments.base.lower().split(","))
    print("\n".join(requirements(arguments.pyproject, arguments.extra, base)))


if __name__ == "__main__":
    main()
