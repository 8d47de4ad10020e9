"""Order-free comparison of two big tables that several ranks hold in pieces.

Every row is a key and a 64-bit hash, in any order and on any rank. Sums of the hashes modulo 2**64 are
kept for 64 ranges of keys, on each rank for its own rows, and added over all ranks: one small reduction for
each table. Equal sums mean equal tables (each wrong row would have to be cancelled by others in 64 bits);
an unequal range is read again in finer ranges, down to the keys that differ.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from dglrun.arrays import Array, Ints, NDArray
from dglrun.mpi.collectives import Ranks, run_on_all_ranks

Hashes = NDArray[np.uint64]
Stream = Callable[[], Iterable[tuple[Array, Hashes]]]

RANGES = 64
"""Ranges of keys that are summed apart: what a rank sends in one reduction is 2 KiB."""
_SLICE = 1 << 15
"""Rows that are hashed at a time: their columns stay in the processor's cache."""
_FACTOR = np.uint64(0xD6E8FEB86659FD93)


def mix(values: Hashes) -> None:
    """Scramble sums of multiples of odd numbers, 64-bit integers of shape (rows,), in their place.

    The steps are xorshift, multiply, xorshift. In the multiplications before it each bit reaches all higher
    ones, so each bit of what was hashed reaches all bits. The factor is that of Degski's mixer of 64 bits. A
    third round, as in splitmix64, would cost half as much again.

    Args:
        values: The sums, contiguous; they become the hashes.
    """
    low, high = _halves(values)
    low ^= high  # as values ^= values >> 32, in two thirds of the time: numpy's shifts do not use vectors
    values *= _FACTOR
    low ^= high


def _halves(values: Hashes) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Views of the lower and the upper 32 bits: uint32, shape of `values`, which is contiguous."""
    words = values.view(np.dtype("<u4"))
    return words[..., 0::2], words[..., 1::2]


def hash_columns(*columns: Array) -> Hashes:
    """Hash rows given as columns, each of any integer dtype, shape (rows,): uint64, same shape."""
    first, *factors = _odd_numbers(0, len(columns))
    found = np.empty(len(columns[0]), np.uint64)
    room = np.empty(min(len(found), _SLICE), np.uint64)
    for start in range(0, len(found), _SLICE):
        rows = slice(start, start + _SLICE)
        total = found[rows]
        product = room[: len(total)]
        _multiply(columns[0][rows], first, total)
        for column, factor in zip(columns[1:], factors, strict=True):
            _multiply(column[rows], factor, product)
            total += product
        mix(total)
    return found


def _multiply(column: Array, factor: np.uint64, product: Hashes) -> None:
    """Set `product` to integers of any dtype times a factor, modulo 2**64; shape (rows,) each."""
    if column.dtype.itemsize == 8:
        np.multiply(column.view(np.uint64), factor, out=product)
    else:
        np.copyto(product, column, casting="unsafe")
        product *= factor


def hash_rows(keys: Array, rows: Array) -> Hashes:
    """Hash the bytes of each row together with their number and its key.

    The bytes are taken as 32-bit words, each multiplied by an odd 64-bit number of its own, summed modulo
    2**64 with the key and the number of bytes, and mixed; so rows that differ in zeros at the end differ.
    With 64-bit words two flipped highest bits would cancel, as in a row of floats that is negated.

    Args:
        keys: Any integers, shape (rows,).
        rows: Any dtype, shape (rows, ...).

    Returns:
        uint64, shape (rows,).
    """
    words = _words(rows)
    low, high = (_odd_numbers(at, words.shape[1]) for at in (1, 2))
    of_key = _odd_numbers(3, 1)[0]
    width = np.uint64(rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64)))
    found = np.empty(len(rows), np.uint64)
    step = max(1, 2 * _SLICE // max(words.shape[1], 1))
    room = np.empty((min(step, len(rows)), words.shape[1]), np.uint64)
    for start in range(0, len(found), step):
        part, total = words[start : start + step], found[start : start + step]
        upper = room[: len(part)]
        np.copyto(upper, _halves(part)[1])
        _multiply(keys[start : start + step], of_key, total)
        total += np.einsum("ij,j->i", upper, high)
        total += np.einsum("ij,j->i", part, low)
        total += width
        mix(total)
    return found


def _words(rows: Array) -> Hashes:
    """The bytes of each row as 64-bit words, the last one filled up with zeros: shape (rows, words)."""
    width = rows.dtype.itemsize * int(np.prod(rows.shape[1:], dtype=np.int64))
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), width)
    if width % 8 == 0:
        return data.view(np.uint64)
    if width in (1, 2, 4):
        return data.view(np.dtype(f"u{width}")).astype(np.uint64)
    padded = np.zeros((len(rows), width + -width % 8), np.uint8)
    padded[:, :width] = data
    return padded.view(np.uint64)


@cache
def _odd_numbers(family: int, count: int) -> Hashes:
    """Fixed odd numbers that look random, others for each family: uint64, shape (count,), read-only.

    They are those of splitmix64 from a start for each family: Steele, Lea and Flood, "Fast Splittable
    Pseudorandom Number Generators" (OOPSLA 2014), mix64variant13.
    """
    found = (np.arange(count, dtype=np.uint64) + np.uint64((family + 1) << 40)) + np.uint64(
        0x9E3779B97F4A7C15
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        found = (found ^ (found >> np.uint64(shift))) * np.uint64(factor)
    found |= np.uint64(1)
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class Difference:
    """The first keys whose rows differ.

    Attributes:
        missing: Keys of which the second table lacks a row.
        extra: Keys of which it has a row too many.
        changed: Keys whose rows are others.
        holders: The ranks that hold the second table's rows of `extra` and `changed`.
        more: Whether other keys differ, too.
        unsteady: Keys among which some differed at first and none when they were read again.
    """

    missing: Sequence[int]
    extra: Sequence[int]
    changed: Sequence[int]
    holders: Sequence[int] = ()
    more: bool = False
    unsteady: range | None = None

    def __str__(self) -> str:
        """What differs, in words."""
        if self.unsteady is not None:
            first, last = self.unsteady[0], self.unsteady[-1]
            return (
                f"{first} to {last} differ, but read otherwise the second time: a file changes or a disk errs"
            )
        named = {"missing": self.missing, "too many": self.extra, "different": self.changed}
        found = [f"{what}: {_some(keys)}" for what, keys in named.items() if keys]
        return "; ".join([*found, *(["others differ too"] if self.more else [])])


def compare(ranks: Ranks, first: Stream, second: Stream, keys: int) -> Difference | None:
    """Compare two tables; collective.

    Args:
        ranks: The processes.
        first: Yields blocks of this rank's keys (any integers) and hashes (uint64), both of shape (rows,);
            called again if the tables differ. Over all ranks the keys are 0 to `keys` - 1, each once.
        second: The same of the other table, which has as many rows if it is sound.
        keys: Number of keys.

    Returns:
        None if they are equal; else what differs in the first range that differs. The same on every rank.

    Raises:
        AgreedError: a stream of some rank raised a `DataError`.
    """
    low, high, more = 0, keys, False
    while True:
        wanted = KeyRanges.of(low, high)
        shift = wanted.shift
        by_rank = _gather(ranks, first, second, wanted)
        one, two = (np.sum([found[side] for found in by_rank], axis=0, dtype=np.uint64) for side in (0, 1))
        unequal = np.flatnonzero((one != two).any(axis=0))
        if not len(unequal):
            # What differed once and is equal now was read otherwise, and nobody knows which time was right.
            return None if (low, high) == (0, keys) else Difference((), (), (), unsteady=range(low, high))
        if shift == 0:
            return _difference(low, one, two, [found[1] for found in by_rank], more)
        more = more or len(unequal) > 1
        low += int(unequal[0]) << shift
        high = min(low + (1 << shift), high)


@dataclass(frozen=True)
class KeyRanges:
    """The keys from `low` to `high` (exclusive) in `RANGES` ranges of 2**shift keys each."""

    low: int
    high: int
    shift: int

    @staticmethod
    def of(low: int, high: int) -> "KeyRanges":
        """The narrowest such ranges."""
        return KeyRanges(low, high, max(0, (high - low - 1).bit_length() - RANGES.bit_length() + 1))


class TableSums:
    """The sums of some rows of a table.

    Attributes:
        values: Sum of the hashes and number of the rows in each range of keys: uint64, shape (2, RANGES).
    """

    def __init__(self, ranges: KeyRanges) -> None:
        self.values = np.zeros((2, RANGES), np.uint64)
        self._ranges = ranges

    def add(self, keys: Array, hashes: Hashes) -> None:
        """Add rows by their keys (any integers) and hashes (uint64), both of shape (rows,)."""
        ends, ordered = _by_range(keys, hashes, self._ranges)
        counts = np.diff(ends)
        full = np.flatnonzero(counts)
        if len(full):
            self.values[0, full] += np.add.reduceat(ordered[: ends[-1]], ends[full])
            self.values[1] += counts.astype(np.uint64)


def has_sums(ranks: Ranks, rows: Stream | Hashes, keys: int, wanted: Hashes) -> bool:
    """Whether a table has these sums; collective.

    Args:
        ranks: The processes.
        rows: This rank's rows, see `compare`, or their sums in `KeyRanges.of(0, keys)`.
        keys: Number of keys.
        wanted: The sums of the whole table in the same ranges.

    Raises:
        AgreedError: the stream of some rank raised a `DataError`.
    """
    own = run_on_all_ranks(ranks, lambda: _sums(rows, KeyRanges.of(0, keys)) if callable(rows) else rows)
    found = np.sum(ranks.gather(own), axis=0, dtype=np.uint64)
    return bool(np.array_equal(found, wanted))


def _gather(ranks: Ranks, first: Stream, second: Stream, wanted: KeyRanges) -> list[tuple[Hashes, Hashes]]:
    """The sums of both tables on every rank."""
    return ranks.gather(run_on_all_ranks(ranks, lambda: (_sums(first, wanted), _sums(second, wanted))))


def _sums(stream: Stream, wanted: KeyRanges) -> Hashes:
    """Sum of the hashes and number of the rows in each range of keys: shape (2, ranges)."""
    sums = TableSums(wanted)
    for keys, hashes in stream():
        sums.add(keys, hashes)
    return sums.values


def _by_range(keys: Array, hashes: Hashes, wanted: KeyRanges) -> tuple[Ints, Hashes]:
    """Where each range begins and ends, shape (ranges + 1,), and the hashes in the order of the ranges."""
    bounds = np.minimum(wanted.low + (np.arange(RANGES + 1) << wanted.shift), wanted.high)
    if not (keys[1:] < keys[:-1]).any():  # as dispatch writes them, and as the source has them
        return np.searchsorted(keys, bounds), hashes
    inside = np.flatnonzero((keys >= wanted.low) & (keys < wanted.high))
    where = ((keys[inside] - wanted.low) >> wanted.shift).astype(np.uint8)
    ends = np.concatenate(([0], np.cumsum(np.bincount(where, minlength=RANGES))))
    return ends, hashes[inside[np.argsort(where, kind="stable")]]


def _difference(low: int, one: Hashes, two: Hashes, by_rank: Sequence[Hashes], more: bool) -> Difference:
    """What differs where each range is one key."""
    wanted, got = one[1].astype(np.int64), two[1].astype(np.int64)
    extra, changed = got > wanted, (got == wanted) & (one[0] != two[0])
    found = [(low + np.flatnonzero(marked)).tolist() for marked in (got < wanted, extra, changed)]
    holders = [rank for rank, held in enumerate(by_rank) if held[1][extra | changed].any()]
    return Difference(found[0], found[1], found[2], holders, more)


def _some(keys: Sequence[int]) -> str:
    shown = ", ".join(map(str, keys[:3]))
    return shown if len(keys) <= 3 else f"{shown} and {len(keys) - 3} more"
