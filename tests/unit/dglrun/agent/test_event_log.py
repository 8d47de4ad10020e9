"""The log of events that attached streams read at their own speed."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.agent.event_log import EventLog


@settings(deadline=None)  # files on a busy machine
@given(
    st.lists(st.integers(0, 400), max_size=60),
    st.integers(2, 60).map(lambda n: n * 100),
    st.lists(st.integers(1, 5), max_size=80),
)
def test_a_journal_gives_each_record_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], limit: int, reads: list[int]
) -> None:
    """A reader that follows misses nothing that is still kept, and stays at the beginning of records."""
    journal = EventLog(tmp_path_factory.mktemp("journal"), limit)
    offset, read, pace = 0, b"", iter(reads)
    lost = 0
    for number, size in enumerate(sizes):
        journal.append({"n": number, "x": "y" * size})
        for _ in range(next(pace, 0) - 1):
            at, block = journal.read(offset, 64)
            lost, offset, read = lost + at - offset, at + len(block), read + block
    while True:
        at, block = journal.read(offset, 64)
        if not block:
            break
        lost, offset, read = lost + at - offset, at + len(block), read + block
    journal.close()

    numbers = [int(line.split(b",")[0].split(b":")[1]) for line in read.splitlines()]
    assert read == b"" or read.endswith(b"\n")
    assert numbers == sorted(set(numbers))
    assert lost or numbers == list(range(len(sizes)))
    assert not sizes or numbers[-1] == len(sizes) - 1


def test_a_journal_stays_within_its_limit(tmp_path: Path) -> None:
    """However much a process prints."""
    journal = EventLog(tmp_path, limit=10_000)

    for _ in range(1000):
        journal.append({"text": "x" * 100})

    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert 4_000 < size <= 10_200
    assert journal.read(0)[0] == journal.start > 0
    journal.close()
