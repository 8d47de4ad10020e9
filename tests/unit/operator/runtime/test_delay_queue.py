"""The keyed queue: one run per key, coalescing, growing waits that no event cuts short."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from dgl_operator.runtime.delay_queue import (
    FIRST_WAIT,
    LONGEST_WAIT,
    REPLACED_DATES,
    SLOW_SECONDS,
    TURNS,
    DelayQueue,
)
from dgl_operator.runtime.kinds import Key

RUNS = 8
A = Key("default", "a")


def test_fifty_adds_during_a_run_make_one_more() -> None:
    """Repeats coalesce."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    assert queue.pop(0.0) == A

    for _ in range(50):
        queue.add(A, 0.1)
    during = queue.pop(0.2)
    queue.done(A, 0.3)

    assert during is None
    assert (queue.pop(0.3), queue.pop(0.3)) == (A, None)


def test_an_event_does_not_cut_the_wait_after_a_failure_short() -> None:
    """Else a chatty pod would hammer a broken API server."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    queue.pop(0.0)
    wait = queue.failed(A, 1.0)

    queue.add(A, 1.0)

    assert wait == FIRST_WAIT
    assert queue.pop(1.0 + wait - 0.01) is None
    assert queue.pop(1.0 + wait) == A


def test_news_cut_the_wait_of_a_blocked_job_short() -> None:
    """A quota was raised, a predecessor's pod is gone: nobody waits a minute for that."""
    queue = DelayQueue(RUNS)
    for now in range(0, 1000, 100):
        queue.add(A, float(now))
        queue.pop(float(now))
        queue.requeue_blocked(A, float(now))

    without_news = queue.next_due(900.0)
    queue.add(A, 901.0)

    assert without_news == 900.0 + LONGEST_WAIT
    assert queue.pop(901.0) == A


def test_a_blocked_job_does_not_run_for_every_event_of_a_moment() -> None:
    """Nor does it wait longer than it asked for."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    queue.pop(0.0)
    queue.add(A, 0.0)
    queue.requeue_blocked(A, 0.0)

    assert queue.pop(FIRST_WAIT - 0.01) is None
    assert queue.pop(FIRST_WAIT) == A
    for _ in range(9):
        queue.requeue_blocked(A, 1.0, at_most=1.0)
        assert queue.next_due(1.0) is not None
        assert queue.pop(2.0) == A


def test_a_job_that_is_gone_leaves_its_successor_no_wait() -> None:
    """Deleted while blocked, created anew at once."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    for _ in range(9):
        queue.pop(100.0)
        queue.requeue_blocked(A, 100.0)
        queue.add(A, 100.0)
        queue.pop(101.0)
        queue.requeue_blocked(A, 101.0)
    queue.add(A, 102.0)
    queue.pop(102.0)
    queue.done(A, 102.0)

    queue.add(A, 102.1)

    assert queue.pop(102.1) == A


def test_waits_double_up_to_the_longest_and_begin_anew_after_a_good_run() -> None:
    """And last at least as long as the server asked."""
    queue = DelayQueue(RUNS)
    now, waits = 0.0, []
    queue.add(A, now)
    for _ in range(12):
        assert queue.pop(now) == A
        waits.append(queue.failed(A, now))
        now += waits[-1]
    queue.pop(now)
    asked = queue.failed(A, now, at_least=90.0)
    queue.pop(now + asked)
    queue.done(A, now + asked, recheck_after=0.0)
    queue.pop(now + asked)

    assert waits[:4] == [0.25, 0.5, 1.0, 2.0]
    assert waits[-1] == LONGEST_WAIT
    assert asked == 90.0
    assert queue.failed(A, now + asked) == FIRST_WAIT


def test_a_recheck_comes_without_an_event_and_an_event_comes_before_it() -> None:
    """The earlier of the two."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    queue.pop(0.0)
    queue.done(A, 0.0, recheck_after=5.0)

    queue.add(A, 1.0)
    early = queue.pop(1.0)
    queue.done(A, 1.0)

    assert early == A
    assert queue.next_due(1.0) is None


def test_a_key_that_is_done_is_forgotten() -> None:
    """The memory of a long-lived operator does not grow with past jobs."""
    queue = DelayQueue(RUNS)
    for number in range(1000):
        queue.add(Key("default", f"job-{number}"), 0.0)
    while key := queue.pop(0.0):
        queue.done(key, 0.0)

    assert len(queue) == 0
    assert queue._entries == {}
    assert queue.oldest_run(9.0) == 0.0


def test_dates_that_another_has_replaced_do_not_pile_up() -> None:
    """Each look at a busy job with a far deadline gives it another date, below that of a quiet job."""
    queue = DelayQueue(RUNS)
    quiet, busy = Key("default", "quiet"), [Key("default", f"busy-{number}") for number in range(10)]
    queue.add(quiet, 0.0, 5_000.0)
    sizes = []
    for now in range(1000):
        for key in busy:
            queue.add(key, float(now))
        while key_due := queue.pop(float(now)):
            queue.done(key_due, float(now), recheck_after=86_400.0)
        sizes.append(len(queue._heap))

    assert max(sizes) <= 2 * len(queue) + REPLACED_DATES
    assert [queue.pop(4_999.0), queue.pop(5_000.0)] == [None, quiet]
    assert {queue.pop(100_000.0), queue.pop(100_000.0)} <= set(busy)


def started(queue: DelayQueue, now: float) -> list[Key]:
    """Begin all runs that may begin."""
    found = []
    while (key := queue.pop(now)) is not None:
        found.append(key)
    return found


def test_jobs_under_way_come_before_new_ones_and_new_ones_are_not_forgotten() -> None:
    """A thousand jobs submitted at once do not hold up one whose partitioner has succeeded (A13)."""
    queue = DelayQueue(RUNS, is_new=lambda key: key.name.startswith("new"))
    for number in range(20):
        queue.add(Key("default", f"new-{number}"), 0.0)
    for number in range(20):
        queue.add(Key("default", f"old-{number}"), 1.0)

    order = []
    for _ in range(2 * TURNS):
        key = queue.pop(2.0)
        assert key is not None
        order.append(key.name.partition("-")[0])
        queue.done(key, 2.0)

    assert order.count("new") == 2
    assert order[: TURNS - 1] == ["old"] * (TURNS - 1)


def test_new_jobs_are_accepted_a_few_at_a_time() -> None:
    """Else a thousand of them keep the API server from what the jobs under way need."""
    queue = DelayQueue(16, is_new=lambda _key: True)
    for number in range(10):
        queue.add(Key("crowd", f"new-{number}"), 0.0)

    first = started(queue, 0.0)
    queue.done(first[0], 0.1)
    next_ones = started(queue, 0.1)
    queue.add(Key("small", "new"), 0.2)

    assert (len(first), len(next_ones)) == (3, 1)
    assert started(queue, 0.2) == [Key("small", "new")]


def test_namespaces_take_turns() -> None:
    """Whoever has many jobs waits for those jobs, and nobody else does."""
    queue = DelayQueue(RUNS)
    for number in range(100):
        queue.add(Key("crowd", f"job-{number}"), 0.0)
    queue.add(Key("small", "job"), 1.0)

    first = [queue.pop(1.0), queue.pop(1.0)]

    assert Key("small", "job") in first


def test_one_namespace_never_takes_all_runs() -> None:
    """A job of another one begins at once, though every run of the crowd's hangs."""
    queue = DelayQueue(RUNS)
    for number in range(100):
        queue.add(Key("crowd", f"job-{number}"), 0.0)
    hanging = started(queue, 0.0)

    queue.add(Key("small", "job"), 1.0)

    assert len(hanging) == RUNS - RUNS // 4
    assert queue.pop(1.0) == Key("small", "job")


def test_slow_keys_leave_runs_to_the_others_of_their_namespace() -> None:
    """40 jobs whose calls take a second each do not delay an innocent one beside them."""
    queue = DelayQueue(RUNS)
    slow = [Key("default", f"slow-{number}") for number in range(40)]
    for key in slow:
        queue.add(key, 0.0)
        assert queue.pop(0.0) == key
        queue.done(key, 2 * SLOW_SECONDS, recheck_after=0.0)
    running = started(queue, 10.0)

    queue.add(A, 10.0)

    assert len(running) == RUNS // 2
    assert queue.pop(10.0) == A


def in_its_quiet_wait(*others: Key) -> DelayQueue:
    """A queue whose key A is due in an hour, or when none of the others, which are due, waits any more."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    queue.pop(0.0)
    queue.wait_for_quiet(A)
    for key in others:
        queue.add(key, 0.0)
    queue.done(A, 0.0, 3600.0)
    return queue


def test_what_waits_for_a_quiet_moment_runs_when_no_other_key_waits() -> None:
    """A status that a busy operator held back stood for ten seconds, though the others took one."""
    b, c = Key("default", "b"), Key("other", "c")
    queue = in_its_quiet_wait(b, c)

    popped = [queue.pop(1.0) for _ in range(4)]

    assert popped == [b, c, A, None]
    assert queue.next_due(1.0) is None
    queue.done(A, 2.0)
    assert queue.pop(2.0) is None


def test_what_waits_for_a_quiet_moment_keeps_its_own_time() -> None:
    """Others may wait without end."""
    queue = DelayQueue(1)
    queue.add(A, 0.0)
    queue.pop(0.0)
    queue.wait_for_quiet(A)
    for name in "bc":
        queue.add(Key("default", name), 0.0)
    queue.done(A, 0.0, 10.0)

    popped = []
    for second in range(13):
        key = queue.pop(float(second))
        assert key is not None
        popped.append(key)
        queue.add(key, float(second))
        queue.done(key, float(second))

    assert A not in popped[:10]
    assert A in popped[10:]


def test_slow_keys_keep_their_share_of_the_runs_in_a_quiet_moment() -> None:
    """Some that hang would take all threads."""
    queue = DelayQueue(RUNS)
    keys = [Key(f"place-{number % 4}", f"slow-{number}") for number in range(2 * RUNS)]
    for key in keys:
        queue.add(key, 0.0)
        queue.pop(0.0)
        queue.wait_for_quiet(key)
        queue.done(key, 2 * SLOW_SECONDS, 3600.0)

    popped = [queue.pop(10.0) for _ in keys]

    assert sum(key is not None for key in popped) == RUNS // 2


def test_news_end_a_wait_for_quiet() -> None:
    """The look that they call for is the one that was waited for."""
    queue = in_its_quiet_wait()
    queue.add(A, 1.0)
    assert queue.pop(1.0) == A

    queue.done(A, 1.0)

    assert (queue.pop(1.0), len(queue)) == (None, 0)


def test_quiet_does_not_cut_the_wait_after_a_failure_short() -> None:
    """Else an idle operator would hammer a broken API server."""
    queue = DelayQueue(RUNS)
    queue.add(A, 0.0)
    queue.pop(0.0)
    queue.wait_for_quiet(A)
    wait = queue.failed(A, 0.0)

    assert queue.pop(wait - 0.01) is None
    assert queue.next_due(0.0) == wait
    assert queue.pop(wait) == A


class QueueMachine(RuleBasedStateMachine):
    """Any order of events, runs and failures against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = DelayQueue(100)
        self.now = 0.0
        self.running: set[Key] = set()
        self.wanted: set[Key] = set()
        self.not_before: dict[Key, float] = {}
        self.until_quiet: set[Key] = set()

    keys = st.sampled_from([A, Key("default", "b"), Key("other", "c")])

    @rule(key=keys)
    def add(self, key: Key) -> None:
        self.queue.add(key, self.now)
        self.wanted.add(key)

    @rule(seconds=st.sampled_from([0.1, 1.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def pop(self) -> None:
        key = self.queue.pop(self.now)
        if key is None:
            ready = {key for key in self.wanted - self.running if self.not_before.get(key, 0.0) <= self.now}
            assert not ready, f"due but not popped: {ready}"
            assert not self.until_quiet - self.running, f"quiet, but not popped: {self.until_quiet}"
            return
        assert key in self.wanted | self.until_quiet
        self.until_quiet.discard(key)
        assert key not in self.running, "two runs of one key"
        assert self.now >= self.not_before.get(key, 0.0), "a wait was cut short"
        self.wanted.discard(key)
        self.running.add(key)

    @rule(data=st.data(), how=st.sampled_from(["well", "waiting for quiet", "failed"]))
    def end(self, data: st.DataObject, how: str) -> None:
        if not self.running:
            return
        key = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(key)
        if how == "waiting for quiet":
            self.queue.wait_for_quiet(key)
            self.queue.done(key, self.now, 1e9)
            self.until_quiet.add(key)
        elif how == "failed":
            self.not_before[key] = self.now + self.queue.failed(key, self.now)
            self.wanted.add(key)
        else:
            self.not_before.pop(key, None)
            self.queue.done(key, self.now)

    @invariant()
    def nothing_is_forgotten(self) -> None:
        waiting = (self.wanted | self.until_quiet) - self.running
        assert (self.queue.next_due(self.now) is not None) == bool(waiting)


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase
