"""Which job is to be looked at when: a queue by key as a plain value machine, with the time given.

One run per key at a time; what is added meanwhile coalesces into one more run. After a failure the key
waits longer each time, and new events do not cut that wait short; where a run only met what prevents its
job, they do. Not thread-safe: one loop owns it.
"""

import heapq
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)

FIRST_WAIT = 0.25
LONGEST_WAIT = 60.0
"""Seconds; the wait doubles from the first to the longest."""


def _wait(failures: int) -> float:
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 20), LONGEST_WAIT)


@dataclass
class _Entry:
    due: float | None = None
    failures: int = 0
    not_before: float = 0.0
    running_since: float | None = None


class Backlog(Generic[KeyT]):
    """Keys with the time at which each is due."""

    def __init__(self) -> None:
        self._entries: dict[KeyT, _Entry] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._count = 0

    def add(self, key: KeyT, now: float, delay: float = 0.0) -> None:
        """Ask for a run after `delay` seconds; an earlier one that is due anyway covers it."""
        entry = self._entries.setdefault(key, _Entry())
        due = max(now + delay, entry.not_before)
        if entry.due is None or due < entry.due:
            self._set_due(key, entry, due)

    def pop(self, now: float) -> KeyT | None:
        """Begin the run of a key that is due, None when there is none."""
        due = self.next_due()
        if due is None or due > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        entry = self._entries[key]
        entry.due, entry.running_since = None, now
        return key

    def done(self, key: KeyT, now: float, recheck_after: float | None = None) -> None:
        """End a run that went well; look again after so many seconds, if given."""
        entry = self._entries[key]
        entry.failures, entry.not_before, entry.running_since = 0, 0.0, None
        if entry.due is not None:
            self._set_due(key, entry, entry.due)
        if recheck_after is not None:
            self.add(key, now, recheck_after)
        elif entry.due is None:
            del self._entries[key]

    def failed(self, key: KeyT, now: float, at_least: float = 0.0) -> float:
        """End a run that failed; returns the seconds until the next one."""
        entry = self._entries[key]
        entry.failures += 1
        wait = max(_wait(entry.failures), at_least)
        entry.not_before, entry.running_since = now + wait, None
        self._set_due(key, entry, entry.not_before)
        return wait

    def hindered(self, key: KeyT, now: float, at_most: float | None = None) -> None:
        """End a run whose job is prevented by something; the next: by news, or after a growing wait."""
        entry = self._entries[key]
        entry.failures += 1
        wait = min(_wait(entry.failures), LONGEST_WAIT if at_most is None else at_most)
        entry.not_before, entry.running_since = now + FIRST_WAIT, None
        asked = now + wait if entry.due is None else max(entry.due, entry.not_before)
        self._set_due(key, entry, min(now + wait, asked))

    def next_due(self) -> float | None:
        """When the next key is due, None while there is none."""
        while self._heap:
            due, _, key = self._heap[0]
            entry = self._entries.get(key)
            if entry is not None and entry.due == due and entry.running_since is None:
                return due
            heapq.heappop(self._heap)  # another date has replaced it, or the key runs
        return None

    def oldest_run(self, now: float) -> float:
        """Seconds that the longest current run has taken, 0 without one."""
        begun = [entry.running_since for entry in self._entries.values() if entry.running_since is not None]
        return now - min(begun) if begun else 0.0

    def __len__(self) -> int:
        return len(self._entries)

    def _set_due(self, key: KeyT, entry: _Entry, due: float) -> None:
        """Dates of a running key stay out of the heap until its run ends."""
        entry.due = due
        if entry.running_since is None:
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
