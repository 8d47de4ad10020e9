"""Files pulled over TLS: whole or not at all, whatever breaks, and nothing sent twice that has arrived."""

import contextlib
import errno
import itertools
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.agent import tls
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import file_server, sums, tls_listener, wire
from dglrun.transfer.pull import manifest as manifests
from dglrun.transfer.pull import order as orders
from dglrun.transfer.pull.file_server import FileServer
from dglrun.transfer.pull.manifest import Block, FileEntry, Manifest, ManifestError
from dglrun.transfer.pull.receiver import DEPTH, WRONG, Receiver, _Blocks
from dglrun.transfer.pull.staging import Staging
from dglrun.transfer.pull.sums import Journal, StoredSums, sum_of
from tests.support import pulling
from tests.support.dglrun_pods import ROOT
from tests.support.pulling import BLOCK, Relay, an_order, same, serving, share, write_files
from tests.support.wait import wait_for

pytestmark = pytest.mark.timeout(120)

IN_FLIGHT = 2 * DEPTH
BLOCKS = 2000
SIZE = BLOCKS * BLOCK + 100
"""Blocks that a receiver has asked for and not noted yet, at most."""


def names_in(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_files_arrive_whole_under_their_names(tmp_path: Path) -> None:
    """With their content and times, empty ones, too; nothing of the way is left."""
    files = write_files(tmp_path / "from")

    with serving(worker_0=share(files)) as server:
        Receiver(an_order(server.port, tmp_path / "to")).run()
        progress = server.progress("job-worker-0")

    assert same(tmp_path / "to", files)
    assert names_in(tmp_path / "to") == ["part0", "tiny.json"]
    assert (progress.is_whole, progress.total) == (True, sum(pulling.SIZES.values()))


def test_an_earlier_entry_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """No file of an older partition stays in a folder that comes anew; what else lies there does."""
    write_files(tmp_path / "to", {"part0/stale.dgl": 10, "other/model.pt": 10})
    files = write_files(tmp_path / "from")

    with serving(worker_0=share(files)) as server:
        Receiver(an_order(server.port, tmp_path / "to")).run()

    assert not (tmp_path / "to/part0/stale.dgl").exists()
    assert (tmp_path / "to/other/model.pt").exists()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 30_000), max_size=8))
def test_connections_that_break_anywhere_lose_nothing(cuts: list[int]) -> None:
    """In the handshake, in a request, in a block: every file is whole, and few blocks come twice."""
    with tempfile.TemporaryDirectory() as folder:
        files, to = write_files(Path(folder, "from")), Path(folder, "to")
        with serving(worker_0=share(files)) as server, Relay(server.port, cuts) as relay:
            Receiver(relay.order(to)).run()
            progress = server.progress("job-worker-0")

        assert same(to, files)
        assert progress.total <= sum(pulling.SIZES.values()) + len(cuts) * DEPTH * BLOCK


def test_twenty_kills_cost_one_block_in_twenty_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A receiver that is started anew asks for what lacks; what has arrived is not sent twice."""
    kills, turns, files = 20, held_back(monkeypatch), blocks_of_a_part(tmp_path)

    with serving(worker_0=share(files)) as server:
        order = an_order(server.port, tmp_path / "to")
        for kill in range(1, kills + 1):
            with pulling.start(order) as process:
                wait_for("blocks", partial(has_sent, server, kill * SIZE // (kills + 2), turns))
                process.kill()
        turns.give(BLOCKS)
        Receiver(order).run()
        total = server.progress("job-worker-0").total

    assert same(tmp_path / "to", files)
    assert total - SIZE <= kills * IN_FLIGHT * BLOCK
    assert total <= 1.05 * SIZE


def test_twenty_connections_that_are_cut_cost_one_block_in_twenty_at_most(tmp_path: Path) -> None:
    """At random moments of the transfer, one connection each time."""
    files = blocks_of_a_part(tmp_path)
    moments = random.Random(2)  # noqa: S311 - moments, no secret
    cuts = [moments.randrange(SIZE // 20) for _ in range(20)]

    with serving(worker_0=share(files)) as server, Relay(server.port, cuts) as relay:
        Receiver(relay.order(tmp_path / "to")).run()
        total = server.progress("job-worker-0").total

    assert same(tmp_path / "to", files)
    assert total <= 1.05 * SIZE


def test_twenty_owners_that_end_cost_one_block_in_twenty_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one after it has other keys and another port, and starts a receiver that goes on."""
    from dglrun.workflow import run_keys  # noqa: PLC0415 - as above

    ends, files, total = 20, blocks_of_a_part(tmp_path), 0

    with contextlib.ExitStack() as receivers:
        for end in range(ends + 1):
            own, keys = run_keys.for_transfer(pulling.OWNER, ["job-worker-0"])
            turns = held_back(monkeypatch)
            with FileServer(own, {"job-worker-0": share(files)}) as server:
                order = replace(an_order(server.port, tmp_path / "to"), keys=keys["job-worker-0"])
                if end == ends:
                    turns.give(BLOCKS)
                    Receiver(order).run()
                else:
                    process = receivers.enter_context(pulling.start(order))
                    receivers.callback(process.kill)
                    wait_for("blocks", partial(has_sent, server, SIZE // (2 * ends), turns))
                    turns.end()  # else its threads would wait for one
                server.close()
                total += server.progress("job-worker-0").total

    assert same(tmp_path / "to", files)
    assert total <= 1.05 * SIZE


def blocks_of_a_part(folder: Path) -> list[tuple[str, Path]]:
    """A part of BLOCKS blocks, and a small file beside it: SIZE bytes."""
    return write_files(
        folder / "from", {"part0/graph.dgl": BLOCKS * BLOCK, "tiny.json": SIZE - BLOCKS * BLOCK}
    )


class Turns:
    """Each block that an owner sends takes one; after the end of them its connections break."""

    def __init__(self) -> None:
        self._free, self._has_ended, self._changed = 0, False, threading.Condition()

    def sum_of(self, part: memoryview) -> bytes:
        """The sum of a block, when it is its turn."""
        with self._changed:
            is_free = self._changed.wait_for(lambda: self._free or self._has_ended, timeout=60)
            if self._has_ended or not is_free:
                raise ConnectionAbortedError
            self._free -= 1
        return sum_of(part)

    def give(self, number: int) -> None:
        """Let so many blocks go."""
        with self._changed:
            self._free += number
            self._changed.notify_all()

    def end(self) -> None:
        """Let nothing go any more; what waits for its turn ends."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def are_used(self) -> bool:
        """Whether all that were given have been taken."""
        with self._changed:
            return not self._free


def held_back(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """The turns that the blocks of the owners that begin from now on take."""
    turns = Turns()
    monkeypatch.setattr(file_server, "sum_of", turns.sum_of)
    return turns


def has_sent(server: FileServer, size: int, turns: Turns) -> bool:
    """Whether the owner has sent so many bytes to worker 0; it may send some more."""
    if turns.are_used():
        turns.give(20)
    return server.progress("job-worker-0").total >= size


def test_a_receiver_that_was_stopped_is_taken_over(tmp_path: Path) -> None:
    """Of two starts, as after a stream that broke before it said so, the later one goes on."""
    files = write_files(tmp_path / "from", {"part0/graph.dgl": 100 * BLOCK, "tiny.json": 100})
    with (
        serving(worker_0=share(files)) as server,
        Relay(server.port, [10**6, 10**6, 0, 0, 0, 0, 0, 0, 0, 0]) as relay,
        pulling.start(relay.order(tmp_path / "to")) as first,
    ):
        wait_for("the first one", lambda: server.progress("job-worker-0").lacks)
        first.send_signal(signal.SIGSTOP)
        with pulling.start(an_order(server.port, tmp_path / "to")) as second:
            said = second.communicate()[1]
        first.wait()

    assert second.returncode == 0, said
    assert first.returncode == -signal.SIGKILL
    assert same(tmp_path / "to", files)


def test_a_receiver_that_had_placed_a_part_of_the_entries_goes_on(tmp_path: Path) -> None:
    """Killed between two renames: what is in its place stays, and nothing is sent again."""
    files, to = write_files(tmp_path / "from"), tmp_path / "to"
    with serving(worker_0=share(files)) as server:
        Receiver(an_order(server.port, to)).run()
    with serving(worker_0=share(files)) as server:
        order = an_order(server.port, to)
        _as_if_killed_while_placing(order, to)
        Receiver(order).run()
        progress = server.progress("job-worker-0")

    assert same(to, files)
    assert progress.total == 0


def test_a_receiver_that_was_killed_when_all_was_done_finds_that(tmp_path: Path) -> None:
    """The owner never heard of it; it is told, and sends nothing again."""
    files, to = write_files(tmp_path / "from"), tmp_path / "to"
    for total in (sum(pulling.SIZES.values()), 0):
        with serving(worker_0=share(files)) as server:
            Receiver(replace(an_order(server.port, to), keeps_sums=True)).run()
            progress = server.progress("job-worker-0")

        assert (progress.is_whole, progress.total) == (True, total)
        assert same(to, files)


@pytest.mark.parametrize("where", [(Staging, "_begin_anew"), (shutil, "rmtree")])
def test_a_receiver_that_was_killed_while_it_began_anew_leaves_nothing_of_older_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: tuple[object, str]
) -> None:
    """Zeros are not written: older bytes in their place would be taken for received ones."""
    older = write_files(tmp_path / "older", {"graph.dgl": 10 * BLOCK})
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer/graph.dgl").write_bytes(bytes(10 * BLOCK))
    newer, to = [("graph.dgl", tmp_path / "newer/graph.dgl")], tmp_path / "to"
    with contextlib.closing(Staging(to)) as staging:
        manifest = share(older).manifest
        journal = staging.begin(manifest)
        staging.path("graph.dgl").write_bytes(older[0][1].read_bytes())
        for block in manifest.blocks():
            journal.note(block, b"x" * sums.SIZE)
    with monkeypatch.context() as killed, contextlib.closing(Staging(to)) as staging:
        killed.setattr(*where, _as_if_killed)
        with pytest.raises(KeyboardInterrupt):
            staging.begin(share(newer).manifest)

    with serving(worker_0=share(newer)) as server:
        Receiver(an_order(server.port, to)).run()

    assert same(to, newer)


def test_sums_of_files_stay_until_other_files_take_their_place(tmp_path: Path) -> None:
    """A receiver of other files that ends early has not touched them."""
    to = tmp_path / "to"
    with serving(worker_0=share(write_files(tmp_path / "from"))) as server:
        Receiver(replace(an_order(server.port, to), keeps_sums=True)).run()
    before = (to / ".dglrun-sums").read_bytes()

    with contextlib.closing(Staging(to)) as staging:
        staging.begin(share(write_files(tmp_path / "other", {"tiny.json": 10})).manifest)

    assert (to / ".dglrun-sums").read_bytes() == before


def test_a_receiver_that_comes_late_replaces_nothing(tmp_path: Path) -> None:
    """Of two starts the first has done all; training may read the files already."""
    files, to = write_files(tmp_path / "from"), tmp_path / "to"
    with serving(worker_0=share(files)) as server:
        order = an_order(server.port, to)
        Receiver(order).run()
        (to / "part0/in_use").touch()
        Receiver(order).run()
        progress = server.progress("job-worker-0")

    assert names_in(to) == ["part0", "tiny.json"]
    assert (to / "part0/in_use").exists()
    assert (progress.is_whole, progress.failure) == (True, None)
    assert progress.total == sum(pulling.SIZES.values())


def _as_if_killed(*_args: object, **_named: object) -> None:
    raise KeyboardInterrupt


def _as_if_killed_while_placing(order: orders.Order, to: Path) -> None:
    """Everything has come, the first entry is in its place, the JSON is not."""
    receiver = Receiver(order)
    manifest = receiver._manifest()
    staging = Staging(to)
    journal = staging.begin(Manifest(manifest.files, manifest.block))
    for block in list(journal.lacking()):
        file = manifest.files[block.file]
        with (to / file.name).open("rb") as done:
            done.seek(manifest.offset(block))
            journal.note(block, sum_of(done.read(manifest.length(block))))
    (staging.folder / "files/part0/graph.dgl").unlink()
    for name in ("node_feat.dgl", "none.dgl"):
        (staging.folder / "files/part0" / name).unlink()
    (staging.folder / "files/part0").rmdir()
    (to / "tiny.json").replace(staging.folder / "files/tiny.json")
    staging.close()


def test_a_block_that_came_wrong_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once: the file is whole, and the block has been sent twice."""
    wrong = iter([True])
    monkeypatch.setattr(file_server, "sum_of", lambda part: bytes(32) if next(wrong, False) else sum_of(part))
    files = write_files(tmp_path / "from")

    with serving(worker_0=share(files)) as server:
        Receiver(an_order(server.port, tmp_path / "to")).run()
        total = server.progress("job-worker-0").total

    assert same(tmp_path / "to", files)
    assert total == sum(pulling.SIZES.values()) + BLOCK


def test_a_block_that_is_wrong_for_good_is_named(tmp_path: Path) -> None:
    """The owner's disk gives other bytes than it took; nothing of it appears, and nothing is left."""
    files, first = write_files(tmp_path / "from"), tmp_path / "first"
    with serving(worker_0=share(files)) as server:
        Receiver(replace(an_order(server.port, first), keeps_sums=True)).run()
    broken = first / "part0/graph.dgl"
    times = broken.stat()
    with broken.open("r+b") as file:
        file.seek(2 * BLOCK)
        file.write(b"other")
    os.utime(broken, ns=(times.st_atime_ns, times.st_mtime_ns))
    kept = [(name, first / name) for name, _ in files]

    with serving(worker_0=share(kept, sums=first / ".dglrun-sums")) as server:
        with pytest.raises(
            RunError, match=rf"part0/graph.dgl: block 2 of {BLOCK} bytes arrived {WRONG} times"
        ):
            Receiver(an_order(server.port, tmp_path / "to")).run()
        failure = server.progress("job-worker-0").failure

    assert failure is not None
    assert failure[1] == exitcodes.IO
    assert names_in(tmp_path / "to") == []


def test_a_block_that_is_wrong_for_good_is_asked_for_on_no_other_connection(tmp_path: Path) -> None:
    """It came a sixth time where another thread was quicker than the failure."""
    manifest = Manifest((FileEntry("graph.dgl", BLOCK, 0),), BLOCK)
    with contextlib.closing(Staging(tmp_path / "to")) as staging:
        journal, order = staging.begin(manifest), an_order(1, tmp_path / "to")
        blocks = _Blocks(order, Receiver(order)._connect, manifest, staging, journal)
        for _ in range(WRONG - 1):
            assert blocks._next() == Block(0, 0)
            blocks._note_wrong(Block(0, 0))
        assert blocks._next() == Block(0, 0)

        with pytest.raises(RunError, match=f"arrived {WRONG} times"):
            blocks._note_wrong(Block(0, 0))

        assert blocks._next() is None


def test_sums_that_are_known_spare_the_next_hop_its_hashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher sends on what it has received; nothing there is read for a checksum a second time."""
    files, first = write_files(tmp_path / "from"), tmp_path / "first"
    with serving(worker_0=share(files)) as server:
        Receiver(replace(an_order(server.port, first), keeps_sums=True)).run()
    monkeypatch.setattr(file_server, "sum_of", lambda _part: pytest.fail("hashed a second time"))
    kept = [(name, first / name) for name, _ in files]

    with serving(worker_0=share(kept, sums=first / ".dglrun-sums")) as server:
        Receiver(an_order(server.port, tmp_path / "to")).run()

    assert same(tmp_path / "to", files)


@pytest.mark.parametrize("how", ["longer", "shorter", "touched", "gone"])
def test_a_file_that_changes_is_named(tmp_path: Path, how: str) -> None:
    """Its manifest says another size or time: no receiver gets half of each."""
    files = write_files(tmp_path / "from")
    shared, path = share(files), tmp_path / "from/part0/graph.dgl"
    if how == "gone":
        path.unlink()
    elif how == "touched":
        os.utime(path, ns=(1, 1))
    else:
        os.truncate(path, 60_000 if how == "longer" else 40_000)

    with serving(worker_0=shared) as server, pytest.raises(RunError) as caught:
        Receiver(an_order(server.port, tmp_path / "to")).run()

    assert caught.value.code == exitcodes.IO
    expected = (
        "cannot be read: No such file" if how == "gone" else "changed while it was sent: expected 50000"
    )
    assert f"job-launcher: {path}: {expected}" in str(caught.value)
    assert names_in(tmp_path / "to") == []


@pytest.mark.parametrize("time", [1, 2, 3])
def test_a_journal_that_cannot_be_read_lets_no_file_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time: int
) -> None:
    """A disk's error while the lacking blocks are listed is not the end of the list."""
    read, times = Journal.lacking, itertools.count()

    def lacking(journal: Journal) -> Iterator[Block]:
        fails = next(times) == time
        yield from itertools.islice(read(journal), 5 if fails else None)
        if fails:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Journal, "lacking", lacking)
    with (
        serving(worker_0=share(write_files(tmp_path / "from"))) as server,
        pytest.raises(RunError, match="the journal cannot be read: Input/output error") as caught,
    ):
        Receiver(an_order(server.port, tmp_path / "to")).run()

    assert caught.value.code == exitcodes.IO
    assert names_in(tmp_path / "to") == []


def test_a_journal_that_became_shorter_lets_no_file_appear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks behind its end are neither taken for others nor for received ones."""
    files, to, first = write_files(tmp_path / "from"), tmp_path / "to", iter([True])
    monkeypatch.setattr(sums, "_AT_A_TIME", IN_FLIGHT)  # the next ones are read after the first has come

    def shorten(part: memoryview) -> bytes:
        if next(first, False):
            os.truncate(to / ".dglrun-incoming/journal", 0)
        return sum_of(part)

    monkeypatch.setattr(file_server, "sum_of", shorten)
    with (
        serving(worker_0=share(files)) as server,
        pytest.raises(RunError, match="the journal cannot be read: expected 128 bytes, got"),
    ):
        Receiver(an_order(server.port, to)).run()

    assert names_in(to) == []


def test_zeros_take_no_disk(tmp_path: Path) -> None:
    """They stay a hole but for the region that is reserved around what is written; the file is the same."""
    path = tmp_path / "graph.dgl"
    with path.open("wb") as file:
        file.truncate(64 << 20)
        file.seek(32 << 20)
        file.write(b"in the middle")
    files = [("graph.dgl", path)]

    with serving(worker_0=share(files, 1 << 20)) as server:
        Receiver(an_order(server.port, tmp_path / "to")).run()

    assert same(tmp_path / "to", files)
    assert (tmp_path / "to/graph.dgl").stat().st_blocks * 512 <= 8 << 20


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("size=64k", "to: expected 1103372 bytes free for 4 files, got "),
        ("size=8m,nr_inodes=6", "cannot be written: No space left on device"),
    ],
)
def test_a_full_disk_is_named_and_has_its_own_code(tmp_path: Path, options: str, words: str) -> None:
    """Before the first block where that can be known."""
    to = tmp_path / "to"
    to.mkdir()
    mount = f'mount -t tmpfs -o {options} tmpfs {to} && exec "$@"'

    with serving(worker_0=share(write_files(tmp_path / "from"))) as server:
        with pulling.start(
            an_order(server.port, to), "unshare", "--mount", "sh", "-c", mount, "sh"
        ) as process:
            said = process.communicate()[1]
        progress = server.progress("job-worker-0")

    assert process.returncode == exitcodes.FULL, said
    assert words in said
    assert progress.failure == (said.rstrip(), exitcodes.FULL)
    assert progress.total == 0


@pytest.mark.parametrize("name", ["part0/graph.dgl", "tiny.json"])
def test_a_disk_that_says_at_the_close_that_it_is_full_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As NFS does, for the last file, too; nothing of it counts as received."""
    close, closed, to = os.close, list[str](), tmp_path / "to"

    def fail(file: int) -> None:
        path = os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115 - no path
        close(file)
        if path == str(to / ".dglrun-incoming/files" / name):
            closed.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "close", fail)
    with (
        serving(worker_0=share(write_files(tmp_path / "from"))) as server,
        pytest.raises(RunError, match=f"to/{name}: cannot be written: No space left") as caught,
    ):
        Receiver(replace(an_order(server.port, to), connections=1)).run()

    assert caught.value.code == exitcodes.FULL
    assert len(closed) == 1
    assert names_in(to) == []


def test_a_failure_that_nobody_expected_is_told_to_the_owner(tmp_path: Path) -> None:
    """A detached receiver has no other way: here a time that no file system takes."""
    manifest = Manifest((FileEntry("none.dgl", 0, 1 << 120),))

    with serving(worker_0=file_server.Share(manifest, (tmp_path / "none.dgl",))) as server:
        with pulling.start(an_order(server.port, tmp_path / "to")) as process:
            said = process.communicate()[1]
        failure = server.progress("job-worker-0").failure

    assert process.returncode != 0
    assert failure == (said.splitlines()[-1], exitcodes.SOFTWARE)
    assert names_in(tmp_path / "to") == []


def test_an_error_of_the_file_system_that_nobody_expected_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the exit code of one."""

    def fail(*_args: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    with serving(worker_0=share(write_files(tmp_path / "from"))) as server:
        with contextlib.suppress(OSError):
            Receiver(an_order(server.port, tmp_path / "to")).run()
        failure = server.progress("job-worker-0").failure

    assert failure is not None
    assert failure[1] == exitcodes.IO


def test_keys_that_are_none_are_refused_while_the_stream_is_there(tmp_path: Path) -> None:
    """Without them the owner could not be told."""
    order = an_order(1, tmp_path / "to")
    done = subprocess.run(
        [*pulling.RECEIVE, "--detach"],
        input=orders.encode(replace(order, keys=replace(order.keys, key="none"))),
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert (done.returncode, done.stdout) == (exitcodes.SOFTWARE, "")
    assert "the order's keys cannot be used" in done.stderr


def test_a_file_system_that_does_not_tell_its_size_is_tried(tmp_path: Path) -> None:
    """As a tmpfs without a limit, which says 0 bytes in all."""
    to = tmp_path / "to"
    to.mkdir()
    mount = f'mount -t tmpfs -o size=0 tmpfs {to} && "$@" && [ -s {to}/tiny.json ]'

    with (
        serving(worker_0=share(write_files(tmp_path / "from"))) as server,
        pulling.start(an_order(server.port, to), "unshare", "--mount", "sh", "-c", mount, "sh") as process,
    ):
        said = process.communicate()[1]

    assert process.returncode == 0, said


def test_an_owner_that_is_gone_is_given_up(tmp_path: Path) -> None:
    """When nothing has come for as long as the order says; what has come stays for another start."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    with pytest.raises(RunError, match=r"nothing came from job-launcher for") as caught:
        Receiver(an_order(port, tmp_path / "to", patience=0.1)).run()

    assert caught.value.code == exitcodes.UNAVAILABLE


# --- who may read


def test_a_stranger_gets_no_further_than_the_handshake(tmp_path: Path) -> None:
    """Without a certificate of this transfer's authority; an agent's keys are of another one."""
    from dglrun.workflow import run_keys  # noqa: PLC0415 - as above

    others = run_keys.make(["job-worker-0"])[0]
    files = write_files(tmp_path / "from")
    with serving(worker_0=share(files)) as server:
        order = an_order(server.port, tmp_path / "to", patience=0.0)
        strange = replace(order, keys=replace(others, authority=pulling.keys().authority))
        with pytest.raises(RunError, match="nothing came"):
            Receiver(strange).run()
        Receiver(an_order(server.port, tmp_path / "to")).run()  # it is still served

    assert same(tmp_path / "to", files)


def test_another_workers_certificate_reads_no_foreign_part(tmp_path: Path) -> None:
    """Each gets its own files by whatever numbers it asks for; one without a share gets nothing."""
    own = write_files(tmp_path / "from", {"part0/a": 10})
    foreign = write_files(tmp_path / "from", {"part1/a": 10, "part1/b": 10})

    with serving(worker_0=share(own), worker_1=share(foreign)) as server:
        answers = [_ask(server, 0, Block(0, 0)), _ask(server, 0, Block(1, 0))]
    with serving(worker_1=share(foreign)) as server, pytest.raises((OSError, wire.BrokenError)):
        _ask(server, 0, Block(0, 0))

    assert answers[0] == (wire.AnswerKind.BLOCK, own[0][1].read_bytes())
    assert answers[1][0] == wire.AnswerKind.REFUSED
    assert "expected a block of the manifest" in json.loads(answers[1][1])["what"]


def _ask(server: FileServer, worker: int, block: Block) -> tuple[int, bytes]:
    """What the owner answers to one worker's request."""
    context = tls.client_context(pulling.keys(worker))
    with (
        socket.create_connection(("127.0.0.1", server.port), 30) as raw,
        context.wrap_socket(raw, server_hostname=pulling.OWNER) as connection,
    ):
        connection.sendall(wire.ask(block))
        state, length, _ = wire.REPLY.unpack(wire.receive(connection, wire.REPLY.size))
        return state, wire.receive(connection, length)


def test_silent_strangers_keep_nobody_out(tmp_path: Path) -> None:
    """Whoever opens connections and says nothing loses the oldest of them."""
    files = write_files(tmp_path / "from")
    with serving(worker_0=share(files)) as server:
        silent = [
            socket.create_connection(("127.0.0.1", server.port)) for _ in range(tls_listener.STRANGERS + 5)
        ]
        Receiver(an_order(server.port, tmp_path / "to")).run()
        for each in silent:
            each.close()

    assert same(tmp_path / "to", files)


def test_a_thread_that_cannot_be_started_costs_one_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of processes may be reached for a moment; the next connection is served."""
    start, fails = threading.Thread.start, iter([True])

    def start_or_fail(thread: threading.Thread) -> None:
        if "_serve" in thread.name and next(fails, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    files = write_files(tmp_path / "from")
    with serving(worker_0=share(files)) as server:
        monkeypatch.setattr(threading.Thread, "start", start_or_fail)
        Receiver(an_order(server.port, tmp_path / "to", patience=5.0)).run()

    assert same(tmp_path / "to", files)
    assert next(fails, None) is None


# --- texts


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "/etc/passwd", "../up", "part0/../../up", "./x", "part0//x", "part0/"),
        *(".dglrun-incoming/journal", ".dglrun-incoming", ".dglrun-sums", ".dglrun-sums/x"),
    ],
)
def test_a_name_that_leads_out_of_the_folder_is_refused(name: str) -> None:
    """The owner is trusted with content, not with places."""
    text = manifests.encode(Manifest((FileEntry(name, 1, 1),)))

    with pytest.raises(ManifestError, match="expected the name of a file within the target folder"):
        manifests.decode(text)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6), st.integers(1, 7))
def test_blocks_cover_each_file_exactly(sizes: list[int], block: int) -> None:
    """Numbered without a gap, none empty, none beyond the end."""
    manifest = Manifest(tuple(FileEntry(str(i), size, 0) for i, size in enumerate(sizes)), block)

    blocks = list(manifest.blocks())

    assert [manifest.number(each) for each in blocks] == list(range(manifest.first_blocks[-1]))
    assert all(manifest.length(each) > 0 and manifest.has(each) for each in blocks)
    for index, size in enumerate(sizes):
        assert sum(manifest.length(each) for each in blocks if each.file == index) == size
    assert not manifest.has(Block(len(sizes), 0))


def test_sums_that_are_no_sums_count_for_nothing(tmp_path: Path) -> None:
    """A file of that name may be anybody's."""
    (tmp_path / "sums").write_text("other")

    for name in ("sums", "none"):
        stored = StoredSums(tmp_path / name, BLOCK)
        assert stored.find(FileEntry("a", 1, 1), 0) is None
        stored.close()


@pytest.mark.parametrize(("argv", "line"), [((), "no order"), (("--what",), "{}")])
def test_a_receiver_without_an_order_says_so(argv: tuple[str, ...], line: str) -> None:
    """Exit code 2, and no traceback."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "dglrun.transfer.pull", *argv],
        input=line,
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )

    assert done.returncode == exitcodes.USAGE
    assert done.stderr.startswith("dglrun.transfer.pull: expected")
    assert done.stderr.count("\n") == 1


def test_a_detached_receiver_outlives_the_stream_that_started_it(tmp_path: Path) -> None:
    """It says `started`; then the stream may end, and the files come all the same."""
    files = write_files(tmp_path / "from")
    with serving(worker_0=share(files)) as server:
        done = subprocess.run(
            [*pulling.RECEIVE, "--detach"],
            input=orders.encode(an_order(server.port, tmp_path / "to")),
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        wait_for("the files", lambda: server.progress("job-worker-0").is_whole)
        wait_for("the end", lambda: not (tmp_path / "to/.dglrun-incoming").exists())

    assert done.stdout == "started\n"
    assert same(tmp_path / "to", files)
