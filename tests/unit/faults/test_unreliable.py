"""What the proxy before the API server makes of requests."""

from collections import Counter

from tests.faults.unreliable import READS, Fate


def test_the_first_watches_expire_whatever_chance_says() -> None:
    """Other requests between them do not count."""
    fate = Fate(seed=1, share=0.0, expired=2)

    drawn = [fate.draw("GET", is_watch=is_watch) for is_watch in (False, True, False, True, True)]

    assert drawn == ["good", "410", "good", "410", "good"]
    assert fate.counts == Counter(good=3) + Counter({"410": 2})


def test_only_writes_are_lost_or_conflict() -> None:
    """A read that is done and not answered is one that was refused."""
    fate = Fate(seed=1, share=1.0)

    reads = {fate.draw(method, is_watch=False) for method in READS for _ in range(200)}
    writes = {fate.draw("POST", is_watch=False) for _ in range(200)}

    assert writes - reads == {"409", "lost"}
    assert reads < writes
