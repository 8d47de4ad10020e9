"""The keyed queue: one run per key, coalescing, growing waits that no event cuts short."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dgl_operator.runtime.backlog import FIRST_WAIT, LONGEST_WAIT, Backlog


def test_fifty_adds_during_a_run_make_one_more() -> None:
    """Repeats coalesce."""
    backlog: Backlog[str] = Backlog()
    backlog.add("a", 0.0)
    assert backlog.pop(0.0) == "a"

    for _ in range(50):
        backlog.add("a", 0.1)
    during = backlog.pop(0.2)
    backlog.done("a", 0.3)

    assert during is None
    assert (backlog.pop(0.3), backlog.pop(0.3)) == ("a", None)


def test_an_event_does_not_cut_the_wait_after_a_failure_short() -> None:
    """Else a chatty pod would hammer a broken API server."""
    backlog: Backlog[str] = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    wait = backlog.failed("a", 1.0)

    backlog.add("a", 1.0)

    assert wait == FIRST_WAIT
    assert backlog.pop(1.0 + wait - 0.01) is None
    assert backlog.pop(1.0 + wait) == "a"


def test_news_cut_the_wait_of_a_hindered_job_short() -> None:
    """A quota was raised, a predecessor's pod is gone: nobody waits a minute for that."""
    backlog: Backlog[str] = Backlog()
    for now in range(0, 1000, 100):
        backlog.add("a", float(now))
        backlog.pop(float(now))
        backlog.hindered("a", float(now))

    without_news = backlog.next_due()
    backlog.add("a", 901.0)

    assert without_news == 900.0 + LONGEST_WAIT
    assert backlog.pop(901.0) == "a"


def test_a_hindered_job_does_not_run_for_every_event_of_a_moment() -> None:
    """Nor does it wait longer than it asked for."""
    backlog: Backlog[str] = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    backlog.add("a", 0.0)
    backlog.hindered("a", 0.0)

    assert backlog.pop(FIRST_WAIT - 0.01) is None
    assert backlog.pop(FIRST_WAIT) == "a"
    for _ in range(9):
        backlog.hindered("a", 1.0, at_most=1.0)
        assert backlog.next_due() is not None
        assert backlog.pop(2.0) == "a"


def test_a_job_that_is_gone_leaves_its_successor_no_wait() -> None:
    """Deleted while hindered, created anew at once."""
    backlog: Backlog[str] = Backlog()
    backlog.add("a", 0.0)
    for _ in range(9):
        backlog.pop(100.0)
        backlog.hindered("a", 100.0)
        backlog.add("a", 100.0)
        backlog.pop(101.0)
        backlog.hindered("a", 101.0)
    backlog.add("a", 102.0)
    backlog.pop(102.0)
    backlog.done("a", 102.0)

    backlog.add("a", 102.1)

    assert backlog.pop(102.1) == "a"


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_good_run() -> None:
    """And last at least as long as the server asked."""
    backlog: Backlog[str] = Backlog()
    now, waits = 0.0, []
    backlog.add("a", now)
    for _ in range(12):
        assert backlog.pop(now) == "a"
        waits.append(backlog.failed("a", now))
        now += waits[-1]
    backlog.pop(now)
    asked = backlog.failed("a", now, at_least=90.0)
    backlog.pop(now + asked)
    backlog.done("a", now + asked, recheck_after=0.0)
    backlog.pop(now + asked)

    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert waits[-1] == LONGEST_WAIT
    assert asked == 90.0
    assert backlog.failed("a", now + asked) == FIRST_WAIT


def test_a_recheck_comes_without_an_event_and_an_event_comes_before_it() -> None:
    """The earlier of the two."""
    backlog: Backlog[str] = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    backlog.done("a", 0.0, recheck_after=5.0)

    backlog.add("a", 1.0)
    early = backlog.pop(1.0)
    backlog.done("a", 1.0)

    assert early == "a"
    assert backlog.next_due() is None


def test_a_key_that_is_done_is_forgotten() -> None:
    """The memory of a long-lived operator does not grow with past jobs."""
    backlog: Backlog[str] = Backlog()
    for number in range(1000):
        backlog.add(f"job-{number}", 0.0)
    while key := backlog.pop(0.0):
        backlog.done(key, 0.0)

    assert len(backlog) == 0
    assert backlog._entries == {}
    assert backlog.oldest_run(9.0) == 0.0


class BacklogMachine(RuleBasedStateMachine):
    """Any order of events, runs and failures against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.backlog: Backlog[str] = Backlog()
        self.now = 0.0
        self.running: set[str] = set()
        self.wanted: set[str] = set()
        self.not_before: dict[str, float] = {}

    keys = st.sampled_from(["a", "b", "c"])

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.backlog.add(key, self.now)
        self.wanted.add(key)

    @rule(seconds=st.sampled_from([0.1, 1.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        key = self.backlog.pop(self.now)
        if key is None:
            ready = {key for key in self.wanted - self.running if self.not_before.get(key, 0.0) <= self.now}
            assert not ready, f"due but not popped: {ready}"
            return
        assert key in self.wanted
        assert key not in self.running, "two runs of one key"
        assert self.now >= self.not_before.get(key, 0.0), "a wait was cut short"
        self.wanted.discard(key)
        self.running.add(key)

    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: st.DataObject, fails: bool) -> None:
        if not self.running:
            return
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(key)
        if fails:
            self.not_before[key] = self.now + self.backlog.failed(key, self.now)
            self.wanted.add(key)
        else:
            self.not_before.pop(key, None)
            self.backlog.done(key, self.now)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        waiting = self.wanted - self.running
        assert (self.backlog.next_due() is not None) == bool(waiting)


BacklogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestBacklog = BacklogMachine.TestCase
