"""Checkpoints through whole runs: kept while ranks train, and there again at the next start."""

import json
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from dglrun.agent import forked_program
from dglrun.workflow.config import ConfigError
from dglrun.workflow.plan import plan
from dglrun.workflow.steps import KeepCheckpoints
from tests.support.dglrun_pods import Pods
from tests.support.wait import read_until, wait_for
from tests.unit.dglrun.conftest import PodsOf
from tests.unit.dglrun.workflow.builders import a_config, hosts
from tests.unit.dglrun.workflow.test_training import TRAIN, flags, wait_until_quiet

TRAINER = (
    TRAIN
    + """
folder = Path(os.environ["DGL_CHECKPOINT_DIR"])

def saved():
    return sorted(int(path.stem.removeprefix("epoch-")) for path in folder.glob("epoch-*.pt"))

def save(epoch, keep=2):
    unfinished = folder / f"epoch-{epoch}.tmp"
    unfinished.write_text(f"epoch {epoch} of rank {rank}")
    unfinished.replace(folder / f"epoch-{epoch}.pt")
    for old in saved()[:-keep]:
        (folder / f"epoch-{old}.pt").unlink()

def wait_until_told(name):
    while not Path("..", name).exists():
        time.sleep(0.05)

print("begins after", saved(), flush=True)
"""
)
END = "\nPath('../over').touch()\n"


def kept(folder: Path) -> dict[str, str]:
    """The files of all ranks, by their names; one may be removed, or renamed, while they are read."""
    found = {}
    for path in folder.glob("**/rank-*/*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[path.relative_to(folder).as_posix()] = path.read_text()
    return found


def name_of(pid: int) -> str:
    """The name of a process, empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().rstrip()
    except OSError:
        return ""


def begins(output: str) -> set[str]:
    """What the trainers have found at their start."""
    return set(re.findall(r"begins after (.*)", output))


def start_anew(pods: Pods, root: Path) -> Pods:
    """New pods of the same job: nothing of the first ones' disks is left."""
    fresh = Pods(root, workers=pods.workers)
    fresh.give_partition()
    return fresh


def share_checkpoints(pods: Pods, volume: Path) -> None:
    """All pods have one folder for checkpoints."""
    for pod in (pods.launcher, pods.worker(0), pods.worker(1)):
        (pod / "ws").mkdir()
        (pod / "ws/checkpoints").symlink_to(volume)


def test_a_failed_run_has_kept_what_its_ranks_left_last(pods: Pods) -> None:
    """The checkpoint that was written just before the failure is the one that is needed."""
    fails = 'save(1); (folder / "epoch-9.tmp").write_text("unfinished"); wait_until_told("go"); sys.exit(3)'
    script = pods.script(TRAINER + fails)
    with pods.started(*flags(script)) as process:
        saved = [pods.worker(rank) / f"ws/checkpoints/job/rank-{rank}/epoch-9.tmp" for rank in (0, 1)]
        wait_for("both have saved", lambda: all(path.exists() for path in saved), 60)
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 3, done.output
    expected = {f"rank-{rank}/epoch-1.pt": f"epoch 1 of rank {rank}" for rank in (0, 1)}
    assert kept(pods.launcher / "ws/checkpoints/job") == expected
    wait_until_quiet(pods)


@pytest.mark.parametrize("is_on_volume", [True, False])
def test_the_next_start_begins_where_a_killed_one_was(pods: Pods, tmp_path: Path, is_on_volume: bool) -> None:
    """With a place of the user's it is there for new pods; without one where the launcher's folder lasts."""
    volume = tmp_path / "volume"
    place = ("--checkpoints", str(volume)) if is_on_volume else ()
    where = volume / "tests/job" if is_on_volume else pods.launcher / "ws/checkpoints/job"
    trains = "save(1); save(2); save(3); wait_until_told('never')"
    arguments = flags(pods.script(TRAINER + trains), "--checkpoint-interval", "1", "--lease", "10", *place)
    expected = {
        f"rank-{rank}/epoch-{epoch}.pt": f"epoch {epoch} of rank {rank}"
        for rank in (0, 1)
        for epoch in (2, 3)
    }
    with pods.started(*arguments) as process:
        read_until(process, "begins after []")
        wait_for("all is kept", lambda: kept(where) == expected, 60)
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_for("no process is left", lambda: not pods.processes(), 60)

    again = start_anew(pods, tmp_path / "again")
    if not is_on_volume:
        (pods.launcher / "ws").rename(again.launcher / "ws")
        where = again.launcher / "ws/checkpoints/job"
    done = again.run(*flags(again.script(TRAINER + "save(4)" + END), *place))

    assert done.code == 0, done.output
    assert begins(done.output) == {"[2, 3]"}
    assert "brought back 4 checkpoint files" in done.output
    assert sorted(kept(where)) == [f"rank-{rank}/epoch-{epoch}.pt" for rank in (0, 1) for epoch in (3, 4)]


def test_a_job_without_checkpoints_leaves_none(pods: Pods) -> None:
    """What is kept costs a job nothing that leaves nothing in its folders."""
    done = pods.run(*flags(pods.script(TRAINER + END)))

    assert done.code == 0, done.output
    assert begins(done.output) == {"[]"}
    assert kept(pods.launcher / "ws/checkpoints") == {}
    assert "checkpoint files" not in done.output


def test_checkpoints_of_another_number_of_ranks_are_refused(pods: Pods, tmp_path: Path) -> None:
    """Rank 0 of four has another part, and another share of embeddings, than rank 0 of two."""
    place = tmp_path / "volume/tests/job"
    (place / "rank-3").mkdir(parents=True)
    (place / "rank-3/epoch-1.pt").write_text("epoch 1 of rank 3")
    (place / "ranks.json").write_text(json.dumps({"ranks": 4}))

    done = pods.run(*flags(pods.script(TRAINER + END), "--checkpoints", str(tmp_path / "volume")))

    assert done.code == 2, done.output
    assert "are of 4 ranks, and this training has 2" in done.message
    wait_until_quiet(pods)


def test_a_shared_folder_of_another_number_of_ranks_is_refused(pods: Pods, tmp_path: Path) -> None:
    """Nothing is brought there, but each rank would find the checkpoints of another part."""
    (tmp_path / "shared/job/rank-3").mkdir(parents=True)
    (tmp_path / "shared/job/rank-3/epoch-1.pt").write_text("epoch 1 of rank 3")
    (tmp_path / "shared/job/ranks.json").write_text(json.dumps({"ranks": 4}))
    share_checkpoints(pods, tmp_path / "shared")

    done = pods.run(*flags(pods.script(TRAINER + END)))

    assert done.code == 2, done.output
    assert "are of 4 ranks, and this training has 2" in done.message
    wait_until_quiet(pods)


def test_a_place_that_cannot_be_written_fails_the_run_before_it_trains(pods: Pods, tmp_path: Path) -> None:
    """Days of training without a checkpoint would be found out too late."""
    (tmp_path / "file").touch()

    done = pods.run(*flags(pods.script(TRAINER + END), "--checkpoints", str(tmp_path / "file")))

    assert done.code != 0
    assert "checkpoints cannot be brought back" in done.message
    assert begins(done.output) == set()


def test_a_launcher_without_room_trains_without_keeping(pods: Pods, tmp_path: Path) -> None:
    """Nobody has asked for checkpoints where the workspace is read-only, as in some user's own image."""
    (pods.launcher / "ws").mkdir()
    (pods.launcher / "ws/checkpoints").symlink_to(tmp_path / "missing/checkpoints")

    done = pods.run(*flags(pods.script(TRAINER + "save(1)" + END)))

    assert done.code == 0, done.output
    assert "checkpoints cannot be kept here" in done.output
    assert begins(done.output) == {"[]"}


def test_a_volume_on_the_launcher_that_cannot_be_written_fails_the_run(pods: Pods) -> None:
    """Whoever has mounted it counts on it."""
    (pods.launcher / "ws").mkdir()
    (pods.launcher / "ws/checkpoints").touch()

    done = pods.run(*flags(pods.script(TRAINER + END)))

    assert done.code == 74, done.output
    assert "checkpoints cannot be kept here" in done.message
    assert begins(done.output) == set()


def test_a_keeper_that_is_killed_is_started_again(pods: Pods) -> None:
    """It is not part of the training, which goes on; files are kept again after a while."""
    script = pods.script(TRAINER + "wait_until_told('go'); save(1); wait_until_told('go on')" + END)
    where = pods.launcher / "ws/checkpoints/job"
    with pods.started(*flags(script, "--checkpoint-interval", "1")) as process:
        read_until(process, "begins after []")
        keepers = [pid for pid in pods.processes() if name_of(pid) == forked_program.KEEPER]
        assert len(keepers) == 2
        for pid in keepers:
            os.kill(pid, signal.SIGKILL)
        read_until(process, "it is started again")
        (pods.root / "go").touch()
        wait_for("all is kept", lambda: len(kept(where)) == 2, 60)
        (pods.root / "go on").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    wait_until_quiet(pods)


def test_a_folder_that_is_shared_has_them_already(pods: Pods, tmp_path: Path) -> None:
    """Nothing is copied onto itself; what an earlier attempt has left is there."""
    earlier = tmp_path / "shared/job/rank-0"
    earlier.mkdir(parents=True)
    (earlier / "epoch-1.pt").write_text("epoch 1 of rank 0")
    share_checkpoints(pods, tmp_path / "shared")
    script = pods.script(TRAINER + "save(2)" + END)

    done = pods.run(*flags(script))

    assert done.code == 0, done.output
    assert begins(done.output) == {"[1]", "[]"}
    assert sorted(kept(tmp_path / "shared/job")) == [
        "rank-0/epoch-1.pt",
        "rank-0/epoch-2.pt",
        "rank-1/epoch-2.pt",
    ]
    assert "checkpoint files" not in done.output


def test_a_job_without_workers_keeps_its_checkpoints(pods_of: PodsOf, tmp_path: Path) -> None:
    """Mode Skip trains in the launcher, which keeps its own folder."""
    script = """
import os
from pathlib import Path
folder = Path(os.environ["DGL_CHECKPOINT_DIR"])
print("begins after", sorted(path.name for path in folder.iterdir()), flush=True)
(folder / "model.pt").write_text("weights")
"""
    pods = pods_of(workers=1)
    arguments = ("--train-entry-point", pods.script(script), "--checkpoints", str(tmp_path / "volume"))
    mode = {"DGL_OPERATOR_PARTITION_MODE": "Skip"}

    first = pods.run(*arguments, "--workspace", "ws", phase="Launcher_Workload", **mode)
    second = pods.run(*arguments, "--workspace", "other", phase="Launcher_Workload", **mode)

    assert (first.code, second.code) == (0, 0), first.output + second.output
    assert begins(first.output) == {"[]"}
    assert begins(second.output) == {"['model.pt']"}
    assert kept(tmp_path / "volume/tests/job") == {"rank-0/model.pt": "weights"}


def test_a_job_without_workers_starts_its_keeper_again_and_says_what_it_cannot_keep(
    pods_of: PodsOf, tmp_path: Path
) -> None:
    """There is no agent that would."""
    script = """
import os, time
from pathlib import Path
folder = Path(os.environ["DGL_CHECKPOINT_DIR"])
print("begins", flush=True)
for name in ("go", "go on"):
    while not Path("..", name).exists():
        time.sleep(0.05)
    (folder / name).write_text("weights")
while not Path("..", "over").exists():
    time.sleep(0.05)
"""
    pods, place = pods_of(workers=1), tmp_path / "volume/tests/job"
    flags_of_place = ("--checkpoints", str(tmp_path / "volume"), "--checkpoint-interval", "1")
    arguments = ("--train-entry-point", pods.script(script), "--workspace", "ws", *flags_of_place)
    mode = {"DGL_OPERATOR_PARTITION_MODE": "Skip"}
    with pods.started(*arguments, phase="Launcher_Workload", **mode) as process:
        read_until(process, "begins")
        (keeper,) = (pid for pid, line in pods.processes().items() if "transfer.checkpoints" in line)
        os.kill(keeper, signal.SIGKILL)
        read_until(process, "it is started again")
        (pods.root / "go").touch()
        wait_for("it is kept", lambda: kept(place) == {"rank-0/go": "weights"}, 60)

        (place / "rank-0").rename(tmp_path / "aside")
        (place / "rank-0").touch()
        (pods.root / "go on").touch()
        read_until(process, "checkpoints are not kept: ")
        (place / "rank-0").unlink()
        read_until(process, "checkpoints are kept again")
        (pods.root / "over").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert "rank-0/go on" in kept(place)


def test_all_workers_together_send_no_more_than_a_launcher_takes() -> None:
    """A launcher has one network, however many workers there are."""
    (few,) = _steps(a_config(workers=2), 2)
    (many,) = _steps(a_config(workers=100), 100)
    (stored,) = _steps(a_config("--checkpoints", "s3://bucket/p", workers=100), 100)

    assert (few.rate, many.rate, stored.rate) == (50e6, 2e6, 50e6)


@pytest.mark.parametrize("text", ["relative", "s3://key:secret@bucket/p", "s3://bucket/p?access_key=k"])
def test_a_place_is_a_path_or_a_uri_without_secrets(text: str) -> None:
    """A plan, a log and a process list would show them."""
    with pytest.raises(
        ConfigError, match=r"--checkpoints: expected (an absolute path|no credentials)"
    ) as raised:
        a_config("--checkpoints", text)
    assert "secret" not in str(raised.value)
    assert "access_key" not in str(raised.value)


def _steps(config: object, workers: int) -> list[KeepCheckpoints]:
    phases = plan(config, hosts(workers))  # type: ignore[arg-type]
    return [step for phase in phases for step in phase.steps if isinstance(step, KeepCheckpoints)]
