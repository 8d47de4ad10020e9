"""A worker that is lost in the training is replaced: its own part is brought to it, and all train again."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dglrun.contract import env, names
from dglrun.contract.hostfile import Host
from dglrun.errors import RunError
from dglrun.kube.errors import ApiError, Forbidden, NotFound, Unavailable
from dglrun.workflow import worker_pods
from dglrun.workflow.plan import plan, training_again
from dglrun.workflow.steps import IfKept, Run, Serve, StartAgents, Train
from dglrun.workflow.worker_pods import Fate, Replacements, WorkerPod, WorkersLostError
from tests.support.dglrun_pods import Pods
from tests.support.wait import read_until, wait_for
from tests.unit.dglrun.workflow.builders import a_config
from tests.unit.dglrun.workflow.test_training import GOOD, TRAIN, flags, wait_until_quiet

PATIENT = {env.REPLACEMENT_TIMEOUT: "120"}
WAITS = """
print("rank", rank, "runs", flush=True)
while not Path("../go").exists():
    time.sleep(0.05)
"""
NOTICES = """
print("rank", rank, "runs", flush=True)
while not Path("../go").exists():
    if rank == 0 and Path("../peer-gone").exists():
        raise RuntimeError("Connection closed by peer")
    time.sleep(0.05)
"""
WAITING = "waiting for the replacement of job-worker-1"


def pulled_by(pods: Pods) -> list[str]:
    """The pods that a receiver was started in, in order."""
    lines = (pods.root / "execs").read_text().splitlines()
    return [line.split()[0] for line in lines if "dglrun.transfer.pull" in line]


def test_a_lost_worker_is_replaced_and_all_train_again(pods: Pods) -> None:
    """The new one gets its own part, the others keep theirs; the run ends well and says what happened."""
    script = pods.script(TRAIN + WAITS + GOOD)
    with pods.started(*flags(script), **PATIENT) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        first = sorted(pulled_by(pods))
        wait_for(
            "the launcher says that it goes on",
            lambda: any("replaces" in each for each in pods.reports()),
            60,
        )
        pods.lose(1)
        read_until(process, WAITING)
        pods.replace(1, "another")
        read_until(process, "job-worker-1 is there again; the training starts again")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert first == ["job-worker-0", "job-worker-1"]
    assert pulled_by(pods)[2:] == ["job-worker-1"]
    assert (pods.worker(1) / "ws/workload/part1/graph.dgl").exists()
    for rank in (0, 1):
        assert f"[worker-{rank} trainer 0] rank {rank} of 2" in done.output
    assert "replaces" not in pods.reports()[-1]
    wait_until_quiet(pods)


def test_a_replaced_worker_has_the_checkpoints_of_the_lost_one(pods: Pods) -> None:
    """All go on where they were: what was kept on the launcher is brought to the new pod."""
    saves = (
        'folder = Path(os.environ["DGL_CHECKPOINT_DIR"])\n'
        'print("rank", rank, "has", sorted(path.name for path in folder.iterdir()), flush=True)\n'
        '(folder / ".part").write_text("state")\n'
        '(folder / ".part").rename(folder / f"epoch-{rank}")\n'
    )
    script = pods.script(TRAIN + saves + WAITS + GOOD)
    with pods.started(*flags(script, "--checkpoint-interval", "1"), **PATIENT) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        wait_for("the checkpoint is kept", lambda: any(pods.launcher.rglob("epoch-1")), 60)
        pods.lose(1)
        read_until(process, WAITING)
        pods.replace(1, "another")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert "rank 1 has ['epoch-1']" in done.output
    assert "rank 0 has ['epoch-0']" in done.output


def test_what_the_survivors_have_not_sent_does_not_hold_up_the_next_start(pods: Pods) -> None:
    """A checkpoint that takes half an hour to be kept is still on the disk of its own worker."""
    saves = (
        'state = Path(os.environ["DGL_CHECKPOINT_DIR"], "state")\n'
        "if rank == 0 and state.exists():\n"
        "    state.unlink()\n"
        "elif rank == 0:\n"
        '    with state.with_name(".part").open("wb") as file:\n'
        "        file.truncate(2 << 30)\n"
        '    state.with_name(".part").rename(state)\n'
    )
    slow = ("--checkpoint-interval", "1", "--checkpoint-bandwidth", "1")
    with pods.started(*flags(pods.script(TRAIN + saves + WAITS + GOOD), *slow), **PATIENT) as process:
        read_until(process, "[worker-0 trainer 0] rank 0 runs")
        pods.lose(1)
        pods.replace(1, "another")
        read_until(process, "job-worker-1 is there again")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output


def test_a_peer_that_fails_first_hides_no_loss(pods: Pods) -> None:
    """Its error is a consequence, though it comes milliseconds before anybody says that the pod is gone."""
    script = pods.script(TRAIN + NOTICES + GOOD)
    with pods.started(*flags(script), **PATIENT) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1, phase="Running", podIP="127.0.0.1", deleting=True)
        (pods.root / "peer-gone").touch()
        read_until(process, WAITING)
        (pods.root / "peer-gone").unlink()
        pods.replace(1, "another")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output


def test_a_worker_may_be_lost_again_and_again(pods: Pods) -> None:
    """Each time with another pod; a name alone says nothing."""
    script = pods.script(TRAIN + WAITS + GOOD)
    with pods.started(*flags(script), **PATIENT) as process:
        for uid in ("second", "third"):
            read_until(process, "[worker-1 trainer 0] rank 1 runs")
            pods.lose(1)
            read_until(process, WAITING)
            pods.replace(1, uid)
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert pulled_by(pods)[2:] == ["job-worker-1"] * 2


def test_a_replacement_that_is_lost_while_it_gets_its_part_is_replaced(pods: Pods) -> None:
    """The copy fails since its pod is gone, which is a loss like any other."""
    script = pods.script(TRAIN + WAITS + GOOD)
    with pods.started(*flags(script), **PATIENT) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1)
        read_until(process, WAITING)
        refuse = pods.root / "before_exec"
        refuse.write_text('#!/bin/sh\ntouch ../asked; echo "connection refused" >&2; exit 1\n')
        refuse.chmod(0o755)
        pods.replace(1, "second")
        read_until(process, "the copy to job-worker-1 is begun again")
        pods.lose(1)
        refuse.unlink()
        read_until(process, WAITING)
        pods.replace(1, "third")
        (pods.root / "go").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    assert (pods.worker(1) / "ws/workload/part1/graph.dgl").exists()


AFTER_THE_TRAINING = """#!/bin/sh
# exec of POD COMMAND...: before the output of worker 0 is asked for
case "$1 $*" in "job-worker-0 "*" pack "*) ;; *) exit 0 ;; esac
{disk}
cp ../cluster.new ../cluster.json
"""
SAVES = """
Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text("weights")
"""


def change_after_training(pods: Pods, disk: str, **status: Any) -> None:
    """Have worker 0 get another status once it has trained, and its disk change, before kubectl reads it."""
    pods.have_older_agents()
    pods.write_cluster(job_worker_0=status)
    (pods.root / "cluster.json").rename(pods.root / "cluster.new")
    pods.write_cluster()
    hook = pods.root / "before_exec"
    hook.write_text(AFTER_THE_TRAINING.replace("{disk}", disk))
    hook.chmod(0o755)


def test_the_empty_disk_of_a_replacement_is_not_taken_for_the_output(pods: Pods) -> None:
    """It was made while the last checkpoints were kept: what rank 0 had written is lost."""
    change_after_training(pods, "rm -rf ws/output", phase="Running", podIP="127.0.0.1", uid="another")

    done = pods.run(*flags(pods.script(TRAIN + SAVES + GOOD)), **PATIENT)

    assert done.code == 75, done.output
    assert done.message.startswith(
        "dglrun: the output of job-worker-0 is lost: pod job-worker-0 was replaced"
    )


def test_an_empty_folder_of_the_pod_that_had_trained_is_believed(pods: Pods) -> None:
    """Its node is drained, but it has answered itself."""
    change_after_training(pods, "rm -rf ws/output", phase="Running", podIP="127.0.0.1", deleting=True)

    done = pods.run(*flags(pods.script(TRAIN + SAVES + GOOD)), **PATIENT)

    assert done.code == 0, done.output


def test_a_worker_that_is_not_replaced_fails_the_run(pods: Pods) -> None:
    """The wait is bounded, and the code says that a worker was lost."""
    with pods.started(*flags(pods.script(TRAIN + WAITS)), **{env.REPLACEMENT_TIMEOUT: "1"}) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1)
        done = pods.finish(process)

    assert done.code == 75, done.output
    assert done.message.startswith(
        "dglrun: worker lost: pod job-worker-1 does not exist "
        "[no replacement of job-worker-1 is Ready within 1 s]"
    )
    wait_until_quiet(pods)


@pytest.mark.parametrize("patience", [PATIENT, {}])
def test_a_worker_that_has_failed_by_itself_is_not_waited_for(pods: Pods, patience: dict[str, str]) -> None:
    """Its container ended: the operator counts that as a failure."""
    failed = [{"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    with pods.started(*flags(pods.script(TRAIN + WAITS)), **patience) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1, phase="Failed", containerStatuses=failed)
        done = pods.finish(process)

    assert done.code == 75, done.output
    assert "container main exited with 137 (OOMKilled)" in done.message
    assert "waiting for the replacement" not in done.output


def test_a_trainer_that_raises_is_no_lost_worker(pods: Pods) -> None:
    """All agents can be reached: nobody has to be asked."""
    script = pods.script(
        TRAIN + "if rank == 1: raise RuntimeError('Connection closed by peer')\ntime.sleep(600)\n"
    )

    done = pods.run(*flags(script), **PATIENT)

    assert done.code == 1, done.output
    assert done.message.startswith("dglrun: job-worker-1: trainer 0 (rank 1) ended with exit code 1")


def test_an_operator_that_replaces_nobody_is_not_waited_for(pods: Pods) -> None:
    """An older one gives no time for it; it makes a new attempt."""
    with pods.started(*flags(pods.script(TRAIN + WAITS))) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1)
        done = pods.finish(process)

    assert done.code == 75, done.output
    assert "waiting for the replacement" not in done.output
    assert not any("replaces" in report for report in pods.reports())


def test_sigterm_while_a_replacement_is_waited_for_ends_at_once(pods: Pods) -> None:
    """The operator deletes the launcher when it makes another attempt instead."""
    with pods.started(*flags(pods.script(TRAIN + WAITS)), **PATIENT) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 runs")
        pods.lose(1)
        read_until(process, WAITING)
        os.kill(process.pid, signal.SIGTERM)
        done = pods.finish(process)

    assert done.code == 143, done.output
    wait_until_quiet(pods)


# --- what is done again


HOSTS = (Host("10.0.0.10", 30050, "job-worker-0"), Host("10.0.0.77", 30050, "job-worker-1"))


def test_a_replaced_worker_gets_its_own_part_and_all_learn_its_address() -> None:
    """The steps are those of the plan, but for who pulls."""
    config = a_config()

    serve, start, *_, train = training_again(config, HOSTS, "run", {"job-worker-1"})

    assert isinstance(serve, Serve)
    assert [(each.pod, each.ip, each.part) for each in serve.pullers] == [("job-worker-1", "10.0.0.77", 1)]
    planned = [step for phase in plan(config, HOSTS, "run") for step in phase.steps]
    assert isinstance(start, StartAgents)
    assert isinstance(train, Train)
    assert start in planned
    assert train in planned
    for agent in start.agents:
        assert "10.0.0.77 30050" in next(iter(agent.spec.files.values()))


def test_workers_that_all_have_their_parts_are_served_nothing() -> None:
    """A second loss while the agents start."""
    start, *_ = training_again(a_config(), HOSTS, "run", ())

    assert isinstance(start, StartAgents)


CHUNKS = ("--chunked-graph", "/chunks", "--partition-backend", "zoltan")
TRAINING = ("-g", "g", "--train-entry-point", "code/train.py")
ON_WORKERS = {**PATIENT, "DGL_OPERATOR_PARTITION_MODE": "DistParMETIS"}


def test_a_part_that_a_worker_had_made_itself_is_dispatched_anew() -> None:
    """By all workers, as only they have the assignment; before the agents start."""
    config = a_config(*CHUNKS, env=ON_WORKERS, base=TRAINING)

    _hostfile, dispatch, start, *_ = training_again(config, HOSTS, "run", {"job-worker-1"})

    assert config.replaces_workers
    assert isinstance(dispatch, Run)
    assert (dispatch.ranks, dispatch.argv[-2:]) == (2, ("--lost-parts", "1"))
    assert isinstance(start, StartAgents)


def test_a_part_that_came_from_the_store_comes_from_there_again() -> None:
    """A job that made its partition has the assignment, and does not ask the store."""
    config = a_config(*CHUNKS, "--partitions", "/kept", env=ON_WORKERS, base=TRAINING)

    (step, *_) = training_again(config, HOSTS, "run", {"job-worker-1"})

    assert isinstance(step, IfKept)
    (fetch,) = step.kept
    assert isinstance(fetch, Serve)
    assert [(each.pod, each.part) for each in fetch.pullers] == [("job-worker-1", 1)]
    assert any(isinstance(each, Run) for each in step.missing)


# --- what the API server says


class Answers:
    """An API server that gives one answer after the other, the last one again and again."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def get_pod(self, _name: str) -> dict[str, Any]:
        """The next answer."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        found: dict[str, Any] = answer
        return found

    def require_exec(self, name: str) -> None:
        """No test asks."""
        raise AssertionError(name)

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """No test reports."""
        raise AssertionError(name)


def a_pod(uid: str = "first", phase: str = "Running", *, ready: bool = True, **more: Any) -> dict[str, Any]:
    """A worker as the API server sends it."""
    metadata = {"name": "job-worker-1", "uid": uid}
    if more.pop("deleting", False):
        metadata["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    conditions = [{"type": "Ready", "status": str(ready)}, *more.pop("conditions", ())]
    status = {"phase": phase, "podIP": "10.0.0.77", "conditions": conditions, **more}
    return {"metadata": metadata, "status": status}


DISRUPTED = [{"type": "DisruptionTarget", "status": "True"}]


def replacements(cluster: Answers, seconds: float = 60.0) -> Replacements:
    workers = [WorkerPod(Host("10.0.0.10", names.DGL_PORT, "job-worker-1"), "first")]
    return Replacements(
        cluster, workers, seconds, lambda hosts, lost: training_again(a_config(), hosts, "run", lost)
    )


@pytest.mark.parametrize(
    ("answer", "fate"),
    [
        (a_pod(), Fate.LIVES),
        (a_pod(ready=False), Fate.LIVES),
        (a_pod("second"), Fate.LOST),
        (a_pod(deleting=True), Fate.GOING),
        (a_pod(phase="Failed", deleting=True), Fate.GOING),
        (a_pod(phase="Failed", conditions=DISRUPTED), Fate.GOING),
        (a_pod(conditions=DISRUPTED), Fate.GOING),
        (a_pod(phase="Failed", reason="NodeLost"), Fate.GOING),
        (a_pod(phase="Failed", reason="Evicted", message="disk full"), Fate.ENDED),
        (a_pod(phase="Failed"), Fate.ENDED),
        (a_pod(phase="Succeeded"), Fate.ENDED),
        (NotFound("gone"), Fate.LOST),
        (Forbidden("the operator has narrowed the Role"), Fate.FORBIDDEN),
        (Unavailable("away"), Fate.UNKNOWN),
    ],
)
def test_a_pod_is_lost_when_it_did_not_fail_by_itself(answer: Any, fate: Fate) -> None:
    """As the operator judges it."""
    assert replacements(Answers(answer)).fate("job-worker-1")[0] is fate


not_yet: st.SearchStrategy[Any] = st.sampled_from(
    [
        NotFound("gone"),
        Forbidden("not yet"),
        Unavailable("away"),
        ApiError("odd"),
        a_pod(deleting=True),
        a_pod("second", "Pending", ready=False),
        a_pod("second", ready=False),
        a_pod("second", deleting=True),
        a_pod("second", "Failed"),
        a_pod("second", podIP=None),
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(not_yet, max_size=8))
def test_whatever_comes_before_only_a_ready_pod_ends_the_wait(before: list[Any]) -> None:
    """And the part goes to the pod that has none, under its new address."""
    patch = pytest.MonkeyPatch()
    with patch.context() as patched:
        patched.setattr(worker_pods, "POLL_SECONDS", 0.0)
        cluster = Answers(*before, a_pod("third"))

        serve, *_ = replacements(cluster).await_all(WorkersLostError({"job-worker-1": "gone"}))

    assert len(cluster.answers) == 1
    assert isinstance(serve, Serve)
    assert [(each.pod, each.ip) for each in serve.pullers] == [("job-worker-1", "10.0.0.77")]


def test_a_worker_that_is_the_one_that_it_was_is_no_loss() -> None:
    """What has failed would fail again: the training is not begun again for ever."""
    lost = WorkersLostError({"job-worker-1": "pod job-worker-1 is not this job's any more"})

    with pytest.raises(RunError, match="not this job's any more"):
        replacements(Answers(a_pod())).await_all(lost)


def test_a_worker_that_only_seemed_lost_hides_no_failure() -> None:
    """The run ends with the exit code and the log lines of what had failed."""
    cause = RunError("trainer 0 (rank 0) ended with exit code 3", 3, "ValueError: bad data")
    lost = WorkersLostError({"job-worker-1": "pod job-worker-1 is not this job's any more"}, cause)

    with pytest.raises(RunError) as caught:
        replacements(Answers(a_pod())).await_all(lost)

    assert caught.value is cause


def test_a_part_that_did_not_arrive_is_brought_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker was lost meanwhile; the first one's part is still due, until it was delivered."""
    monkeypatch.setattr(worker_pods, "POLL_SECONDS", 0.0)
    found = replacements(Answers(a_pod("second"), a_pod("third")))
    lost = WorkersLostError({"job-worker-1": "gone"})
    found.await_all(lost)
    found.delivered()

    again = found.await_all(lost)

    assert isinstance(again[0], Serve)
