"""The signals that end dglrun, and how they are put off for a moment."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ENDING = (signal.SIGTERM, signal.SIGINT)

_Handler = Callable[[int, FrameType | None], Any] | int | None


@contextlib.contextmanager
def put_off() -> Iterator[None]:
    """Put SIGTERM and SIGINT off to the end of the block: their handlers, which raise, run then.

    By handlers and no mask: another thread, such as the one that shows the time, takes a signal that is
    masked in this one alone, and Python runs the handler here all the same. In another thread than the main
    one there is nothing to put off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {each: signal.getsignal(each) for each in ENDING}
    waits = True

    def handle(number: int, frame: FrameType | None) -> None:
        handler: _Handler = before[signal.Signals(number)]
        if not waits and callable(handler):
            handler(number, frame)
        else:
            came.append(number)

    try:
        for each in ENDING:
            signal.signal(each, handle)
        yield
    finally:
        # First this: a signal that comes between the next two calls raises there, and `handle` stays set for
        # the other signal.
        waits = False
        for each, earlier in before.items():
            signal.signal(each, signal.SIG_DFL if earlier is None else earlier)
        for number in came[:1]:
            signal.raise_signal(number)
