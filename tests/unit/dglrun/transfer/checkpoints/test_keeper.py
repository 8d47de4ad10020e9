"""What is kept at any moment: whole files, and never less than all ranks had at one moment."""

import contextlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dglrun.transfer.checkpoints.folder import Version, is_whole
from dglrun.transfer.checkpoints.keeper import Keeper
from dglrun.transfer.checkpoints.link import LauncherTarget
from dglrun.transfer.checkpoints.stored import StoredTarget
from dglrun.transfer.checkpoints.target import KeepError, Target
from tests.unit.dglrun.transfer.checkpoints.builders import (
    PODS,
    a_link,
    a_server,
    an_order,
    no_limit,
)

NAMES = ("epoch-1.pt", "epoch-2.pt", "a/model.pt", "a/b/.metadata")
RANKS = st.sampled_from((0, 1))


class KilledError(BaseException):
    """The keeper is killed here; nothing of it runs after that."""


class KillingTarget:
    """Passes on to another target, and is killed before its n-th change, or after it."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.left: int | None = None
        self.is_after = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
        """Keep a file, or be killed."""
        self._change(lambda: self._target.put(name, file, version, is_limited))

    def remove(self, name: str) -> None:
        """Remove a file, or be killed."""
        self._change(lambda: self._target.remove(name))

    def _change(self, change: Any) -> None:
        if self.left == 0 and not self.is_after:
            raise KilledError
        change()
        if self.left == 0:
            raise KilledError
        if self.left is not None:
            self.left -= 1


class Checkpoints(RuleBasedStateMachine):
    """Two ranks that save and remove, their keepers, which are killed now and then, and a store."""

    def __init__(self) -> None:
        super().__init__()
        self.exits = contextlib.ExitStack()
        self.root = Path(self.exits.enter_context(tempfile.TemporaryDirectory()))
        self.written: dict[str, set[str]] = {}
        self.complete: set[str] = set()
        self.has_to_prune = False
        self.count = 0

    @initialize(is_stored=st.booleans())
    def begin(self, is_stored: bool) -> None:
        """Both kinds of store."""
        self.store = self.root / "store"
        if is_stored:
            orders = [an_order(self.root, rank, place=str(self.store)) for rank in (0, 1)]
            targets: list[Target] = [StoredTarget(order, no_limit()) for order in orders]
        else:
            server = self.exits.enter_context(a_server(self.store))
            orders = [an_order(self.root, rank, server.port) for rank in (0, 1)]
            links = [self.exits.enter_context(a_link(order)) for order in orders]
            targets = [LauncherTarget(link, no_limit()) for link in links]
        self.targets = [KillingTarget(target) for target in targets]
        self.keepers = [self.start(rank, has_to_restore=True) for rank in (0, 1)]

    def start(self, rank: int, has_to_restore: bool) -> Keeper:
        """A keeper that knows nothing."""
        self.folder(rank).mkdir(exist_ok=True)
        keeper = Keeper({f"rank-{rank}": str(self.folder(rank))}, self.targets[rank])
        keeper.begin(len(PODS), has_to_restore)
        return keeper

    def folder(self, rank: int) -> Path:
        """A rank's folder."""
        return self.root / f"rank-{rank}"

    @rule(rank=RANKS, name=st.sampled_from(NAMES))
    def save(self, rank: int, name: str) -> None:
        """A file is written and renamed into place, over one of its name."""
        path = self.folder(rank) / name
        self.count += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        path.with_name("new.tmp").write_text(f"{self.count}" * 100)
        path.with_name("new.tmp").replace(path)
        self.written.setdefault(f"rank-{rank}/{name}", set()).add(path.read_text())

    @rule(rank=RANKS, name=st.sampled_from(("epoch-9.tmp", "epoch-9.part", "b.tmp/model.pt", ".hidden")))
    def save_a_part(self, rank: int, name: str) -> None:
        """A file is not finished."""
        path = self.folder(rank) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("unfinished")

    @rule(rank=RANKS, name=st.sampled_from(("epoch-1.pt", "epoch-2.pt", "a")))
    def remove(self, rank: int, name: str) -> None:
        """A rank needs a file, or a folder, no longer."""
        path = self.folder(rank) / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    @rule()
    def go_through_a_round(self) -> None:
        """As the launcher does: in the next round older files go if both have completed this one."""
        had = self.found(self.root).keys() & self.written.keys()
        done = [keeper.sync(has_to_prune=self.has_to_prune) for keeper in self.keepers]
        assert [each.trouble for each in done] == ["", ""]
        self.has_to_prune = all(each.is_complete for each in done)
        if self.has_to_prune:
            self.complete = had

    @rule(rank=RANKS, left=st.integers(0, 4), is_after=st.booleans())
    def kill_a_keeper_in_a_round(self, rank: int, left: int, is_after: bool) -> None:
        """The others' round is not complete for all; the one that is started again knows nothing."""
        target = self.targets[rank]
        target.left, target.is_after = left, is_after
        try:
            if self.keepers[rank].sync(has_to_prune=self.has_to_prune).is_complete:
                self.keepers[1 - rank].sync(has_to_prune=self.has_to_prune)
        except KilledError:
            pass
        target.left, self.has_to_prune = None, False
        self.keepers[rank] = self.start(rank, has_to_restore=False)

    @rule(rank=RANKS)
    def replace_a_worker(self, rank: int) -> None:
        """A new worker has all that its rank had when all had ended a round."""
        shutil.rmtree(self.folder(rank))
        self.has_to_prune = False
        self.keepers[rank] = self.start(rank, has_to_restore=True)
        wanted = {name for name in self.complete if name.startswith(f"rank-{rank}/")}
        assert wanted <= set(self.found(self.root))

    @invariant()
    def only_whole_files_are_kept(self) -> None:
        """Under each name lies what was written under it."""
        for name, text in self.kept().items():
            assert text in self.written.get(name, ()), name

    @invariant()
    def the_last_complete_round_is_kept(self) -> None:
        """Whoever is killed."""
        assert self.complete <= self.kept().keys()

    def kept(self) -> dict[str, str]:
        """What the store shows."""
        return {name: text for name, text in self.found(self.store).items() if name != "ranks.json"}

    def found(self, folder: Path) -> dict[str, str]:
        """The files below a folder."""
        return {
            path.relative_to(folder).as_posix(): path.read_text()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def teardown(self) -> None:
        """Close all."""
        self.exits.close()


TestCheckpoints = Checkpoints.TestCase
TestCheckpoints.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


@pytest.fixture
def keeper(tmp_path: Path) -> Keeper:
    """The keeper of rank 0, whose place is a folder."""
    (tmp_path / "rank-0").mkdir()
    order = an_order(tmp_path, 0, place=str(tmp_path / "store"))
    found = Keeper(dict(order.folders), StoredTarget(order, no_limit()))
    found.begin(len(PODS), has_to_restore=True)
    return found


def test_what_has_not_changed_is_not_sent_again(keeper: Keeper, tmp_path: Path) -> None:
    """A round without news costs a look at the folder."""
    (tmp_path / "rank-0/model.pt").write_text("weights")

    first, second = keeper.sync(), keeper.sync()

    assert (first.files, first.size, second.files) == (1, 7, 0)


def test_a_folder_may_take_the_name_of_a_file(keeper: Keeper, tmp_path: Path) -> None:
    """A store on a file system has room for one of them alone."""
    (tmp_path / "rank-0/model").write_text("weights")
    keeper.sync()
    (tmp_path / "rank-0/model").unlink()
    (tmp_path / "rank-0/model").mkdir()
    (tmp_path / "rank-0/model/first").write_text("layer")

    done = keeper.sync()

    assert done.is_complete
    assert (tmp_path / "store/rank-0/model/first").read_text() == "layer"


def test_a_file_that_is_removed_while_others_are_sent_is_kept_all_the_same(
    keeper: Keeper, tmp_path: Path
) -> None:
    """All files of a round are those of one moment."""

    class Removing(KillingTarget):
        def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
            (tmp_path / "rank-0/second").unlink(missing_ok=True)
            self._target.put(name, file, version, is_limited)

    for second, name in enumerate(("first", "second")):
        (tmp_path / "rank-0" / name).write_text(name)
        os.utime(tmp_path / "rank-0" / name, (second, second))
    keeper._target = Removing(keeper._target)

    keeper.sync()

    assert (tmp_path / "store/rank-0/second").read_text() == "second"


def test_the_files_of_a_round_are_those_of_its_beginning_however_long_older_ones_take_to_go(
    keeper: Keeper, tmp_path: Path
) -> None:
    """Each keeper needs another time for them; all have to keep what their ranks had at the same moment."""

    def save(epoch: int) -> None:
        (tmp_path / f"rank-0/epoch-{epoch}").write_text("weights")
        (tmp_path / f"rank-0/epoch-{epoch - 1}").unlink(missing_ok=True)

    class Slow(KillingTarget):
        def remove(self, name: str) -> None:
            save(4)
            self._target.remove(name)

    for epoch in (1, 2):
        save(epoch)
        keeper.sync()
    save(3)
    keeper._target = Slow(keeper._target)

    done = keeper.sync(has_to_prune=True)

    assert done.is_complete
    assert keeper._target.kept() == {"rank-0/epoch-2", "rank-0/epoch-3"}


def test_a_file_that_comes_back_unchanged_stays_kept(keeper: Keeper, tmp_path: Path) -> None:
    """It is not sent again, so it must not be removed either."""
    for name in ("model", "other"):
        (tmp_path / "rank-0" / name).write_text(name)
    keeper.sync()
    (tmp_path / "rank-0/model").rename(tmp_path / "aside")
    keeper.sync()
    (tmp_path / "aside").rename(tmp_path / "rank-0/model")

    keeper.sync(has_to_prune=True)

    assert (tmp_path / "store/rank-0/model").read_text() == "model"


def test_a_rank_that_removes_all_keeps_what_it_had(keeper: Keeper, tmp_path: Path) -> None:
    """Nothing newer has come in its place."""
    (tmp_path / "rank-0/model.pt").write_text("weights")
    keeper.sync()
    (tmp_path / "rank-0/model.pt").unlink()

    keeper.sync()
    keeper.prune()

    assert (tmp_path / "store/rank-0/model.pt").read_text() == "weights"


def test_files_are_sent_in_the_order_in_which_they_were_written(keeper: Keeper, tmp_path: Path) -> None:
    """What says that a folder is whole arrives last."""
    sent: list[str] = []

    class Noting(KillingTarget):
        def put(self, name: str, file: int, version: Version, is_limited: bool) -> None:
            sent.append(name)

    for second, name in enumerate(("z", "m", "a")):
        (tmp_path / "rank-0" / name).write_text(name)
        os.utime(tmp_path / "rank-0" / name, (second, second))
    keeper._target = Noting(keeper._target)

    keeper.sync()

    assert sent == ["rank-0/z", "rank-0/m", "rank-0/a"]


def test_a_place_without_checkpoints_takes_another_number_of_ranks(tmp_path: Path) -> None:
    """It is that of the files which lie there, of whatever rank."""
    target = StoredTarget(an_order(tmp_path, 0, place=str(tmp_path / "store")), no_limit())
    assert (target.ranks(2), target.ranks(4)) == (2, 4)
    (tmp_path / "store/rank-3").mkdir()
    (tmp_path / "store/rank-3/model.pt").write_text("weights")

    assert target.ranks(2) == 4


@given(st.lists(st.sampled_from(("", ".", "..", "a", "model.pt")), max_size=5).map("/".join))
@example("a/../../../evil")
@example("/evil")
@example("a/model.pt")
def test_no_name_of_a_place_leads_out_of_the_folder(name: str) -> None:
    """Whoever writes into a bucket must not write all over the worker."""
    is_below = os.path.normpath(name) == name and not name.startswith(("/", "."))

    assert is_whole(name) == is_below


def test_a_place_that_is_no_place_is_told_in_one_line(tmp_path: Path) -> None:
    """The launcher shows it as the cause of the run's failure."""
    with pytest.raises(KeepError, match="expected"):
        StoredTarget(an_order(tmp_path, 0, place="s3://"), no_limit())
