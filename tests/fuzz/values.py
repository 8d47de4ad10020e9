"""Values that belong nowhere: each is drawn by name, so that a finding can say what was put there."""

import random
from collections.abc import Callable
from typing import Any

from tests.fuzz.json_text import Verbatim

HUGE = 70_000
"""Characters of a huge text: twice what a condition's message takes."""

TEXTS: dict[str, str] = {
    "empty": "",
    "blank": " ",
    "newline": "line\nanother",
    "nul": "a\x00b",
    "escape": "\x1b[31mred",
    "right-to-left": "\u202etxt.exe",
    "line separator": "a\u2028b",
    "combining": "e" + "\u0301" * 50,
    "emoji": "\U0001f469\u200d\U0001f52c",
    "replacement": "\ufffd\uffff",
    "lone surrogate": "\ud800",
    "full width": "\uff11\uff12\uff13",
    "turkish": "\u0130\u0131",
    "superscript digit": "\u00b2",
    "template": "{{ job }} {% if %}",
    "format": "%s %d {0} {name}",
    "shell": "$(reboot) `id` ; rm -rf \"'",
    "variable": "$(POD_IP)",
    "path": "../../etc/passwd",
    "slashes": "///",
    "yaml": "- a: [b\n? {",
    "null text": "null",
    "number text": "1e999",
    "separator": "a,b;c=d:e",
    "percent": "%00%2e%2e",
    "dashes": "--num-partitions",
}
NUMBERS: dict[str, Any] = {
    "zero": 0,
    "minus one": -1,
    "int32 max": 2**31 - 1,
    "int32 max + 1": 2**31,
    "int64 max": 2**63 - 1,
    "int64 max + 1": 2**63,
    "int64 min": -(2**63),
    "beyond double's integers": 2**53 + 1,
    "half": 0.5,
    "one as a float": 1.0,
    "largest float": 1.7976931348623157e308,
    "minus zero": Verbatim("-0"),
    "five thousand digits": Verbatim("9" * 5000),
    "a float of many digits": Verbatim("0." + "3" * 5000),
    "infinity": Verbatim("1e400"),
    "not a number": Verbatim("NaN"),
}
WRONG: dict[str, Any] = {
    "null": None,
    "true": True,
    "a number": 7,
    "a float": 1.5,
    "a text": "odd",
    "an empty text": "",
    "an empty list": [],
    "an empty object": {},
    "a list of null": [None],
    "a list of texts": ["odd"],
    "a list of lists": [[[]]],
    "a list of objects": [{}],
    "a list of mixed": [1, "a", None, {}],
    "an object": {"odd": "value"},
    "an object with an empty key": {"": None},
    "a nested object": {"name": {"name": "x"}},
}


def huge(rng: random.Random) -> tuple[str, str]:
    """Return a text of 70,000 characters with its name."""
    kinds: dict[str, str] = {
        "letters": "x",
        "digits": "9",
        "blanks": " ",
        "dots": ".",
        "lines": "ab\n",
        "emoji": "\U0001f469",
        "quotes": "'\"",
        "brackets": "[",
        "words": "word ",
    }
    name = rng.choice(sorted(kinds))
    unit = kinds[name]
    return f"{HUGE} characters of {name}", (unit * HUGE)[:HUGE]


def text(rng: random.Random) -> tuple[str, str]:
    """Return an odd text with its name."""
    name = rng.choice(sorted(TEXTS))
    return f"text {name!r}", TEXTS[name]


def number(rng: random.Random) -> tuple[str, Any]:
    """Return a number at a boundary with its name."""
    name = rng.choice(sorted(NUMBERS))
    return f"number {name!r}", NUMBERS[name]


def wrong(rng: random.Random) -> tuple[str, Any]:
    """Return a value of some other type with its name."""
    name = rng.choice(sorted(WRONG))
    return name, WRONG[name]


DRAWS: tuple[Callable[[random.Random], tuple[str, Any]], ...] = (wrong, wrong, wrong, text, number, huge)


def any_odd(rng: random.Random) -> tuple[str, Any]:
    """Return any of these with its name."""
    return rng.choice(DRAWS)(rng)
