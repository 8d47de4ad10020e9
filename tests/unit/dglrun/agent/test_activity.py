"""How long the processes of a worker have been idle."""

from hypothesis import given
from hypothesis import strategies as st

from dglrun.agent.activity import CPU, OUTPUT, SHARE, ActivityMonitor


@given(st.lists(st.tuples(st.floats(0.1, 60), st.booleans()), min_size=1, max_size=20))
def test_idle_is_the_time_since_the_last_output(looks: list[tuple[float, bool]]) -> None:
    """Where CPU does not count, a process that spins in a GPU's barrier is idle."""
    monitor, now, wrote, cpu = ActivityMonitor([OUTPUT], 0.0), 0.0, 0.0, 0.0
    for pause, writes in looks:
        now, wrote = now + pause, now + pause / 2 if writes else wrote

        assert monitor.idle({"trainer 0": wrote}, {}, now) == {"trainer 0": now - wrote}
        cpu += pause


@given(st.lists(st.floats(1, 60), min_size=2, max_size=20), st.floats(0, 0.9))
def test_who_uses_hardly_any_cpu_is_idle(pauses: list[float], share: float) -> None:
    """A server that wakes up now and then to look for requests does not keep a training alive."""
    monitor, now = ActivityMonitor([OUTPUT, CPU], 0.0), 0.0
    for pause in pauses:
        now += pause
        idle = monitor.idle({"server 0": 0.0}, {"server 0": now * share * SHARE}, now)

    assert idle == {"server 0": now - pauses[0]}


def test_the_first_look_finds_nobody_idle() -> None:
    """A look that came late, on a busy machine, took a process for idle that had computed all the time."""
    monitor = ActivityMonitor([OUTPUT, CPU], 0.0)

    assert monitor.idle({"trainer 0": 0.0}, {"trainer 0": 9.0}, 10.0) == {"trainer 0": 0.0}


def test_who_uses_cpu_is_active_until_it_stops() -> None:
    """A long epoch prints nothing; then it hangs."""
    monitor = ActivityMonitor([OUTPUT, CPU], 0.0)
    used = [0.0, 3.0, 6.0, 6.0, 6.01, 6.02]

    idle = [
        monitor.idle({"trainer 0": 0.0}, {"trainer 0": cpu}, 3.0 * at)["trainer 0"]
        for at, cpu in enumerate(used)
    ]

    assert idle == [0.0, 0.0, 0.0, 3.0, 6.0, 9.0]


def test_a_descendant_that_has_ended_is_activity() -> None:
    """What it has used is gone from the sum."""
    monitor = ActivityMonitor([OUTPUT, CPU], 0.0)
    for now, cpu in ((0.0, 50.0), (100.0, 50.0)):
        monitor.idle({"trainer 0": 0.0}, {"trainer 0": cpu}, now)

    assert monitor.idle({"trainer 0": 0.0}, {"trainer 0": 1.0}, 101.0) == {"trainer 0": 0.0}
