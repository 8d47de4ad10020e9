"""Make the tables of a small shop: csv with a header, string IDs and classes that are words.

Whoever buys an item likes its class, and the tables say of each user what they like, roughly. So a model that
looks at the buyers of an item can tell its class.
"""

import csv
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

CLASSES = ("books", "games", "tools")
BUYERS = 12
"""Of each item."""


def make(folder: Path, users: int = 150, items: int = 240, seed: int = 1) -> None:
    """Write users.csv, items.csv and buys.csv, and classes.csv, which the training does not see whole."""
    chance = random.Random(seed)  # noqa: S311 - the same tables each time
    names = [
        f"{chance.choice(('ann', 'bo', 'cy'))}.{chance.getrandbits(32):08x}@example.org" for _ in range(users)
    ]
    skus = [f"SKU-{chance.getrandbits(40):010x}" for _ in range(items)]
    likes = {name: at % len(CLASSES) for at, name in enumerate(names)}
    classes = {sku: chance.randrange(len(CLASSES)) for sku in skus}
    splits = {sku: ("train", "train", "val", "test")[at % 4] for at, sku in enumerate(skus)}
    folder.mkdir(parents=True, exist_ok=True)
    tastes = (
        (name, *(f"{(kind == like) + chance.gauss(0, 0.3):.3f}" for kind in range(len(CLASSES))))
        for name, like in likes.items()
    )
    _write(folder / "users.csv", ("user", *CLASSES), tastes)
    known = ((sku, CLASSES[classes[sku]] if split != "test" else "", split) for sku, split in splits.items())
    _write(folder / "items.csv", ("sku", "class", "split"), known)
    _write(folder / "classes.csv", ("sku", "class"), ((sku, CLASSES[kind]) for sku, kind in classes.items()))
    _write(folder / "buys.csv", ("user", "sku"), _buys(chance, likes, classes))


def _buys(chance: random.Random, likes: dict[str, int], classes: dict[str, int]) -> Iterable[Sequence[str]]:
    """Four in five buyers like the class."""
    for sku, kind in classes.items():
        fans = [name for name, like in likes.items() if like == kind]
        for _ in range(BUYERS):
            yield chance.choice(fans if chance.random() < 0.8 else list(likes)), sku


def _write(path: Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
