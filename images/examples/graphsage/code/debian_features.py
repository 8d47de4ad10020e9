"""Feature vectors from words: signed feature hashing (Weinberger et al. 2009), the same on every machine."""

import re
import zlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]

_WORD = re.compile(r"[a-z]{2,}")


def words(text: str) -> list[str]:
    """The words of two and more letters; versions and separators drop out."""
    return _WORD.findall(text.lower())


def hashed(rows: Sequence[Iterable[str]], width: int, salt: str) -> Matrix:
    """Hash each row's terms into a vector of length 1 (0 without terms).

    Args:
        rows: Terms of each row.
        width: Number of columns.
        salt: Sets the columns of one kind of term apart from those of another.

    Returns:
        float32 of shape (len(rows), width).
    """
    matrix = np.zeros((len(rows), width), np.float32)
    for row, terms in zip(matrix, rows, strict=True):
        for term in terms:
            code = zlib.crc32(f"{salt}:{term}".encode())
            row[code % width] += 1.0 if code & 0x10000 else -1.0
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix / np.maximum(lengths, 1e-6), np.float32)


def buckets(names: Iterable[str], count: int) -> npt.NDArray[np.int64]:
    """A number below `count` for each name, which never changes: for splits that outlive a new index."""
    return np.array([zlib.crc32(f"split:{name}".encode()) % count for name in names], np.int64)
