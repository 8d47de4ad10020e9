"""Jobs with --partitions: the first one makes and keeps its partition, later ones use it."""

import json
import shutil
from pathlib import Path

import pytest

from dglrun.workflow import kept_phases
from dglrun.workflow.config import ConfigError
from tests.support.dglrun_pods import Done, Pods
from tests.support.wait import read_until
from tests.unit.dglrun.conftest import PodsOf
from tests.unit.dglrun.workflow.builders import a_config

IMAGE = {"DGL_OPERATOR_IMAGE": "registry.example.org/job:1"}
PLACES = ("--workspace", "ws", "--dataset-dir", "dataset", "--shm-dir", "../shm")
PARTITION = """
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.dglrun_pods import write_partition
print("partitions now", flush=True)
write_partition(Path("ws/dataset"), 2)
"""
TRAIN = """
import os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    while not list(Path("..").glob("over")):
        time.sleep(0.05)
    sys.exit()
part = int(os.environ["RANK"])
text = Path(f"ws/workload/part{part}/graph.dgl").read_text()
print("rank", part, "reads", text.split()[:2], Path("ws/workload/tiny.json").exists(), flush=True)
time.sleep(0.3)
Path("../over").touch()
"""


@pytest.fixture
def pods(pods_of: PodsOf) -> Pods:
    """Two workers, nothing partitioned yet, and a folder that all pods see."""
    return pods_of()


def store_of(pods: Pods) -> Path:
    """The folder that is given as --partitions."""
    return pods.root / "store"


def manifests(pods: Pods) -> list[Path]:
    """Those of all kept partitions."""
    return sorted(store_of(pods).glob("*/manifest.json"))


def partition(pods: Pods, *more: str, script: str = PARTITION, **env: str) -> Done:
    """Run the partitioner's part."""
    root = str(__file__).split("/tests/unit/")[0]
    path = pods.script(script.replace("{root!r}", repr(root)), "partition.py")
    flags = ("-g", "tiny", "--num-partitions", "2", *PLACES, "--verify", "never")
    kept = ("--partitions", str(store_of(pods)), "--partition-entry-point", path)
    return pods.run(*flags, *kept, *more, phase="Partitioner", where="partitioner", **env)


def train(pods: Pods, *more: str) -> Done:
    """Run the launcher's part."""
    (pods.root / "over").unlink(missing_ok=True)
    script = pods.script(TRAIN)
    kept = ("--partitions", str(store_of(pods)))
    return pods.run("-g", "tiny", "--train-entry-point", script, *PLACES, *kept, *more)


def next_job(pods: Pods) -> None:
    """New pods: nothing of the earlier ones is on their disks."""
    for folder in (pods.launcher / "dataset", *(pods.root / f"{name}/ws" for name in pods.names)):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(pods.root / "job-partitioner/ws", ignore_errors=True)


def test_the_first_job_keeps_its_partition_and_the_next_one_uses_it(pods: Pods) -> None:
    """The second partitioner makes nothing, and each worker gets its own part all the same."""
    first, trained = partition(pods), train(pods)
    assert (first.code, trained.code) == (0, 0), first.output + trained.output
    next_job(pods)

    second, again = partition(pods), train(pods)

    assert (second.code, again.code) == (0, 0), second.output + again.output
    assert "partitions now" in first.output
    assert "kept the partition as" in first.output
    assert "partitions now" not in second.output
    assert "found the partition" in second.output
    for part in (0, 1):
        assert f"rank {part} reads ['{part}', 'graph.dgl'] True" in again.output
    assert len(manifests(pods)) == 1


def test_a_worker_that_sees_the_folder_copies_nothing(pods: Pods) -> None:
    """Its part is where it is kept; the launcher holds a reference and no part."""
    partition(pods)

    done = train(pods)

    assert done.code == 0, done.output
    part = pods.worker(1) / "ws/workload/part1"
    assert part.is_symlink()
    assert part.resolve().is_relative_to(store_of(pods))
    assert not (pods.worker(1) / "ws/workload/part0").exists()
    assert "job-worker-1 reads part 1 in place: " in done.output
    held = [path.name for path in (pods.launcher / "dataset").iterdir() if not path.name.startswith(".")]
    assert held == ["tiny.kept.json"]


def test_what_changes_the_partition_is_another_partition(pods: Pods) -> None:
    """Both are kept; the first one is not touched."""
    partition(pods)
    (first,) = manifests(pods)
    before = first.read_bytes()

    done = partition(pods, "--balance-train", script=PARTITION + "print('changed')\n")

    assert done.code == 0, done.output
    assert "partitions now" in done.output
    assert len(manifests(pods)) == 2
    assert first.read_bytes() == before


CHUNKS = ("--chunked-graph", "/chunks", "--partition-entry-point", "")


@pytest.mark.parametrize(
    ("base", "change"),
    [
        ((), ("--balance-edges",)),
        ((), ("--balance-train",)),
        ((), ("--dataset-url", "https://example.org/d")),
        ((), ("--partition-entry-point", "code/other.py")),
        ((), ("--graph-name", "other")),
        (CHUNKS, ("--partition-backend", "random")),
        (CHUNKS, ("--partition-seed", "2")),
        (CHUNKS, ("--use-graphbolt",)),
        (CHUNKS, ("--chunked-graph", "/other")),
        ((*CHUNKS, "--partition-backend", "kaminpar"), ("--partition-ranks", "3")),
        ((*CHUNKS, "--partition-backend", "kaminpar"), ("--partition-balance", "nodes")),
    ],
    ids=lambda words: "-".join(words).replace("/", ""),
)
def test_each_option_that_changes_the_partition_is_looked_at(
    base: tuple[str, ...], change: tuple[str, ...]
) -> None:
    """The look into the store is told of it."""
    assert looked_for(*base, *change) != looked_for(*base)


@pytest.mark.parametrize(
    "change",
    [
        ("--start-timeout", "77"),
        ("--workspace", "/w"),
        ("--num-trainers", "3"),
        ("--output-dir", "/o"),
        ("--", "--seed", "3"),
    ],
    ids="-".join,
)
def test_other_options_are_not(change: tuple[str, ...]) -> None:
    """Three seeds of a training use one partition."""
    assert looked_for(*change) == looked_for()


def test_the_image_of_a_script_is_looked_at() -> None:
    """It has the packages by which the script partitions."""
    image = {"DGL_OPERATOR_IMAGE": "registry.example.org/job:2"}

    assert looked_for(env=image) != looked_for()
    assert looked_for(*CHUNKS, env=image) == looked_for(*CHUNKS)


def test_a_script_whose_image_is_not_known_keeps_nothing(pods: Pods) -> None:
    """An older operator does not name it: a partition would be used again in another image."""
    done = partition(pods, DGL_OPERATOR_IMAGE="")

    assert done.code == 2
    assert "expected the image in DGL_OPERATOR_IMAGE, got none" in done.output
    assert looked_for(*CHUNKS, env={"DGL_OPERATOR_IMAGE": ""})


def looked_for(*flags: str, env: dict[str, str] | None = None) -> tuple[str, ...]:
    """What the look is told, without the places that it reads and writes."""
    base = ("--num-partitions", "2", "--partitions", "/store")
    config = a_config(*base, *flags, phase="Partitioner", env={**IMAGE, **(env or {})})
    argv = list(kept_phases.look(config).argv)
    for flag in ("--reference", "--deadline"):
        at = argv.index(flag)
        del argv[at : at + 2]
    return tuple(argv)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--partitions", "kept"), "--partitions: expected an absolute path"),
        (("--partitions", "s3://key:hidden@bucket/p"), "--partitions: expected no credentials"),
        (("--partitions", "s3://key:top/hidden@bucket/p"), "--partitions: expected no credentials"),
        (("--partitions", "s3:/key:hidden@bucket/p"), "--partitions: expected an absolute path"),
        (("--repartition",), "--repartition goes with --partitions"),
        (("--partitions", "/k", "--partition-config-path", "/p.json"), "--partition-config-path: with"),
    ],
)
def test_flags_that_contradict_each_other_are_refused(flags: tuple[str, ...], words: str) -> None:
    """In one line, which shows no secret."""
    with pytest.raises(ConfigError) as refused:
        a_config(*flags)

    assert words in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_what_does_not_change_the_partition_is_not_counted(pods: Pods) -> None:
    """Deadlines, the training, other folders: three seeds train on one partition."""
    partition(pods)

    done = partition(pods, "--start-timeout", "77", "--output-dir", "o", "--", "--seed", "2")

    assert "found the partition" in done.output
    assert len(manifests(pods)) == 1


def test_repartition_makes_it_anew_under_the_same_fingerprint(pods: Pods) -> None:
    """The manifest names the new files."""
    partition(pods)
    (path,) = manifests(pods)
    before = json.loads(path.read_text())["folder"]

    done = partition(pods, "--repartition")

    assert done.code == 0, done.output
    assert "partitions now" in done.output
    assert json.loads(path.read_text())["folder"] != before


def test_a_fingerprint_of_another_input_is_refused_by_name(pods: Pods) -> None:
    """Before anything is made: both fingerprints, and what differs; exit code 65."""
    partition(pods)
    (path,) = manifests(pods)

    done = partition(pods, "--balance-train", "--partitions", str(path.parent))

    assert done.code == 65
    assert "partitions now" not in done.output
    assert f", got {path.parent.name}: balance_train: expected yes, got no" in done.message


def test_the_own_fingerprint_may_be_given(pods: Pods) -> None:
    """As the store around it."""
    partition(pods)
    (path,) = manifests(pods)

    done = partition(pods, "--partitions", str(path.parent))

    assert done.code == 0, done.output
    assert "found the partition" in done.output


def test_a_damaged_partition_is_made_anew(pods: Pods) -> None:
    """A file that is missing shows at the first look."""
    partition(pods)
    (path,) = manifests(pods)
    (lost,) = path.parent.glob("*/part0/graph.dgl")
    lost.unlink()

    done = partition(pods)

    assert done.code == 0, done.output
    assert "it is not whole: " in done.output
    assert "partitions now" in done.output
    assert lost.parent.parent.name not in manifests(pods)[0].read_text()


def test_a_partitioner_that_ends_before_it_has_kept_shows_nothing(pods: Pods) -> None:
    """The next one finds no manifest, and makes the partition."""
    root = str(__file__).split("/tests/unit/")[0]
    wait = "import os, time\nwhile not os.path.exists('../go'):\n    time.sleep(0.05)\n"
    script = pods.script(PARTITION.replace("{root!r}", repr(root)) + wait, "partition.py")
    flags = ("-g", "tiny", "--num-partitions", "2", *PLACES, "--verify", "never")
    kept = ("--partitions", str(store_of(pods)), "--partition-entry-point", script)
    with pods.started(*flags, *kept, phase="Partitioner", where="partitioner") as process:
        read_until(process, "partitions now")
        process.terminate()
        assert pods.finish(process).code == 143

    done = partition(pods)

    assert done.code == 0, done.output
    assert "partitions now" in done.output
    assert len(manifests(pods)) == 1


def test_what_is_made_while_its_input_changes_is_not_kept(pods: Pods) -> None:
    """Later jobs would find it under a fingerprint of other input: exit code 65, and what has changed."""
    done = partition(pods, script=PARTITION + "Path(sys.argv[0]).write_text('another')\n")

    assert done.code == 65, done.output
    assert (
        "the input has changed while it was partitioned, so nothing is kept: partition script: "
        in done.message
    )
    assert manifests(pods) == []


def test_a_worker_without_the_volume_says_what_to_mount(pods: Pods) -> None:
    """One line with the folder; whether it sees the volume is found out and not assumed."""
    partition(pods)
    shutil.move(store_of(pods), pods.root / "unmounted")

    done = train(pods)

    assert done.code == 74, done.output
    assert "mount the volume of --partitions at the same path in each pod" in done.message
    assert done.message.count("\n") == 1


def test_a_store_that_cannot_be_written_is_one_line(pods: Pods) -> None:
    """The partition itself was good; nothing is delivered."""
    store_of(pods).write_text("a file and no folder")

    done = partition(pods)

    assert done.code != 0
    assert str(store_of(pods)) in done.message.splitlines()[1]
    assert not (pods.launcher / "dataset").exists()


def test_no_script_that_is_not_there_is_run(pods: Pods) -> None:
    """The fingerprint needs it: exit code 65 with its path."""
    flags = ("-g", "tiny", "--num-partitions", "2", *PLACES, "--partitions", str(store_of(pods)))

    done = pods.run(*flags, "--partition-entry-point", "none.py", phase="Partitioner", where="partitioner")

    assert done.code == 65
    assert "none.py: cannot be read" in done.message
