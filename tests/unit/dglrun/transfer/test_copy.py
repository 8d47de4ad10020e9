"""Copies whose other end stands still: a stream that makes no progress is given up."""

import sys
import time
from pathlib import Path

import pytest

from dglrun.transfer import copy
from dglrun.transfer.copy import CopyError
from dglrun.transfer.streams import Streams
from dglrun.transfer.tar_stream import Item

pytestmark = pytest.mark.timeout(60)

STANDS_STILL = (sys.executable, "-c", "import signal; print('ready', flush=True); signal.pause()")
"""Stands for `kubectl exec` to a pod whose node is gone: it says so much, then neither reads nor writes."""


@pytest.fixture(autouse=True)
def _is_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(copy, "ATTEMPTS", 1)


def test_a_receiver_that_takes_no_byte_is_given_up(tmp_path: Path) -> None:
    """The write would wait as long as the connection lives, and the job with it."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))  # more than a pipe holds

    with pytest.raises(CopyError, match=r"copy to pod-0 failed.*no byte was taken for") as caught:
        copy.send(Streams(), STANDS_STILL, "pod-0", [Item(tmp_path / "big", "big")], time.monotonic())

    assert caught.value.code == 69


def test_a_sender_that_gives_no_byte_is_given_up(tmp_path: Path) -> None:
    """The read would wait as long; nothing of the stream is left."""
    with pytest.raises(CopyError, match="copy from pod-0 failed"):
        copy.collect(Streams(), STANDS_STILL, "pod-0", tmp_path / "here", time.monotonic())

    assert list((tmp_path / "here").iterdir()) == []
