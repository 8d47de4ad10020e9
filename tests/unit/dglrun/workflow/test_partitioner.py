"""The partitioner pod: the user's script, the check of its result, the delivery to the launcher."""

import json
import os
import signal

import pytest

from dglrun.transfer.pull.manifest import SUMS
from tests.cluster.daemons import running
from tests.support.dglrun_pods import Done, Pods
from tests.support.wait import read_until, wait_for
from tests.unit.dglrun.conftest import PodsOf

FLAGS = ("-g", "tiny", "--num-partitions", "2", "--workspace", "ws", "--dataset-dir", "dataset")
UNVERIFIED = ("--verify", "never")

PARTITION = """
import json, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.dglrun_pods import write_partition
print(json.dumps(sys.argv[1:]))
write_partition(Path("ws/dataset"), 2)
"""


@pytest.fixture
def pods(pods_of: PodsOf) -> Pods:
    """Two workers, nothing partitioned yet."""
    return pods_of()


def partition(pods: Pods, script: str = PARTITION, *more: str, **env: str) -> Done:
    """Run the partitioner's part with a script."""
    root = str(__file__).split("/tests/unit/")[0]
    path = pods.script(script.replace("{root!r}", repr(root)), "partition.py")
    return pods.run(
        *(*FLAGS, *UNVERIFIED, "--partition-entry-point", path, *more),
        phase="Partitioner",
        where="partitioner",
        **env,
    )


def test_the_partition_arrives_whole_at_the_launcher(pods: Pods) -> None:
    """Every file is there with its content, and nothing else; through the waiting init container."""
    done = partition(pods)

    dataset = pods.launcher / "dataset"
    assert done.code == 0, done.output
    assert sorted(path.name for path in dataset.iterdir()) == [SUMS, "part0", "part1", "tiny.json"]
    assert (dataset / "part1/node_feat.dgl").read_text().startswith("1 node_feat.dgl")
    assert "Phase 1/5: load and partition graph\n----------\n" in done.output
    assert "Phase 2/5: deliver partitions\n----------\n" in done.output
    assert (pods.root / "execs").read_text().startswith("job-launcher watcher-loop-partitioner python3 -S")


def test_the_script_gets_the_flags_of_2021_each_only_when_set(pods: Pods) -> None:
    """An unset --dataset-url broke argparse in 2021."""
    few = partition(pods)
    all_set = partition(
        pods, PARTITION, "--dataset-url", "https://example.org/d", "--balance-train", "--balance-edges"
    )

    plain = ["--graph_name", "tiny", "--workspace", "ws", "--rel_data_path", "dataset", "--num_parts", "2"]
    assert json.dumps(plain) in few.output
    more = ["--dataset_url", "https://example.org/d", "--balance_train", "--balance_edges"]
    assert json.dumps([*plain, *more]) in all_set.output


def test_a_script_that_exits_3_ends_the_partitioner_with_3(pods: Pods) -> None:
    """Its code and last log lines are told; nothing is delivered."""
    done = partition(pods, "import sys\nprint('no space left for parts')\nsys.exit(3)\n")

    assert done.code == 3
    assert done.message.splitlines()[0].endswith("partition.py ended with exit code 3")
    assert "no space left for parts" in done.message
    assert "Phase 1/5 error raised" in done.output
    assert not (pods.launcher / "dataset").exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("pass", "tiny.json: expected the partition's JSON (<graph name>.json), found none"),
        (PARTITION.replace("2)", "3)"), "tiny.json: num_parts: expected 2, found 3"),
        (
            PARTITION + 'Path("ws/dataset/part1/graph.dgl").unlink()\n',
            "part1/graph.dgl: expected a file of part 1, found none",
        ),
        (PARTITION + 'Path("ws/dataset/tiny.json").write_text("{")\n', "tiny.json: expected JSON"),
    ],
)
def test_a_folder_that_is_no_partition_is_never_delivered(pods: Pods, script: str, words: str) -> None:
    """Exit code 65 and what was expected; the launcher's volume stays untouched."""
    done = partition(pods, script)

    assert done.code == 65
    assert words in done.message
    assert not (pods.launcher / "dataset").exists()


def test_partitions_must_equal_workers_before_anything_runs(pods: Pods) -> None:
    """Both numbers are named, exit code 2, the script never starts."""
    done = partition(pods, "open('ran', 'w')", "--num-partitions", "3")

    assert done.code == 2
    assert "--num-partitions is 3, but the job has 2 workers (DGL_OPERATOR_NUM_WORKERS)" in done.message
    assert not (pods.root / "job-partitioner/ran").exists()


OLD = {"DGL_OPERATOR_CONTRACT_VERSION": "1"}
"""An operator whose init container takes a stream and cannot pull."""


def corrupting(pods: Pods, python: str) -> None:
    """Put a program in the way of every stream that changes its bytes."""
    wrap = pods.root / "wrap"
    wrap.write_text(
        "#!/usr/bin/env python3\nimport subprocess, sys\ndata = bytearray(sys.stdin.buffer.read())\n"
        f"{python}\nsys.exit(subprocess.run(sys.argv[2:], input=bytes(data)).returncode)\n"
    )
    wrap.chmod(0o755)


@pytest.mark.parametrize(
    "how",
    [
        "data[600] ^= 0xFF",
        "data[0] ^= 0xFF",
        "del data[len(data) // 2 :]",
        "data[:] = data.replace(b'  ./part1/graph.dgl', b'  ./part1/grabh.dgl')",
    ],
)
def test_a_corrupted_copy_is_refused(pods: Pods, how: str) -> None:
    """Exit code 74 after bounded attempts; nothing half-written is left in the volume."""
    corrupting(pods, how)

    done = partition(pods, **OLD)

    assert done.code == 74, done.output
    assert "checksum" in done.message
    assert done.output.count("is begun again") == 2
    assert list((pods.launcher / "dataset").iterdir()) == []


def test_a_broken_stream_is_begun_again(pods: Pods) -> None:
    """The second attempt delivers; what the first one left does not show."""
    corrupting(
        pods,
        "import os\nif not os.path.exists('../once'):\n    open('../once', 'w'); del data[len(data) // 2 :]",
    )

    done = partition(pods, **OLD)

    assert done.code == 0, done.output
    assert done.output.count("is begun again") == 1
    assert sorted(p.name for p in (pods.launcher / "dataset").iterdir()) == ["part0", "part1", "tiny.json"]


def test_an_earlier_partition_is_replaced_as_a_whole(pods: Pods) -> None:
    """No file of an older partition stays in a folder that is delivered again."""
    stale = pods.launcher / "dataset/part0/stale.dgl"
    stale.parent.mkdir(parents=True)
    stale.touch()

    done = partition(pods)

    assert done.code == 0
    assert not stale.exists()


def test_a_start_that_the_api_server_refuses_is_tried_again(pods: Pods) -> None:
    """It may be away in the very moment; the files do not need it any more."""
    busy = pods.root / "before_exec"
    busy.write_text(
        "#!/bin/sh\nn=$(cat ../tries 2>/dev/null || echo 0); echo $((n+1)) >../tries\n"
        '[ $n -ge 2 ] && exit 0\necho "connection refused" >&2; exit 1\n'
    )
    busy.chmod(0o755)

    done = partition(pods)

    assert done.code == 0, done.output
    assert done.output.count("the copy to job-launcher is begun again: connection refused") == 2
    assert (pods.launcher / "dataset/tiny.json").exists()


def test_an_init_container_that_cannot_pull_is_named(pods: Pods) -> None:
    """After three attempts, with what it has said."""
    (pods.root / "wrap").write_text(
        '#!/bin/sh\necho "No module named dglrun.transfer\ncommand terminated with exit code 1" >&2; exit 1\n'
    )
    (pods.root / "wrap").chmod(0o755)

    done = partition(pods)

    assert done.code == 69
    assert "copy to job-launcher failed: No module named dglrun.transfer" in done.message


def test_the_delivery_waits_for_the_init_container(pods: Pods) -> None:
    """It begins only when watcher-loop-partitioner runs."""
    pods.write_cluster(job_launcher={"phase": "Pending"})
    pods.script(PARTITION.replace("{root!r}", repr(str(__file__).split("/tests/unit/")[0])), "partition.py")
    script = ("--partition-entry-point", str(pods.root / "partition.py"))

    with pods.started(*FLAGS, *UNVERIFIED, *script, phase="Partitioner", where="partitioner") as process:
        read_until(process, "Phase 2/5")
        assert not (pods.root / "execs").exists()
        pods.write_cluster()
        done = pods.finish(process)

    assert done.code == 0, done.output


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, 75, "has ended: Evicted: disk"),
        (None, 75, "pod job-launcher does not exist"),
    ],
)
def test_a_launcher_that_never_waits_fails_the_delivery(
    pods: Pods, status: dict[str, str] | None, code: int, words: str
) -> None:
    """At once, with the launcher's own failure; one that is alive may take any time to begin."""
    pods.write_cluster(job_launcher=status)

    done = partition(pods, PARTITION, "--start-timeout", "1")

    assert done.code == code
    assert words in done.message


def test_sigterm_ends_the_partition_script_with_us(pods: Pods) -> None:
    """The script and what it has started are gone; exit code 143."""
    script = pods.script(
        "import subprocess, time\nprint('begun', subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    args = (*FLAGS, *UNVERIFIED, "--partition-entry-point", script)
    with pods.started(*args, phase="Partitioner", where="partitioner") as process:
        pid = int(read_until(process, "begun").split()[-1])
        process.send_signal(signal.SIGTERM)
        done = pods.finish(process)

    assert done.code == 143
    wait_for("the child is gone", lambda: not running(pid))


def test_progress_of_the_partition_is_reported(pods: Pods) -> None:
    """Stages in their order."""
    partition(pods)

    stages = [report["stage"] for report in pods.reports()]
    assert list(dict.fromkeys(stages)) == ["Partitioning", "Delivering"]


def test_skip_runs_the_training_script_in_place(pods: Pods) -> None:
    """Arguments behind -- arrive verbatim, the exit code is the script's own."""
    script = pods.script(
        "import os, sys\noutput = os.environ['DGL_OUTPUT_DIR']\nprint(sys.argv[1:], output)\n"
        "assert os.path.isdir(output)\nsys.exit(9)\n"
    )

    done = pods.run(
        "--workspace",
        "ws",
        "--train-entry-point",
        script,
        "--",
        "--lr",
        "0.1",
        "--",
        "-x",
        phase="Launcher_Workload",
    )

    assert done.code == 9
    assert "['--lr', '0.1', '--', '-x'] ws/output" in done.output
    assert "Phase 1/1: launch the training" in done.output


def test_a_skip_job_reports_what_its_script_tells(pods: Pods) -> None:
    """There is no agent; the last call counts, though the script ends at once."""
    script = pods.script("from dglrun import progress\nprogress(epoch=7, loss=0.25)\n")

    done = pods.run("--workspace", "ws", "--train-entry-point", script, phase="Launcher_Workload")

    assert done.code == 0, done.output
    last = pods.reports()[-1]
    assert (last["stage"], last["epoch"], last["loss"]) == ("Completed", 7, "0.25")


def test_a_partition_that_does_not_hold_is_never_delivered(pods: Pods) -> None:
    """Made-up files are no partition: dglrun verify says so, exit code 65, nothing reaches the launcher."""
    done = partition(pods, PARTITION, "--verify", "always")

    assert done.code == 65, done.output
    assert not (pods.launcher / "dataset").exists()


def test_a_quality_that_cannot_be_measured_fails_nothing(pods: Pods) -> None:
    """The report is a service; the delivery goes on."""
    done = partition(pods)

    assert done.code == 0
    assert "note: the partition's quality is not reported" in done.output
    assert pods.quality() is None


def test_what_a_script_leaves_behind_does_not_hold_us_up(pods: Pods) -> None:
    """A background process that keeps the output open is not waited for."""
    script = pods.script(
        "import subprocess\nprint('pid', subprocess.Popen(['sleep', '600']).pid)\n", "background.py"
    )

    done = pods.run("--train-entry-point", script, phase="Launcher_Workload")

    os.kill(int(done.output.split("pid ")[1].split()[0]), signal.SIGKILL)
    assert done.code == 0
