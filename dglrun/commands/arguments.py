"""Argument parsers of all commands: flags in full, and errors of one line that name what was probably meant.

It imports the standard library only: every command is started through it.
"""

import argparse
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn


class UsageError(Exception):
    """The command line is not what it must be; one line."""


class Parser(argparse.ArgumentParser):
    """A parser that raises UsageError where argparse prints its usage and leaves, and takes no abbreviation.

    A flag that is cut short would change its meaning with the next flag that begins alike.
    """

    def __init__(self, prog: str | None = None, **settings: Any) -> None:
        settings.setdefault("allow_abbrev", False)
        settings.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(prog, **settings)

    def error(self, message: str) -> NoReturn:
        """Raise.

        Raises:
            UsageError: always.
        """
        hint = f" ({self.prog} --help lists the flags)" if message.startswith("the following") else ""
        raise UsageError(message.removeprefix("argument ") + hint)

    def read(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line.

        Raises:
            UsageError: a flag is unknown, lacks its value or has a wrong one.
        """
        known, end = self.flags(), list(argv).index("--") if "--" in argv else len(argv)
        flags = [word for word in argv[:end] if word.startswith("--")]
        # Before argparse, which would first complain of the flag that the misspelt one should have been.
        self._refuse([flag for flag in flags if flag.partition("=")[0] not in known])
        found, unknown = self.parse_known_args(argv)
        self._refuse(unknown)
        return found

    def _refuse(self, unknown: Sequence[str]) -> None:
        if unknown:
            raise UsageError(f"unknown argument {unknown[0]!r}: {self.suggestion(unknown[0])}")

    def suggestion(self, unknown: str) -> str:
        """The flag that was probably meant, else where the flags are listed."""
        flag = unknown.partition("=")[0]
        return meant(flag, self.flags()) or f"{self.prog} --help lists the flags"

    def flags(self) -> list[str]:
        """All flags, with those of subcommands."""
        found: list[str] = []
        for action in self._actions:
            found += action.option_strings
            if isinstance(action.choices, dict):
                found += [flag for each in action.choices.values() for flag in each.flags()]
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Replaces argparse's "invalid choice": what was expected, what was got, what was meant."""
        if action.choices is None or value in action.choices:
            return
        words = [str(word) for word in action.choices]
        near = meant(str(value), words)
        text = f"expected {', '.join(words)}, got {value!r}" + (f": {near}" if near else "")
        raise argparse.ArgumentError(action, text)


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean X?` with the nearest known word, or nothing where none is near."""
    import difflib  # noqa: PLC0415 - 2 ms of each start, and for a wrong word only

    near = difflib.get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else ""


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of a flag that takes a whole number within bounds."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        number = int(text) if text.isascii() and text.removeprefix("-").isdigit() else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"expected a whole number {bounds}, got {text!r}")
        return number

    return read


def above(limit: float) -> Callable[[str], float]:
    """The type of a flag that takes a number above a limit."""

    def read(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if not limit < number < float("inf"):
            raise argparse.ArgumentTypeError(f"expected a number above {limit:g}, got {text!r}")
        return number

    return read
