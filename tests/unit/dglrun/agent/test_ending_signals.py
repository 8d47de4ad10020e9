"""Signals that are put off for a moment."""

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from dglrun.agent import ending_signals
from dglrun.errors import Terminated


@pytest.fixture
def raising() -> Iterator[None]:
    """SIGTERM raises, as in each command."""

    def raise_it(number: int, _frame: object) -> None:
        raise Terminated(number)

    before = signal.signal(signal.SIGTERM, raise_it)
    yield
    signal.signal(signal.SIGTERM, before)


def test_the_handler_runs_at_the_end_of_the_block(raising: None) -> None:
    """Also where another thread takes the signal."""
    done = []

    def block() -> None:
        with ending_signals.put_off():
            in_another_thread(lambda: os.kill(os.getpid(), signal.SIGTERM))
            done.append("the whole block")

    with pytest.raises(Terminated):
        block()

    assert done


def test_the_handlers_come_back(raising: None) -> None:
    """Of both signals, after an error too."""
    before = [signal.getsignal(each) for each in ending_signals.ENDING]

    with pytest.raises(OSError, match="full"), ending_signals.put_off():
        raise OSError("full")

    assert [signal.getsignal(each) for each in ending_signals.ENDING] == before


def test_another_thread_has_nothing_to_put_off() -> None:
    """Python runs handlers in the main thread only, and lets no other set them."""
    before = signal.getsignal(signal.SIGTERM)

    def work() -> None:
        with ending_signals.put_off():
            found.append(signal.getsignal(signal.SIGTERM))

    found: list[object] = []
    in_another_thread(work)

    assert found == [before]


def in_another_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
