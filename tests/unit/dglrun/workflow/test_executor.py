"""The executor performs what the plan says, in its order and with its values, and nothing else."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dglrun.contract import exitcodes
from dglrun.contract.hostfile import Host
from dglrun.errors import RunError
from dglrun.formats.kept import reference
from dglrun.formats.kept.fingerprint import PartitionInput
from dglrun.formats.kept.kept_partition import KeptFile, KeptPartition
from dglrun.formats.kept.reference import Reference
from dglrun.kube.errors import Unavailable
from dglrun.transfer.copy import RECEIVE
from dglrun.transfer.streams import Stream, Streams
from dglrun.workflow import executor as executor_module
from dglrun.workflow.executor import Executor
from dglrun.workflow.progress import Reporter
from dglrun.workflow.steps import (
    AwaitContainer,
    CheckKept,
    CheckPartition,
    Cleanup,
    Collect,
    IfKept,
    InParallel,
    MeasureQuality,
    PlanPhase,
    ReadQuality,
    ReadReference,
    ReportKept,
    Run,
    Send,
    StartAgents,
    Step,
    Train,
    VerifyPartition,
    WorkerAgent,
    WriteText,
)
from tests.support.dglrun_pods import write_partition
from tests.support.pulling import write_files
from tests.support.wait import wait_for
from tests.unit.dglrun.workflow.builders import a_spec

ENDED = "echo command terminated with exit code 1 >&2; exit 1"
"""The end of a shell in the place of kubectl whose command has failed on the other pod."""


class ConfigMaps:
    """An API server that keeps what is reported."""

    def __init__(self) -> None:
        self.written: dict[str, str] = {}

    def get_pod(self, name: str) -> dict[str, Any]:
        """No test asks."""
        raise AssertionError(name)

    def require_exec(self, name: str) -> None:
        """No test asks."""
        raise AssertionError(name)

    def patch_config_map(self, _name: str, data: Mapping[str, str]) -> None:
        """Keep the keys."""
        self.written.update(data)


class CountedStreams(Streams):
    """Knows how many streams were open at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self.all: list[Stream] = []

    def start(self, argv: Any) -> Stream:
        """Begin a stream and count those that are open."""
        stream = super().start(argv)
        self.all.append(stream)
        self.most = max(self.most, len(self._open))
        return stream


def perform(*steps: Step, streams: Streams | None = None, api: ConfigMaps | None = None) -> None:
    """Perform one phase of these steps."""
    reporter = Reporter(api, "job-report" if api else None)
    executor = Executor(None, streams or Streams(), reporter)
    executor.perform([PlanPhase(1, 1, "job-launcher", "test", "Training", steps)])
    reporter.close(60)


def a_partition(folder: Path, parts: int = 2) -> str:
    """A checked partition's JSON, in form only."""
    write_partition(folder, parts)
    return str(folder / "tiny.json")


def a_send(config: str, target: Path, part: int, first: str = ":") -> Send:
    """A copy within this machine, whose receiver runs a shell command first."""
    argv = ("sh", "-c", f'{first}\nexec "$@"', "receiver", *RECEIVE, str(target))
    return Send(f"job-worker-{part}", argv, config, part, str(target), "workload", 60.0)


def test_steps_are_performed_in_the_order_written(tmp_path: Path) -> None:
    """A copy between two commands is made between them; what follows finds what came before."""
    config, order, ran = a_partition(tmp_path / "dataset"), tmp_path / "order", tmp_path / "ran"
    note = Run(("sh", "-c", f"cat {tmp_path}/text >>{order}"))

    perform(
        WriteText(str(tmp_path / "text"), "1\n"),
        note,
        CheckPartition(config, 2),
        a_send(config, tmp_path / "worker", 0, f"echo 2 >>{order}"),
        WriteText(str(tmp_path / "text"), "3\n"),
        note,
        a_send(config, tmp_path / "worker", 1, f"echo 4 >>{order}; touch {ran}"),
        Run(("test", "-e", str(ran))),
    )

    assert order.read_text() == "1\n2\n3\n4\n"


def test_as_many_steps_run_in_parallel_as_the_plan_says(tmp_path: Path) -> None:
    """Two at a time: each waits for another one to have begun, and a third stream is never open."""
    config, streams = a_partition(tmp_path / "dataset", 5), CountedStreams()
    begun = tmp_path / "begun"
    begun.mkdir()
    meet = (
        f"mktemp -p {begun} >&2\n"
        f"for _ in $(seq 1200); do [ $(ls {begun} | wc -l) -ge 2 ] && break; sleep 0.05; done"
    )
    sends = tuple(a_send(config, tmp_path / f"worker-{part}", part, meet) for part in range(5))

    perform(CheckPartition(config, 5), InParallel(sends, 2), streams=streams)

    assert streams.most == 2
    assert all((tmp_path / f"worker-{part}/workload/part{part}").is_dir() for part in range(5))


def test_the_first_failure_in_parallel_ends_the_run(tmp_path: Path) -> None:
    """The others are stopped; nothing of the rest of the plan happens."""
    config, later = a_partition(tmp_path / "dataset"), tmp_path / "later"
    begun = tmp_path / "begun"
    waits = a_send(config, tmp_path / "slow", 0, f"touch {begun}; exec sleep 600")
    until = f"for _ in $(seq 1200); do [ -e {begun} ] && break; sleep 0.05; done"
    fails = a_send(config, tmp_path / "bad", 1, f"{until}\necho no container >&2; {ENDED}")
    streams = CountedStreams()
    steps = (CheckPartition(config, 2), InParallel((waits, fails), 2), Run(("touch", str(later))))

    with pytest.raises(RunError, match="no container"):
        perform(*steps, streams=streams)

    wait_for("the end of both", lambda: len(streams.all) == 2 and None not in _codes(streams))
    assert not later.exists()


def _codes(streams: CountedStreams) -> list[int | None]:
    return [stream.poll() for stream in streams.all]


class StartingPod:
    """An API server whose pod waits for a while, is away for a while, and then runs its init container."""

    def __init__(self, *statuses: dict[str, Any] | None) -> None:
        self._statuses = list(statuses)

    def get_pod(self, name: str) -> dict[str, Any]:
        """The next status; None: the API server does not answer."""
        status = self._statuses.pop(0)
        if status is None:
            raise Unavailable("the API server does not answer")
        return {"metadata": {"name": name, "uid": name}, "status": status}

    def require_exec(self, name: str) -> None:
        """Any pod may be entered."""

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Nothing is reported here."""


def awaiting(seconds: float, *statuses: dict[str, Any] | None) -> None:
    """Wait for the init container of a pod."""
    executor = Executor(StartingPod(*statuses), Streams(), Reporter(None, None))
    step = AwaitContainer("job-launcher", "watcher-loop-partitioner", seconds)
    executor.perform([PlanPhase(1, 1, "job-partitioner", "test", "Delivering", (step,))])


PENDING: dict[str, Any] = {"phase": "Pending"}
RUNS = {
    "phase": "Pending",
    "initContainerStatuses": [
        {"name": "watcher-loop-partitioner", "state": {"running": {"startedAt": "now"}}}
    ],
}


def test_a_container_is_awaited_for_as_long_as_its_pod_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher waits for hours for a node or for this partition; the deadline is the API server's."""
    monkeypatch.setattr(executor_module, "POLL_SECONDS", 0.001)

    awaiting(0.0, *[PENDING] * 50, RUNS)
    awaiting(60.0, None, None, PENDING, None, RUNS)
    with pytest.raises(RunError, match="the API server does not answer"):
        awaiting(0.0, PENDING, None, None)


def test_a_copy_needs_the_check_that_its_json_names(tmp_path: Path) -> None:
    """What is sent is the partition that the plan names, not the one that was checked last."""
    first, second = a_partition(tmp_path / "first"), a_partition(tmp_path / "second", 3)

    perform(CheckPartition(first, 2), CheckPartition(second, 3), a_send(first, tmp_path / "worker", 1))

    assert json.loads((tmp_path / "worker/workload/tiny.json").read_text())["num_parts"] == 2
    with pytest.raises(AssertionError, match=r"the plan checks .*second/tiny.json first"):
        perform(CheckPartition(first, 2), a_send(second, tmp_path / "worker", 1))


@pytest.mark.parametrize(("limit", "is_proved"), [(None, True), (1 << 40, True), (1, False)])
def test_the_limit_decides_what_verifies_a_partition(
    tmp_path: Path, limit: int | None, is_proved: bool
) -> None:
    """One of both commands runs, and the quality says whether it was the whole proof."""
    config, api = a_partition(tmp_path / "dataset"), ConfigMaps()
    proof, serving, numbers = tmp_path / "proof", tmp_path / "serving", tmp_path / "quality.json"
    verify = VerifyPartition(config, Run(("touch", str(proof))), Run(("touch", str(serving))), limit)
    measure = MeasureQuality(config, Run(("sh", "-c", f"echo '{{\"edgeCut\": 3}}' >{numbers}")), str(numbers))

    perform(CheckPartition(config, 2), verify, measure, api=api)

    assert (proof.exists(), serving.exists()) == (is_proved, not is_proved)
    assert json.loads(api.written["partition.json"]) == {"edgeCut": 3, "verified": is_proved}


def test_a_partition_that_no_step_verifies_is_reported_as_such(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With --verify never the plan has no such step; the quality is measured all the same."""
    config, api, numbers = a_partition(tmp_path / "dataset"), ConfigMaps(), tmp_path / "quality.json"
    measure = MeasureQuality(config, Run(("sh", "-c", f"echo '{{}}' >{numbers}")), str(numbers))

    perform(CheckPartition(config, 2), measure, api=api)

    assert json.loads(api.written["partition.json"]) == {"verified": False}
    assert "is not verified" in capfd.readouterr().out


def test_numbers_of_an_earlier_job_are_not_those_of_a_partition_that_cannot_be_measured(
    tmp_path: Path,
) -> None:
    """A workspace that outlives its job has them; they would be kept with the new partition."""
    config, api, numbers = a_partition(tmp_path / "dataset"), ConfigMaps(), tmp_path / "quality.json"
    numbers.write_text('{"edgeCut": 3}')
    measure = MeasureQuality(config, Run(("false",)), str(numbers))

    perform(CheckPartition(config, 2), measure, api=api)

    assert not numbers.exists()
    assert "partition.json" not in api.written


@pytest.mark.parametrize(
    ("script", "told", "note"),
    [
        ("echo '{\"edgeCut\": 3}'", {"edgeCut": 3}, ""),
        ("true", None, ""),
        ("echo no such pod >&2; exit 1", None, "/q.json could not be read: no such pod"),
        ("exec sleep 600", None, "/q.json could not be read"),
        ("echo '{'", None, "is not reported"),
    ],
)
def test_a_quality_on_a_worker_is_read_or_noted(
    script: str, told: dict[str, int] | None, note: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Whatever happens to the read, the run goes on; a read that hangs ends at the step's deadline."""
    api = ConfigMaps()
    seconds = 0.5 if "sleep" in script else 30.0

    perform(ReadQuality("job-worker-0", "/q.json", ("sh", "-c", script), seconds), api=api)

    assert api.written.get("partition.json") == (json.dumps(told) if told else None)
    said = capfd.readouterr().out
    assert note in said
    assert bool(note) == ("note:" in said)


def test_a_collect_alone_trains_nothing_and_copies_nothing(tmp_path: Path) -> None:
    """Only `Train` trains, and only what it has found in an output folder is copied."""
    touched, output = tmp_path / "touched", tmp_path / "output"
    to = (".marker", str(output), str(output), 5.0, 5.0)
    collect = Collect("job-worker-0", "/out", ("touch", str(touched)), *to)

    perform(collect)

    assert not touched.exists()
    assert not output.exists()


def test_files_with_the_name_of_another_worker_stay_in_their_own_workers_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Worker 0's are at the top else, where they would take the place of that worker's."""
    source, output = tmp_path / "source", tmp_path / "output"
    write_files(source, {"model.pt": 10, "job-worker-1/model.pt": 20})
    write_files(output, {"job-worker-1/kept": 30})

    collect_of_worker_0(source, output, {"job-worker-0": True, "job-worker-1": True})

    found = {str(each.relative_to(output)) for each in output.rglob("*") if each.is_file()}
    own = {"job-worker-0/model.pt", "job-worker-0/job-worker-1/model.pt"}
    assert found == {"job-worker-1/kept", *own}
    assert f"the files of job-worker-0 go to {output}/job-worker-0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("outputs", "shared"),
    [
        ({"job-worker-0": True, "job-worker-1": False}, {}),
        ({"job-worker-0": True, "job-worker-1": True}, {"job-worker-1": ("job-worker-0",)}),
    ],
)
def test_the_name_of_a_worker_without_files_of_its_own_is_free(
    tmp_path: Path, outputs: dict[str, bool | None], shared: dict[str, tuple[str, ...]]
) -> None:
    """On a shared volume each rank may write into a folder with its worker's name."""
    source, output = tmp_path / "source", tmp_path / "output"
    write_files(source, {"job-worker-1/model.pt": 20})

    collect_of_worker_0(source, output, outputs, shared)

    assert (output / "job-worker-1/model.pt").stat().st_size == 20


@pytest.mark.parametrize("has_link", [True, False])
def test_a_workers_folder_is_made_anew_where_a_link_or_file_was(tmp_path: Path, has_link: bool) -> None:
    """What an earlier run has left leads nothing out of the output folder."""
    source, output, outside = tmp_path / "source", tmp_path / "output", tmp_path / "outside"
    write_files(source, {"model.pt": 10, "job-worker-1": 5})
    write_files(outside, {"model.pt": 99})
    output.mkdir()
    if has_link:
        (output / "job-worker-0").symlink_to(outside)
    else:
        (output / "job-worker-0").touch()

    collect_of_worker_0(source, output, {"job-worker-0": True, "job-worker-1": True})

    assert (output / "job-worker-0/model.pt").stat().st_size == 10
    assert (outside / "model.pt").stat().st_size == 99
    assert not (output / "job-worker-0").is_symlink()


def collect_of_worker_0(
    source: Path,
    output: Path,
    outputs: dict[str, bool | None],
    shared: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Collect a folder as that of worker 0, after a training in which the agents found these outputs."""
    executor = Executor(None, Streams(), Reporter(None, None))
    executor._outputs, executor._shared = outputs, dict(shared or {})
    argv = (sys.executable, "-m", "dglrun", "pack", str(source))
    own = str(output / "job-worker-0")
    executor._do(Collect("job-worker-0", "/out", argv, ".marker", own, str(output), 60.0, 60.0), "Training")


def test_train_needs_started_agents() -> None:
    """A plan without them is a bug of the plan, not a training of nobody."""
    with pytest.raises(AssertionError, match=r"the plan starts the agents of \('job-worker-0',\) first"):
        perform(Train(("job-worker-0",), 1, 30.0))


def test_agents_have_as_long_to_start_as_the_step_says(tmp_path: Path) -> None:
    """One that never answers fails the run at the step's deadline, whatever the configuration says."""
    silent = (sys.executable, "-c", "import time; time.sleep(600)")
    agent = WorkerAgent(Host("127.0.0.1", 30050, "job-worker-0"), silent, a_spec())
    start = StartAgents(
        (agent,), limit=1, seconds=0.5, attempts=1, heartbeat=1.0, settle_seconds=0.0, stop_seconds=0.1
    )

    with pytest.raises(RunError, match=r"within 0\.5 s") as failure:
        perform(start)

    assert "job-worker-0" in str(failure.value)
    assert failure.value.code == 69


def test_a_failed_command_is_cleaned_up_after(tmp_path: Path) -> None:
    """All commands of the step's cleanup run, one that fails among them; the command's own code is kept."""
    left = [tmp_path / "first", tmp_path / "second"]
    commands = (("touch", str(left[0])), ("false",), ("no such program",), ("touch", str(left[1])))
    step = Run(("sh", "-c", "exit 7"), title="partitioning", cleanup=Cleanup(commands, 1, 60.0))

    with pytest.raises(RunError, match="partitioning ended with exit code 7"):
        perform(step)

    assert all(path.exists() for path in left)


def test_a_command_runs_through_what_the_plan_names(tmp_path: Path) -> None:
    """`via` starts the command, as kubectl exec and mpirun do; the folder exists before it."""
    found, folder = tmp_path / "found", tmp_path / "output/of/run"
    argv = ("sh", "-c", f'test -d {folder} && echo "$RANK $LEVEL" >{found}')

    perform(Run(argv, {"LEVEL": "2"}, via=("env", "RANK=1"), folders=(str(folder),)))

    assert found.read_text() == "1 2\n"


def test_the_end_of_a_phase_is_performed_however_its_steps_end(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The failure of the steps stays the run's; what fails after it is a note, and stops nothing."""
    touched = tmp_path / "touched"
    at_end = (Run(("sh", "-c", "exit 9"), title="at the end"), Run(("touch", str(touched))))
    phase = PlanPhase(1, 1, "job-launcher", "test", "Training", (Run(("sh", "-c", "exit 7")),), at_end)

    with pytest.raises(RunError, match="exit code 7") as failure:
        Executor(None, Streams(), Reporter(None, None)).perform([phase])

    assert failure.value.code == 7
    assert touched.exists()
    assert "dglrun: note: at the end ended with exit code 9" in capfd.readouterr().out


def test_the_end_of_a_good_phase_may_fail_the_run() -> None:
    """An output that is not brought home is no success."""
    phase = PlanPhase(
        1, 1, "job-launcher", "test", "Training", (Run(("true",)),), (Run(("sh", "-c", "exit 9")),)
    )

    with pytest.raises(RunError, match="exit code 9"):
        Executor(None, Streams(), Reporter(None, None)).perform([phase])


def test_steps_in_parallel_may_all_be_performed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As the plan says it: a copy that fails stops no other, and each failure is told."""
    config = a_partition(tmp_path / "dataset", 3)
    refused = [
        a_send(config, tmp_path / "bad", part, f"echo no container {part} >&2; {ENDED}") for part in (0, 1)
    ]
    good = a_send(config, tmp_path / "good", 2)

    with pytest.raises(RunError, match="no container 0"):
        perform(CheckPartition(config, 3), InParallel((*refused, good), 1, ends_all=False))

    assert (tmp_path / "good/workload/part2").is_dir()
    assert "no container 1" in capfd.readouterr().out


def a_reference(path: Path, is_kept: bool) -> str:
    """What a look into a store has written."""
    wanted = PartitionInput({}, {"parts": "2"})
    files = {"g.json": KeptFile(1, "0" * 64)}
    quality = {"edgeCut": "12.5%"}
    kept = KeptPartition(
        wanted.fingerprint, f"w-{0:016}", "g.json", 2, files, wanted, "2026", "ns/job", "0.2.0", quality
    )
    reference.write(Reference("/kept", wanted, kept if is_kept else None), path)
    return str(path)


@pytest.mark.parametrize("is_kept", [True, False])
def test_one_side_is_performed_by_what_the_store_had(tmp_path: Path, is_kept: bool) -> None:
    """The other one leaves no trace; a quality that was kept is reported as one that is measured."""
    path, api = a_reference(tmp_path / "g.kept.json", is_kept), ConfigMaps()
    sides = [WriteText(str(tmp_path / side), "") for side in ("missing", "kept")]

    perform(IfKept(path, missing=(sides[0],), kept=(sides[1], ReportKept(path))), api=api)

    assert [(tmp_path / side).exists() for side in ("missing", "kept")] == [not is_kept, is_kept]
    assert ("12.5%" in str(api.written)) == is_kept


def test_a_reference_is_read_from_a_worker_that_cannot_be_reached_at_first(tmp_path: Path) -> None:
    """And written here whole."""
    there, here = a_reference(tmp_path / "there.json", True), tmp_path / "here/g.kept.json"
    shell = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; exit 1; }}; cat {there}"

    perform(ReadReference("job-worker-0", str(here), ("sh", "-c", shell), 60.0))

    assert reference.read(here) == reference.read(Path(there))


def test_a_reference_that_does_not_come_is_named_after_the_deadline(tmp_path: Path) -> None:
    """With the pod, the file and what was said."""
    path = str(tmp_path / "g.kept.json")

    with pytest.raises(
        RunError, match=r"job-worker-0: .*g\.kept\.json could not be read for 0\.1 s: no"
    ) as late:
        perform(ReadReference("job-worker-0", path, ("sh", "-c", "echo no >&2; exit 1"), 0.1))

    assert late.value.code == exitcodes.UNAVAILABLE


@pytest.mark.parametrize(
    ("is_kept", "parts", "words"), [(False, 2, "expected a partition in"), (True, 3, "expected 3 parts in")]
)
def test_a_reference_to_no_such_partition_is_refused(
    tmp_path: Path, is_kept: bool, parts: int, words: str
) -> None:
    """Before any worker is asked to fetch."""
    path = a_reference(tmp_path / "g.kept.json", is_kept)

    with pytest.raises(RunError, match=words) as refused:
        perform(CheckKept(path, parts))

    assert refused.value.code == exitcodes.DATA
