"""Pods that share a workspace, or parts of one: it is found out, nothing is copied twice, nothing breaks."""

import json
from pathlib import Path

import pytest

from tests.support.dglrun_pods import Pods
from tests.support.wait import wait_for
from tests.unit.dglrun.conftest import PodsOf
from tests.unit.dglrun.workflow.test_partitioner import PARTITION
from tests.unit.dglrun.workflow.test_training import GOOD, PLACES, TRAIN

pytestmark = pytest.mark.timeout(240)

SAVE = """
Path(os.environ["DGL_OUTPUT_DIR"], f"of-{rank}").write_text("weights")
part = json.loads(Path(sys.argv[sys.argv.index("--part_config") + 1]).read_text())[f"part-{rank}"]
for name in part.values():
    assert Path("ws/workload", name).read_bytes().startswith(f"{rank} ".encode()), name
"""
TRAIN_AND_SAVE = f"import json\n{TRAIN}{GOOD}{SAVE}"
ROOT = str(__file__).split("/tests/unit/", maxsplit=1)[0]


def share(pods: Pods, *names: str) -> Path:
    """Let the workspaces of these pods be one folder; returns it."""
    volume = pods.root / "volume"
    volume.mkdir()
    for name in names:
        (pods.root / name / "ws").symlink_to(volume)
    return volume


def train(pods: Pods, *more: str) -> str:
    """Train to a good end; returns the log."""
    script = pods.script(TRAIN_AND_SAVE)
    done = pods.run("-g", "tiny", "--train-entry-point", script, *PLACES, *more)
    assert done.code == 0, done.output
    wait_for("all agents have left", lambda: not pods.processes(), 30)
    return done.output


def names_in(folder: Path) -> list[str]:
    """The names of all files and links there, hidden ones too."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return sorted(str(path.relative_to(folder)) for path in found)


def files_of(part: int) -> list[str]:
    """The files of a part."""
    return [f"part{part}/{name}.dgl" for name in ("edge_feat", "graph", "node_feat")]


def test_workers_that_share_a_workspace_get_each_part_once(pods: Pods) -> None:
    """Each pulls its own, beside those of the others; the output comes to the launcher from one of them."""
    volume = share(pods, *pods.names)

    said = train(pods)

    assert names_in(volume / "workload") == [*files_of(0), *files_of(1), "tiny.json"]
    assert not any(path.is_symlink() for path in (volume / "workload").rglob("*"))
    assert names_in(pods.launcher / "ws/output") == ["of-0", "of-1"]
    assert said.count("collected 2 files of job-worker-0") == said.count("collected ") == 1
    assert "job-worker-1 has the output folder of job-worker-0: nothing has to be copied" in said
    assert names_in(volume / "output") == ["of-0", "of-1"]
    assert (volume / "hostfile_revised").read_text() == "127.0.0.1 30050\n" * 2
    made = ["checkpoints", "hostfile_revised", "output", "workload"]
    assert sorted(path.name for path in volume.iterdir()) == made


def test_nothing_is_copied_in_a_workspace_that_all_share(pods: Pods) -> None:
    """Neither in nor out: workers get links to the parts, and the launcher has the output already."""
    volume = share(pods, "job-launcher", *pods.names)
    (pods.launcher / "dataset").rename(volume / "dataset")
    before = names_in(volume)

    said = train(pods, "--dataset-dir", "ws/dataset")

    for index in (0, 1):
        assert f"job-worker-{index} sees 4 files in ws/dataset: nothing has to be sent" in said
    assert "checksums compared" not in said
    assert "is the launcher's own output folder" in said
    work = {f"workload/{name}" for name in ("part0", "part1", "tiny.json")}
    made = {*work, "checkpoints/job/ranks.json", "hostfile_revised", "output/of-0", "output/of-1"}
    assert names_in(volume) == sorted({*before, *made})
    assert all((volume / name).is_symlink() for name in work)
    assert json.loads((volume / "workload/tiny.json").read_text())["num_parts"] == 2


def test_a_second_training_in_a_shared_workspace_goes_as_the_first(pods: Pods) -> None:
    """Links and files of the first are replaced: a launcher that is made anew finds them."""
    volume = share(pods, *pods.names)
    train(pods)
    (pods.launcher / "dataset/part1/graph.dgl").write_bytes(b"1 changed")
    (pods.root / "over").unlink()

    train(pods)

    assert (volume / "workload/part1/graph.dgl").read_bytes() == b"1 changed"


@pytest.mark.parametrize("dataset", ["ws/dataset", "dataset"])
def test_a_partition_on_a_shared_volume_stays_where_it_was_made(pods_of: PodsOf, dataset: str) -> None:
    """Through both hops; where the launcher wants it in another folder, that has links."""
    pods = pods_of()
    volume = share(pods, "job-partitioner", "job-launcher", *pods.names)
    script = pods.script(PARTITION.replace("{root!r}", repr(ROOT)), "partition.py")

    done = pods.run(
        *("-g", "tiny", "--num-partitions", "2", "--workspace", "ws", "--dataset-dir", dataset),
        *("--partition-entry-point", script, "--verify", "never"),
        phase="Partitioner",
        where="partitioner",
    )
    made = names_in(volume / "dataset")
    said = train(pods, "--dataset-dir", dataset)

    assert done.code == 0, done.output
    assert "job-launcher sees 7 files in ws/dataset: nothing has to be sent" in done.output
    assert "checksums compared" not in done.output + said
    assert made == names_in(volume / "dataset") == [*files_of(0), *files_of(1), "tiny.json"]
    for index in (0, 1):
        assert f"job-worker-{index} sees 4 files in " in said
    assert (volume / "workload/part0").is_symlink()
    if dataset == "dataset":
        assert (pods.launcher / "dataset/part0").is_symlink()


def test_the_output_of_workers_that_share_it_comes_from_another_one_if_the_first_is_gone(pods: Pods) -> None:
    """What the first could not send is not lost with it."""
    share(pods, *pods.names)
    pods.have_older_agents()
    pods.write_cluster(job_worker_0=None)
    (pods.root / "cluster.json").rename(pods.root / "cluster.lost")
    pods.write_cluster()
    hook = pods.root / "before_exec"
    hook.write_text(WITHOUT_FIRST)
    hook.chmod(0o755)
    script = pods.script(TRAIN_AND_SAVE)

    done = pods.run("-g", "tiny", "--train-entry-point", script, *PLACES)

    assert done.code == 75, done.output
    assert names_in(pods.launcher / "ws/output/job-worker-1") == ["of-0", "of-1"]


WITHOUT_FIRST = """#!/bin/sh
# Worker 0 is gone when its output is asked for.
case "$*" in
    "job-worker-0 "*" pack "*) cp "$(dirname "$0")/cluster.lost" "$(dirname "$0")/cluster.json"; exit 1 ;;
esac
"""
