"""Which job is to be looked at when: a queue by key as a plain value machine, with the time given.

One run per key at a time; what is added meanwhile coalesces into one more run. After a failure the key
waits longer each time, and new events do not cut that wait short; where a run only met what prevents its
job, they do. Of the keys that are due, jobs under way come before new ones, namespaces take turns, and
keys whose last run was slow may not take all runs. What waits for a quiet moment is looked at when no other
key waits for its turn, before its own time. Not thread-safe: its owner holds a lock.
"""

import heapq
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from dgl_operator.runtime.kinds import Key

FIRST_WAIT = 0.25
LONGEST_WAIT = 60.0
"""Seconds; the wait doubles from the first to the longest."""
SLOW_SECONDS = 0.5
"""A run that takes longer waits for somebody else; its key's next runs have a bounded share of the runs."""
TURNS = 8
"""Of so many turns one begins with a new job and one with a slow key, so that neither waits for ever."""


class _Lane(Enum):
    UNDER_WAY = "under way"
    NEW = "new"
    SLOW = "slow"


_USUAL = (_Lane.UNDER_WAY, _Lane.NEW, _Lane.SLOW)
_NEW_FIRST = (_Lane.NEW, _Lane.UNDER_WAY, _Lane.SLOW)
_SLOW_FIRST = (_Lane.SLOW, _Lane.UNDER_WAY, _Lane.NEW)


def _wait(failures: int) -> float:
    return min(FIRST_WAIT * 2.0 ** min(failures - 1, 20), LONGEST_WAIT)


SOON = 10.0
"""Seconds; a run that is due later waits for a clock, such as a deadline of its job."""


REPLACED_DATES = 64
"""So many dates that others have replaced may stay, and one for each key, before all of them are dropped."""


@dataclass(slots=True)
class _Entry:
    due: float | None = None
    is_waiting_for_turn: bool = False
    failures: int = 0
    not_before: float = 0.0
    running_since: float | None = None
    lane: _Lane = _Lane.UNDER_WAY
    is_slow: bool = False


def _is_at_work(entry: _Entry, now: float) -> bool:
    is_soon = entry.due is not None and entry.due - now <= SOON
    return is_soon or entry.is_waiting_for_turn or entry.failures > 0 or entry.running_since is not None


class DelayQueue:
    """Keys with the time at which each is due."""

    def __init__(self, runs: int, is_new: Callable[[Key], bool] = lambda _key: False) -> None:
        """Make an empty queue.

        Args:
            runs: How many keys run at once at the most.
            is_new: Whether a job was never looked at.
        """
        self._is_new = is_new
        self._most_of_one = max(1, runs - runs // 4)
        self._most_slow = max(1, runs // 2)
        self._most_new = max(1, runs // 4)
        self._entries: dict[Key, _Entry] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._lanes: dict[_Lane, OrderedDict[str, deque[Key]]] = {lane: OrderedDict() for lane in _Lane}
        self._running: Counter[str] = Counter()
        self._accepting: Counter[str] = Counter()
        self._in_lane: Counter[_Lane] = Counter()
        self._until_quiet: OrderedDict[Key, None] = OrderedDict()
        self._count = 0
        self._turn = 0

    def add(self, key: Key, now: float, delay: float = 0.0) -> None:
        """Ask for a run after `delay` seconds; an earlier one that is due anyway covers it."""
        entry = self._entries.setdefault(key, _Entry())
        due = max(now + delay, entry.not_before)
        if not entry.is_waiting_for_turn and (entry.due is None or due < entry.due):
            self._set_due(key, entry, due)

    def pop(self, now: float) -> Key | None:
        """Begin the run of a key whose turn it is, None when there is none."""
        self._line_up(now)
        order = self._order()
        key = next((found for lane in order if (found := self._next_of(lane)) is not None), None)
        if key is None:
            if (key := self._quiet(now)) is None:
                return None
            self._entries[key].lane = self._lane(key, self._entries[key])
        self._turn += 1
        self._until_quiet.pop(key, None)
        entry = self._entries[key]
        entry.is_waiting_for_turn, entry.due, entry.running_since = False, None, now
        self._running[key.namespace] += 1
        self._in_lane[entry.lane] += 1
        self._accepting[key.namespace] += entry.lane is _Lane.NEW
        return key

    def wait_for_quiet(self, key: Key) -> None:
        """Take the next run of a key that runs before its time, when no other key waits for its turn."""
        self._until_quiet[key] = None

    def done(self, key: Key, now: float, recheck_after: float | None = None) -> None:
        """End a run that went well; look again after so many seconds, if given."""
        entry = self._end(key, now)
        entry.failures, entry.not_before = 0, 0.0
        if entry.due is not None:
            self._set_due(key, entry, entry.due)
        if recheck_after is not None:
            self.add(key, now, recheck_after)
        elif entry.due is None:
            del self._entries[key]
            self._until_quiet.pop(key, None)

    def failed(self, key: Key, now: float, at_least: float = 0.0) -> float:
        """End a run that failed; returns the seconds until the next one."""
        entry = self._end(key, now)
        entry.failures += 1
        wait = max(_wait(entry.failures), at_least)
        entry.not_before = now + wait
        self._set_due(key, entry, entry.not_before)
        return wait

    def requeue_blocked(self, key: Key, now: float, at_most: float | None = None) -> None:
        """End a run whose job is blocked by something; the next: by news, or after a growing wait."""
        entry = self._end(key, now)
        entry.failures += 1
        wait = min(_wait(entry.failures), LONGEST_WAIT if at_most is None else at_most)
        entry.not_before = now + FIRST_WAIT
        asked = now + wait if entry.due is None else max(entry.due, entry.not_before)
        self._set_due(key, entry, min(now + wait, asked))

    def next_due(self, now: float) -> float | None:
        """When a run may begin: `now` while a key waits for its turn, None while there is none."""
        self._line_up(now)
        if any(self._candidate(lane) is not None for lane in _Lane) or self._quiet(now) is not None:
            return now
        return self._heap[0][0] if self._heap else None

    def oldest_run(self, now: float) -> float:
        """Seconds that the longest current run has taken, 0 without one."""
        begun = [entry.running_since for entry in self._entries.values() if entry.running_since is not None]
        return now - min(begun) if begun else 0.0

    @property
    def waiting(self) -> int:
        """Keys that are due and wait for their turn."""
        return sum(len(keys) for lane in self._lanes.values() for keys in lane.values())

    def waiting_in(self, namespace: str) -> int:
        """Of them those of a namespace."""
        return sum(len(keys.get(namespace, ())) for keys in self._lanes.values())

    def depth(self, now: float) -> int:
        """Keys that run, are due or are tried again; one that waits for a deadline of its job is none."""
        return sum(_is_at_work(entry, now) for entry in self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def _end(self, key: Key, now: float) -> _Entry:
        entry = self._entries[key]
        begun = now if entry.running_since is None else entry.running_since
        self._running[key.namespace] -= 1
        if not self._running[key.namespace]:
            del self._running[key.namespace]
        self._in_lane[entry.lane] -= 1
        self._accepting[key.namespace] -= entry.lane is _Lane.NEW
        if not self._accepting[key.namespace]:
            del self._accepting[key.namespace]
        entry.running_since, entry.is_slow = None, now - begun > SLOW_SECONDS
        return entry

    def _set_due(self, key: Key, entry: _Entry, due: float) -> None:
        """Dates of a running key stay out of the heap until its run ends."""
        entry.due = due
        if entry.running_since is None:
            self._count += 1
            heapq.heappush(self._heap, (due, self._count, key))
            if len(self._heap) > 2 * len(self._entries) + REPLACED_DATES:
                self._drop_replaced()

    def _drop_replaced(self) -> None:
        """Drop the dates that another has replaced: they would lie below a nearer one until that comes."""
        self._heap = [date for date in self._heap if self._is_valid(date[0], date[2])]
        heapq.heapify(self._heap)

    def _is_valid(self, due: float, key: Key) -> bool:
        """Whether this is the date at which the key is to be given its place in a lane."""
        entry = self._entries.get(key)
        if entry is None or entry.due != due:
            return False
        return entry.running_since is None and not entry.is_waiting_for_turn

    def _line_up(self, now: float) -> None:
        """Give each key that is due its place in a lane; dates that another has replaced are dropped."""
        while self._heap:
            due, _, key = self._heap[0]
            if not self._is_valid(due, key):
                heapq.heappop(self._heap)
                continue
            if due > now:
                return
            heapq.heappop(self._heap)
            entry = self._entries[key]
            entry.is_waiting_for_turn = True
            entry.lane = self._lane(key, entry)
            self._lanes[entry.lane].setdefault(key.namespace, deque()).append(key)

    def _lane(self, key: Key, entry: _Entry) -> _Lane:
        if entry.is_slow:
            return _Lane.SLOW
        return _Lane.NEW if self._is_new(key) else _Lane.UNDER_WAY

    def _order(self) -> tuple[_Lane, ...]:
        place = self._turn % TURNS
        return _NEW_FIRST if place == TURNS - 1 else _SLOW_FIRST if place == TURNS // 2 - 1 else _USUAL

    def _candidate(self, lane: _Lane) -> str | None:
        """The namespace of a lane whose turn it is; one namespace never takes all runs.

        New jobs are accepted a few at a time: a thousand at once would keep the API server so busy with
        creating pods that no job gets on with those it has.
        """
        if lane is _Lane.SLOW and self._in_lane[lane] >= self._most_slow:
            return None
        if lane is _Lane.NEW and self._in_lane[lane] >= self._most_new:
            return None
        counted, most = self._running, self._most_of_one
        if lane is _Lane.NEW:  # the last place is for another namespace
            counted, most = self._accepting, max(1, self._most_new - 1)
        return next((place for place in self._lanes[lane] if counted[place] < most), None)

    def _quiet(self, now: float) -> Key | None:
        """The first key that has waited for a quiet moment and may run; None while others wait for a turn."""
        if any(self._lanes.values()):
            return None
        full = {place for place, runs in self._running.items() if runs >= self._most_of_one}
        keys = (key for key in self._until_quiet if key.namespace not in full)
        return next((key for key in keys if self._may_run(key, now)), None)

    def _may_run(self, key: Key, now: float) -> bool:
        entry = self._entries[key]
        if entry.running_since is not None or entry.not_before > now:
            return False
        return not entry.is_slow or self._in_lane[_Lane.SLOW] < self._most_slow

    def _next_of(self, lane: _Lane) -> Key | None:
        namespace = self._candidate(lane)
        if namespace is None:
            return None
        waiting = self._lanes[lane][namespace]
        key = waiting.popleft()
        if waiting:
            self._lanes[lane].move_to_end(namespace)
        else:
            del self._lanes[lane][namespace]
        return key
