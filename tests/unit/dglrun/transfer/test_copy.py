"""Copies whose other end stands still: a stream that makes no progress is given up."""

import os
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


def is_there(_pod: str) -> str | None:
    """The API server knows the pod, or does not answer."""
    return None


def test_a_receiver_that_takes_no_byte_is_given_up(tmp_path: Path) -> None:
    """The write would wait as long as the connection lives, and the job with it."""
    (tmp_path / "big").write_bytes(bytes(1 << 20))  # more than a pipe holds

    with pytest.raises(CopyError, match=r"copy to pod-0 failed.*no byte was taken for") as caught:
        copy.send(
            Streams(), STANDS_STILL, "pod-0", [Item(tmp_path / "big", "big")], time.monotonic(), is_there
        )

    assert caught.value.code == 69


def test_a_receiver_in_a_pod_that_is_gone_is_given_up(tmp_path: Path) -> None:
    """The API server says so; kubectl's words decide nothing."""
    argv = ("sh", "-c", "echo 'the words of another kubectl' >&2; exit 1")

    with pytest.raises(CopyError, match="copy to pod-0 failed: it was evicted"):
        copy.send(Streams(), argv, "pod-0", [], time.monotonic() + 50, lambda _pod: "it was evicted")


def test_a_sender_that_gives_no_byte_is_given_up(tmp_path: Path) -> None:
    """The read would wait as long; nothing of the stream is left."""
    with pytest.raises(CopyError, match="copy from pod-0 failed"):
        copy.collect(Streams(), STANDS_STILL, "pod-0", tmp_path / "here", time.monotonic(), is_there)

    assert list((tmp_path / "here").iterdir()) == []


REFUSED = """
import pathlib, subprocess, sys
tries, folder = pathlib.Path(sys.argv[1]), sys.argv[2]
tries.write_text(tries.read_text() + "x" if tries.exists() else "x")
if len(tries.read_text()) < 6:
    sys.exit("The connection to the server 10.0.0.1:443 was refused - some words that nobody has listed")
if len(tries.read_text()) < 10:
    print("half a stream")
    sys.exit(1)
sys.exit(subprocess.call([sys.executable, "-m", "dglrun", "pack", folder]))
"""


@pytest.fixture
def _goes_on_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "STALL_SECONDS", 30.0)
    monkeypatch.setattr(copy, "ATTEMPTS", 3)
    monkeypatch.setattr(copy, "BACKOFF_SECONDS", (0.0,))


@pytest.mark.usefixtures("_goes_on_at_once")
def test_an_output_is_asked_for_until_the_deadline(tmp_path: Path) -> None:
    """A finished training is not thrown away for an API server that is away for some seconds."""
    (tmp_path / "from").mkdir()
    (tmp_path / "from/model.pt").write_text("weights")
    argv = (sys.executable, "-c", REFUSED, str(tmp_path / "tries"), str(tmp_path / "from"))

    names = copy.collect(Streams(), argv, "pod-0", tmp_path / "to", time.monotonic() + 50, is_there)

    assert names == ["model.pt"]
    assert (tmp_path / "to/model.pt").read_text() == "weights"


@pytest.mark.usefixtures("_goes_on_at_once")
def test_an_output_whose_pod_is_gone_is_given_up(tmp_path: Path) -> None:
    """There is nobody left to ask, long before the deadline."""
    argv = (sys.executable, "-c", "import sys; sys.exit('pods \\'pod-0\\' not found')")

    with pytest.raises(CopyError, match="copy from pod-0 failed: it was evicted") as caught:
        copy.collect(Streams(), argv, "pod-0", tmp_path, time.monotonic() + 50, lambda _pod: "it was evicted")

    assert caught.value.code == 75


@pytest.mark.usefixtures("_goes_on_at_once")
def test_an_output_that_cannot_be_read_is_given_up(tmp_path: Path) -> None:
    """Asking for a file until the deadline mends no file: three attempts, then its name is told."""
    said = "dglrun pack: /out/model.pt: cannot be read whole: Permission denied"
    argv = (sys.executable, "-c", f"import sys; print({said!r}, file=sys.stderr); sys.exit(74)")

    with pytest.raises(CopyError, match=r"attempt 3: .*model\.pt: cannot be read whole") as caught:
        copy.collect(Streams(), argv, "pod-0", tmp_path, time.monotonic() + 50, is_there)

    assert caught.value.code == 74


@pytest.mark.usefixtures("_goes_on_at_once")
def test_what_a_worker_says_is_printed_without_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log may be read on a terminal."""
    program = "import sys; sys.stderr.write('dglrun pack: note: a\\x1b[2Jb\\nc\\x1b[2Jd\\n'); sys.exit(74)"

    with pytest.raises(CopyError) as caught:
        copy.collect(Streams(), (sys.executable, "-c", program), "pod-0", tmp_path, 0.0, lambda _pod: None)

    said = capsys.readouterr().out + str(caught.value)
    assert r"note: pod-0: 'a\x1b[2Jb'" in said
    assert "\x1b" not in said


def test_a_slow_stream_makes_progress_with_each_byte() -> None:
    """It would count as one that stands still until as much has come as the reader takes at once."""
    moved = list[int]()
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as file, os.fdopen(writer, "wb", buffering=0) as end:
        end.write(b"few")
        watched = copy._Watched(file, moved.append)

        assert watched.read(1 << 20) == b"few"

    assert moved == [3]
