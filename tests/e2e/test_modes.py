"""Each partition mode on a real node: the Debian package graph, partitioned, proved, trained on.

The free back end is asked for by name. ParMETIS itself runs where whoever starts the tests accepts its
licence (DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE=yes, which also builds the image), and is skipped elsewhere.
"""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.accuracy import ABOVE_MAJORITY
from tests.e2e.conftest import Submit
from tests.e2e.enforcement import enforced_on_our_node
from tests.e2e.figures import Figures
from tests.e2e.jobs import ROOT, VERSION, Job, example, main_container, moment, set_image
from tests.e2e.kubectl import Object
from tests.e2e.test_examples import WITHIN, ranks, trained
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

VARIANTS = {
    "dgl-api": "homogeneous",
    "parmetis": "heterogeneous",
    "dist-parmetis": "heterogeneous",
    "chunked-dgl-api": "heterogeneous",
    "dist-parmetis-homogeneous": "homogeneous",
}
"""The examples, and the graph that each partitions."""
HYPERPARAMETERS = {
    "heterogeneous": ("--batch_size=500", "--fan_out=3,3", "--fan_out_eval=6,6"),
    "homogeneous": ("--batch_size=1000",),
}
"""What the examples give their training, by graph."""
GRAPHS = "/dgl_workspace/debian-graph"
ACCEPTED = os.environ.get("DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE") == "yes"


OneProcess = Callable[[str], float]


@pytest.fixture(scope="module", autouse=True)
def _policies_are_enforced() -> Iterator[None]:
    """MPI opens ports of its own on launcher and workers, which the policy of the job admits."""
    with enforced_on_our_node():
        yield


@pytest.fixture(scope="module")
def known() -> dict[str, float]:
    """Accuracies of one process by graph, as far as they were needed."""
    return {}


@pytest.fixture
def one_process(submit: Submit, measured: Figures, known: dict[str, float]) -> OneProcess:
    """Trains one process on a graph, with the hyperparameters of the distributed examples; once for all."""

    def accuracy(variant: str) -> float:
        if variant not in known:
            body = example("skip", f"skip-{variant}")
            main_container(body, "Launcher")["args"] = [
                *("--train-entry-point=code/train.py", "--num-epochs=5"),
                *("--", f"--variant={variant}", *HYPERPARAMETERS[variant]),
            ]
            reached, majority, _log = trained(submit(body))
            assert reached >= majority + ABOVE_MAJORITY
            known[variant] = reached
            name = f"one process, {variant}"
            measured.add(f"accuracy-modes-{name}", reached, "", f"test accuracy, {name}")
        return known[variant]

    return accuracy


@pytest.mark.parametrize("name", VARIANTS)
def test_a_mode_partitions_proves_and_trains(
    submit: Submit, measured: Figures, one_process: OneProcess, name: str
) -> None:
    """Completed, as good as one process within three points; the partition was held against its source."""
    body = example(name, name)
    job = submit(body)

    accuracy, majority, log = trained(job)

    told = ranks(log)
    assert [(rank["rank"], rank["size"], rank["part"]) for rank in told] == [("0", "2", "0"), ("1", "2", "1")]
    assert len({rank["hash"] for rank in told}) == 1
    assert accuracy >= majority + ABOVE_MAJORITY
    status = job.status()
    partition = status["partition"]
    assert partition["method"] == ("metis" if name.endswith("dgl-api") else "zoltan")
    assert (partition["numParts"], partition["verified"]) == (2, True)
    assert 0 < float(partition["edgeCut"].removesuffix("%")) < 40
    assert partition["edgeCut"] in job.kubectl.run("get", "dgljob", name, "-o", "wide")
    assert job.condition("Partitioned")["status"] == "True"
    has_partitioner = body["spec"]["partitionMode"] != "DistParMETIS"
    assert (job.kubectl.get("pod", f"{name}-partitioner") is not None) == has_partitioner
    took = moment(status["completionTime"]) - moment(status["startTime"])
    measured.add(f"job-{name}", took.total_seconds(), "s", f"example {name}, from apply to Completed")
    measured.add(f"accuracy-modes-{name}", accuracy, "", f"test accuracy, {name}")
    assert abs(accuracy - one_process(VARIANTS[name])) <= WITHIN


def test_each_worker_has_its_part_alone_and_together_they_are_the_graph(
    submit: Submit, tmp_path: Path
) -> None:
    """DistParMETIS: parts taken from the workers' own disks hold against the chunked graph, for DGL too."""
    body = example("dist-parmetis", "own-parts")
    body["spec"]["cleanPodPolicy"] = "None"
    job = submit(body)
    job.wait_phase("Training", seconds=300)

    for part in (0, 1):
        listed = job.kubectl.exec(job.worker(part), "ls", "/dgl_workspace/workload", container="main").split()
        assert f"part{part}" in listed
        assert f"part{1 - part}" not in listed
        for name in (f"part{part}", "debian.json"):
            source = f"{job.worker(part)}:/dgl_workspace/workload/{name}"
            job.kubectl.run("cp", source, str(tmp_path / "parts" / name), "-c", "main")
    for source in (f"{GRAPHS}/heterogeneous", "/dgl_workspace/assignment"):
        target = tmp_path / Path(source).name
        job.kubectl.run("cp", f"{job.worker(0)}:{source}", str(target), "-c", "main")

    folders = (
        *("--in-dir", str(tmp_path / "heterogeneous"), "--partitions-dir", str(tmp_path / "assignment")),
        "--for-training",
    )
    verify = (sys.executable, "-m", "dglrun", "verify", str(tmp_path / "parts/debian.json"), *folders)
    done = subprocess.run(verify, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "source: sound" in done.stdout


@pytest.mark.parametrize("name", ["parmetis", "dist-parmetis"])
def test_a_back_end_that_is_not_installed_is_named(submit: Submit, name: str) -> None:
    """ParMETIS is the default of its modes; nothing else runs in its place."""
    body = example(name, f"no-{name}")
    launcher = main_container(body, "Launcher")
    launcher["args"] = [arg for arg in launcher["args"] if "--partition-backend" not in arg]
    job = submit(body)

    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    assert re.search(r"exit code 69\b", message)
    assert re.search(r"libparmetis\S* was not found", message)
    assert "free alternative: --backend zoltan" in message


def misbehaving(name: str, does: str) -> Object:
    """A DistParMETIS job whose MPI rank 1 does something else; its workers stay after its end."""
    body = example("dist-parmetis-homogeneous", name)
    body["spec"]["cleanPodPolicy"] = "None"
    worker = main_container(body, "Worker")
    worker["env"] = [{"name": "PYTHONPATH", "value": "/scripts"}, {"name": "MPI_RANK_DOES", "value": does}]
    worker["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    pod = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    return body


def mpi_processes(job: Job, worker: int) -> str:
    """Command lines of MPI's daemons and ranks on a worker."""
    script = (
        "for p in /proc/[0-9]*; do "
        "if tr '\\0' '\\n' <$p/environ 2>/dev/null | grep -q ^OMPI_COMM_WORLD_RANK= || "
        "tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^[^ ]*orted '; "
        "then tr '\\0' ' ' <$p/cmdline; echo; fi; done; true"
    )
    return job.kubectl.exec(job.worker(worker), "sh", "-c", script, container="main").strip()


def is_quiet(job: Job) -> bool | None:
    """Whether no MPI process lives on any worker."""
    return None if any(mpi_processes(job, worker) for worker in (0, 1)) else True


def test_a_rank_that_fails_fails_the_job_with_its_code(submit: Submit) -> None:
    """The other rank waits for it in vain; mpirun ends it, and the code is the rank's own."""
    job = submit(misbehaving("mpi-exit", "exit"))

    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    assert re.search(r"partitioning on the workers ended with exit code 7\b", message)
    assert "sitecustomize: rank 1 leaves with 7" in message
    pod = job.kubectl.get("pod", job.launcher)
    assert pod is not None
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 7
    wait_for("no MPI process on the workers", lambda: is_quiet(job), 60)


def test_mpi_that_cannot_start_on_a_worker_is_told_before_the_long_run(submit: Submit) -> None:
    """A daemon without a folder for its files says so; mpirun would wait for a detached one."""
    body = misbehaving("mpi-no-daemon", "nothing")
    main_container(body, "Worker")["env"] += [{"name": "OMPI_MCA_orte_tmpdir_base", "value": "/dev/null"}]
    job = submit(body)

    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    assert "starting MPI on the workers ended with exit code" in message
    assert "Directory: /dev/null" in job.kubectl.logs(job.launcher, "main")


def test_a_partitioning_that_hangs_ends_at_its_deadline(submit: Submit) -> None:
    """--partition-timeout bounds each mpirun; nothing of it stays on the workers."""
    body = misbehaving("mpi-deadline", "hang")
    main_container(body, "Launcher")["args"] += ["--partition-timeout=20"]
    job = submit(body)

    job.wait_phase("Failed")

    message = job.condition("Failed")["message"]
    assert "exit code 124: dglrun: partitioning on the workers had not ended after 20 s" in message
    wait_for("no MPI process on the workers", lambda: is_quiet(job), 60)


@pytest.mark.parametrize("grace", ["0", "30"])
def test_no_rank_outlives_the_launcher(submit: Submit, grace: str) -> None:
    """Killed at once or told to end: its MPI ranks end on all workers."""
    body = misbehaving(f"mpi-hang-{grace}", "hang")
    body["spec"]["failurePolicy"] = {"rules": [{"action": "FailJob", "role": "Launcher"}]}
    job = submit(body)
    wait_for("ranks on both workers", lambda: _has_ranks(job), 180)

    job.kubectl.run("delete", "pod", job.launcher, f"--grace-period={grace}", *_force(grace))

    wait_for("no MPI process on the workers", lambda: is_quiet(job), 60)
    job.wait_phase("Failed", seconds=60)


def _has_ranks(job: Job) -> bool | None:
    if job.status().get("replicaStatuses", {}).get("Worker", {}).get("running") != 2:
        return None
    return (
        True
        if all("dglrun.commands.partition_rank" in mpi_processes(job, worker) for worker in (0, 1))
        else None
    )


def _force(grace: str) -> tuple[str, ...]:
    return ("--force",) if grace == "0" else ()


@pytest.mark.skipif(not ACCEPTED, reason="licence: ParMETIS is not free (docs/reference/images.md)")
@pytest.mark.parametrize("name", ["parmetis", "dist-parmetis"])
def test_parmetis_itself(submit: Submit, measured: Figures, one_process: OneProcess, name: str) -> None:
    """The modes' default back end, in the image built with the licence accepted; as good as one process."""
    body = example(name, f"real-{name}")
    launcher = main_container(body, "Launcher")
    launcher["args"] = [arg for arg in launcher["args"] if "--partition-backend" not in arg]
    set_image(body, f"graphsage:{VERSION}-parmetis")
    job = submit(body)

    accuracy, majority, _log = trained(job)

    partition = job.status()["partition"]
    assert (partition["method"], partition["verified"]) == ("parmetis", True)
    assert accuracy >= majority + ABOVE_MAJORITY
    assert abs(accuracy - one_process("heterogeneous")) <= WITHIN
    measured.add(f"accuracy-modes-real-{name}", accuracy, "", f"test accuracy, {name} by ParMETIS itself")
