"""The launcher's side: who may keep what, what a file that cannot be kept leads to, and when rounds begin."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dglrun.transfer.checkpoints import messages
from dglrun.transfer.checkpoints.folder import Version
from dglrun.transfer.checkpoints.limit import Limit
from dglrun.transfer.checkpoints.link import LauncherTarget, Link
from dglrun.transfer.checkpoints.server import CheckpointServer
from dglrun.transfer.checkpoints.target import ChangedError, KeepError
from tests.support.wait import wait_for
from tests.unit.dglrun.transfer.checkpoints.builders import PODS, a_link, a_server, an_order, no_limit


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CheckpointServer]:
    """A server that begins no round by itself."""
    with a_server(tmp_path / "kept") as found:
        yield found


@pytest.fixture
def links(server: CheckpointServer, tmp_path: Path) -> Iterator[list[Link]]:
    """The connections of two keepers."""
    with (
        a_link(an_order(tmp_path, 0, server.port)) as first,
        a_link(an_order(tmp_path, 1, server.port)) as second,
    ):
        yield [first, second]


@pytest.fixture
def target(links: list[Link]) -> LauncherTarget:
    """What the first keeper brings files to."""
    return LauncherTarget(links[0], no_limit())


def put(target: LauncherTarget, path: Path, name: str, version: Version | None = None) -> None:
    """Keep a file."""
    with path.open("rb") as file:
        seen = version or Version.of(os.fstat(file.fileno()))
        target.put(name, file.fileno(), seen, is_limited=True)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 3 << 20])
def test_files_of_any_size_go_and_come_back(target: LauncherTarget, tmp_path: Path, size: int) -> None:
    """Byte for byte."""
    (tmp_path / "file").write_bytes(os.urandom(size))

    put(target, tmp_path / "file", "rank-0/deep/er/model.pt")
    target.fetch("rank-0/deep/er/model.pt", tmp_path / "back")

    assert target.kept() == {"rank-0/deep/er/model.pt"}
    assert (tmp_path / "back").read_bytes() == (tmp_path / "file").read_bytes()


def test_a_file_that_becomes_another_one_is_dropped(target: LauncherTarget, tmp_path: Path) -> None:
    """It was written in place; what lies under its name stays."""
    (tmp_path / "file").write_text("first")
    put(target, tmp_path / "file", "rank-0/model.pt")
    (tmp_path / "file").write_text("longer than the first one")
    seen = Version.of((tmp_path / "file").stat())
    (tmp_path / "file").write_text("cut")

    with pytest.raises(ChangedError):
        put(target, tmp_path / "file", "rank-0/model.pt", seen)

    assert (tmp_path / "kept/rank-0/model.pt").read_text() == "first"
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["rank-0"]


def test_a_removed_file_leaves_no_folder(target: LauncherTarget, tmp_path: Path) -> None:
    """But that of the rank."""
    (tmp_path / "file").write_text("weights")
    put(target, tmp_path / "file", "rank-0/epoch-1/model.pt")

    target.remove("rank-0/epoch-1/model.pt")

    assert list((tmp_path / "kept/rank-0").iterdir()) == []


def test_a_file_that_cannot_be_written_is_told_and_the_connection_goes_on(
    target: LauncherTarget, tmp_path: Path
) -> None:
    """All its bytes have been taken: the next file is not mistaken for its rest."""
    (tmp_path / "file").write_bytes(os.urandom(2 << 20))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/rank-0").write_text("a file is in the way")

    with pytest.raises(KeepError, match=r"the launcher: .*rank-0"):
        put(target, tmp_path / "file", "rank-0/model.pt")
    (tmp_path / "kept/rank-0").unlink()
    put(target, tmp_path / "file", "rank-0/model.pt")

    assert target.kept() == {"rank-0/model.pt"}


def test_a_broken_connection_does_not_write_into_the_next_ones_file(
    target: LauncherTarget, server: CheckpointServer, tmp_path: Path
) -> None:
    """The launcher may not have seen yet that it is broken when its keeper sends the file again."""
    (tmp_path / "file").write_text("weights")
    with a_link(an_order(tmp_path, 0, server.port)) as broken:
        connection = broken.repeat(lambda found: found)
        messages.send(connection, {"do": "put", "name": "rank-0/model.pt", "size": 7})
        connection.sendall(b"old")
        wait_for("it has begun", lambda: list((tmp_path / "kept").glob(".dglrun-incoming-*")), 60)

        put(target, tmp_path / "file", "rank-0/model.pt")
        connection.sendall(b"file")
        messages.send(connection, {"do": "commit"})

        assert "error" not in messages.receive(connection)
    assert (tmp_path / "kept/rank-0/model.pt").read_text() == "oldfile"


def test_what_a_killed_launcher_was_sent_is_removed(tmp_path: Path) -> None:
    """Nobody finishes it, and it would lie on the user's volume for ever."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/.dglrun-incoming-worker-0-1").write_text("half of")

    with a_server(tmp_path / "kept"):
        assert list((tmp_path / "kept").iterdir()) == []


@pytest.mark.parametrize("name", ["rank-1/model.pt", "rank-0/../x", "rank-0", "/etc/passwd", "other"])
def test_a_keeper_reaches_its_own_ranks_alone(
    server: CheckpointServer, links: list[Link], tmp_path: Path, name: str
) -> None:
    """A worker that is not what it was cannot spoil what others have saved."""
    (tmp_path / "kept/rank-1").mkdir(parents=True)
    (tmp_path / "kept/rank-1/model.pt").write_text("another's")
    answers: list[Any] = []

    with a_link(replace(an_order(tmp_path, 0, server.port), patience=0.5)) as link, suppress(KeepError):
        answers.append(link.ask({"do": "remove", "name": name}))
    links[1].ask({"do": "list"})

    assert answers == []
    assert (tmp_path / "kept/rank-1/model.pt").exists()


def test_all_keepers_record_one_number_of_ranks(links: list[Link], tmp_path: Path) -> None:
    """That of the checkpoints which lie there."""
    first, second = (LauncherTarget(link, no_limit()) for link in links)
    assert first.ranks(2) == 2
    (tmp_path / "file").write_text("weights")
    put(first, tmp_path / "file", "rank-0/model.pt")

    assert second.ranks(3) == 2


def test_a_number_of_ranks_counts_for_nothing_where_nothing_was_kept(
    target: LauncherTarget, tmp_path: Path
) -> None:
    """A job that never saved may come back with more workers."""
    assert target.ranks(2) == 2
    (tmp_path / "kept/rank-1").mkdir()
    (tmp_path / "kept/rank-1/model.tmp").write_text("unfinished")

    assert (target.ranks(4), target.ranks(4)) == (4, 4)
    assert (tmp_path / "kept/ranks.json").read_text() == '{"ranks": 4}'


class Player:
    """A keeper that only takes part in rounds; its threads end with the test."""

    def __init__(self, link: Link) -> None:
        self.link, self.answers = link, list[Any]()
        self.threads: list[threading.Thread] = []

    def tell(self, what: str, number: int, is_complete: bool = True) -> None:
        """Say that something has ended, and wait for the answer in the background."""
        told = {"do": what, "round": number, "files": 1, "size": 2, "is_complete": is_complete, "trouble": ""}
        self.threads.append(threading.Thread(target=self._ask, args=(told,), daemon=True))
        self.threads[-1].start()

    def _ask(self, told: dict[str, Any]) -> None:
        with suppress(KeepError):  # the test has ended
            self.answers.append(self.link.ask(told))

    def leave(self) -> None:
        """Wait for no answer any more."""
        self.link.close()
        for thread in self.threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in self.threads)


@contextmanager
def playing(links: list[Link]) -> Iterator[list[Player]]:
    """A player for each connection."""
    players = [Player(link) for link in links]
    try:
        yield players
    finally:
        for player in players:
            player.leave()


@pytest.fixture
def players(links: list[Link]) -> Iterator[list[Player]]:
    """The players of two keepers."""
    with playing(links) as found:
        yield found


def is_heard(server: CheckpointServer, done: int) -> bool:
    """Whether both keepers have said that they have ended a round."""
    return all(each.is_ready and each.done == done for each in server.states().values())


def make_ready(server: CheckpointServer, players: list[Player]) -> None:
    """Both keepers have said that they are ready, and wait for the first round."""
    for player in players:
        player.tell("ready", 0)
    wait_for("both are ready", lambda: is_heard(server, 0), 60)


@pytest.mark.parametrize("is_complete", [True, False])
def test_older_files_go_when_all_have_completed_a_round(
    server: CheckpointServer, players: list[Player], is_complete: bool
) -> None:
    """A rank that could not send a file may need the older one."""
    make_ready(server, players)
    server.begin()
    finishing = threading.Thread(target=server.finish, args=(20.0, 20.0), daemon=True)
    finishing.start()
    wait_for("the round has begun", lambda: all(player.answers for player in players), 60)
    assert [player.answers for player in players] == [[{"round": 1, "prune": False, "last": True}]] * 2

    players[0].tell("sent", 1)
    players[1].tell("sent", 1, is_complete)
    wait_for("all is over", lambda: all(len(player.answers) == 2 for player in players), 60)
    for player in players:
        player.link.ask({"do": "bye"})
    finishing.join(60)

    assert not finishing.is_alive()
    assert [player.answers[1] for player in players] == [{"leave": True, "prune": is_complete}] * 2
    assert [(each.files, each.size) for each in server.states().values()] == [(1, 2)] * 2


def test_the_last_round_waits_for_no_worker_that_is_lost(
    server: CheckpointServer, players: list[Player]
) -> None:
    """Nor removes anything: the lost rank has not kept what the others have."""
    make_ready(server, players)
    server.begin()
    finishing = threading.Thread(target=server.finish, args=(60.0, 60.0, (PODS[1],)), daemon=True)
    finishing.start()
    wait_for("the round has begun", lambda: players[0].answers, 60)

    players[0].tell("sent", 1)
    wait_for("all is over", lambda: len(players[0].answers) == 2, 60)
    players[0].link.ask({"do": "bye"})
    finishing.join(60)

    assert not finishing.is_alive()
    assert players[0].answers[1] == {"leave": True, "prune": False}


def test_no_bound_holds_once_the_launcher_finishes(
    server: CheckpointServer, players: list[Player], tmp_path: Path
) -> None:
    """Not in the midst of a file either, which a bounded round has begun to send."""
    make_ready(server, players)
    server.begin()
    with a_link(an_order(tmp_path, 0, server.port)) as asking:

        def is_lifted() -> bool:
            return bool(asking.ask({"do": "hurry"})["hurry"])

        assert not is_lifted()
        finishing = threading.Thread(target=server.finish, args=(20.0, 20.0, PODS), daemon=True)
        finishing.start()
        wait_for("all hurry", is_lifted, 60)

        Limit(1e-9, is_lifted).take(1 << 30)

    finishing.join(60)
    assert not finishing.is_alive()


def test_who_waits_for_an_answer_ends_with_the_connection(
    server: CheckpointServer, players: list[Player]
) -> None:
    """It does not come again, over another one."""
    make_ready(server, players)

    players[0].leave()

    with pytest.raises(KeepError, match="the connection is closed"):
        players[0].link.ask({"do": "list"})


def test_who_has_not_ended_the_last_round_is_told(server: CheckpointServer, players: list[Player]) -> None:
    """The user knows then whose newest checkpoints are missing."""
    make_ready(server, players)
    server.begin()

    assert server.finish(0.1, 20.0) == list(PODS)


def test_rounds_begin_at_the_same_moment_for_all(tmp_path: Path) -> None:
    """And not before the slower one has ended the last."""
    with (
        a_server(tmp_path / "kept", every=0.1) as server,
        a_link(an_order(tmp_path, 0, server.port)) as first,
        a_link(an_order(tmp_path, 1, server.port)) as second,
        playing([first, second]) as players,
    ):
        make_ready(server, players)
        server.begin()
        wait_for("the first round", lambda: all(player.answers for player in players), 60)
        players[0].tell("sent", 1)
        wait_for("one has ended it", lambda: server.states()[PODS[0]].done == 1, 60)
        assert len(players[0].answers) == 1

        players[1].tell("sent", 1)
        wait_for("the second round", lambda: all(len(player.answers) == 2 for player in players), 60)

        assert [player.answers[1] for player in players] == [{"round": 2, "prune": True, "last": False}] * 2
