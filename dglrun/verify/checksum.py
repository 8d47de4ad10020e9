"""Order-free comparison of two big tables: every row is a key and a hash, rows in any order.

Sums of hashes are kept for buckets of keys. Equal sums in all buckets mean equal tables (each wrong
row would have to be cancelled by others in 64 bits); an unequal bucket is read once more to name
the first keys that differ.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dglrun.arrays import Array, Ints

Hashes = NDArray[np.uint64]
Stream = Callable[[], Iterable[tuple[Array, Hashes]]]

BUCKET_BITS = 16
MAX_ROWS = 1 << 20
"""Rows in one block: sums of so many 32-bit halves are exact in float64."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_LOW = np.uint64(0xFFFFFFFF)


def mix(values: Array) -> Hashes:
    """Scramble integers of any dtype and shape, taken modulo 2**64: uint64, same shape.

    One step of splitmix64 from each as its state: Steele, Lea and Flood, "Fast Splittable Pseudorandom
    Number Generators" (OOPSLA 2014), mix64variant13.
    """
    found = values.astype(np.uint64)
    found += _GOLDEN
    found ^= found >> np.uint64(30)
    found *= _FIRST
    found ^= found >> np.uint64(27)
    found *= _SECOND
    found ^= found >> np.uint64(31)
    return found


def combine(*columns: Array) -> Hashes:
    """Hash rows given as columns, each of any integer dtype, shape (rows,): uint64, same shape."""
    found = mix(columns[0])
    for column in columns[1:]:
        found = mix(found + column.astype(np.uint64))
    return found


def row_hashes(rows: Array) -> Hashes:
    """Hash the bytes of each row of an array of any dtype, shape (rows, ...): uint64, shape (rows,)."""
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)
    found = np.zeros(len(rows), np.uint64)
    whole = width - width % 8
    words = np.ascontiguousarray(data[:, :whole]).view(np.uint64)
    for columns in (words, data[:, whole:]):
        for at in range(columns.shape[1]):
            found += mix(columns[:, at].astype(np.uint64) ^ mix(np.array([at + 1]))[0])
            found = (found << np.uint64(1)) | (found >> np.uint64(63))
    return found


@dataclass(frozen=True)
class Difference:
    """Keys whose rows differ: `missing` from the second table, `extra` in it, or `changed`."""

    missing: Sequence[int]
    extra: Sequence[int]
    changed: Sequence[int]

    def __str__(self) -> str:
        """All that differs, in words."""
        named = {"missing": self.missing, "too many": self.extra, "different": self.changed}
        return "; ".join(f"{what}: {_some(keys)}" for what, keys in named.items() if keys)


def compare(first: Stream, second: Stream, keys: int) -> Difference | None:
    """Compare two tables.

    Args:
        first: Yields blocks of keys (any integers, from 0 to `keys` - 1 in a sound table) and hashes
            (uint64), both of shape (rows,), at most `MAX_ROWS` rows; called again if the tables differ.
        second: The other table.
        keys: Number of keys.

    Returns:
        None if they are equal; else what differs in the first bucket that differs.
    """
    unequal = np.flatnonzero((_sums(first, keys) != _sums(second, keys)).any(axis=0))
    return _locate(first, second, int(unequal[0]), keys) if len(unequal) else None


def _sums(stream: Stream, keys: int) -> Array:
    """Sums modulo 2**64 of the low and the high halves of the hashes, and counts, by bucket."""
    buckets = _bucket(np.array([keys]), keys)[0] + 1
    sums = np.zeros((3, buckets), np.uint64)
    for found, hashes in stream():
        where = _bucket(found, keys)
        for at, half in enumerate((hashes & _LOW, hashes >> np.uint64(32))):
            sums[at] += np.bincount(where, half.astype(np.float64), buckets).astype(np.uint64)
        sums[2] += np.bincount(where, minlength=buckets).astype(np.uint64)
    return sums


def _bucket(found: Array, keys: int) -> Ints:
    """Bucket of each key; the last one, after those of all keys, is for keys that are none."""
    strangers = (max(keys, 1) - 1 >> BUCKET_BITS) + 1
    where = found.astype(np.int64) >> BUCKET_BITS
    where[(found < 0) | (found >= keys)] = strangers
    return where


def _locate(first: Stream, second: Stream, bucket: int, keys: int) -> Difference:
    one, two = _collect(first, bucket, keys), _collect(second, bucket, keys)
    both = one.keys() & two.keys()
    return Difference(
        sorted(key for key in one if len(two.get(key, ())) < len(one[key])),
        sorted(key for key in two if len(one.get(key, ())) < len(two[key])),
        sorted(
            key for key in both if len(one[key]) == len(two[key]) and sorted(one[key]) != sorted(two[key])
        ),
    )


def _collect(stream: Stream, bucket: int, keys: int) -> dict[int, list[int]]:
    held: dict[int, list[int]] = {}
    for found, hashes in stream():
        inside = _bucket(found, keys) == bucket
        for key, value in zip(found[inside].tolist(), hashes[inside].tolist(), strict=True):
            held.setdefault(key, []).append(value)
    return held


def _some(keys: Sequence[int]) -> str:
    shown = ", ".join(map(str, keys[:3]))
    return shown if len(keys) <= 3 else f"{shown} and {len(keys) - 3} more"
