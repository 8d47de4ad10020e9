"""Performs a plan: phase after phase, step after step, as written; the first failure ends it."""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, assert_never

from dglrun.agent import folder_mark
from dglrun.contract import env, exitcodes
from dglrun.errors import DataError, RunError
from dglrun.formats.kept import reference
from dglrun.transfer import copy
from dglrun.transfer.kept_files import KeptFiles
from dglrun.transfer.partition_files import PartitionFiles
from dglrun.transfer.streams import Streams
from dglrun.transfer.tar_stream import NameTakenError, WriteError, shown
from dglrun.workflow import checkpoint_keeping, local_process, local_progress
from dglrun.workflow.checkpoint_keeping import CheckpointKeeping
from dglrun.workflow.output_collection import Wanted
from dglrun.workflow.part_delivery import PartDelivery
from dglrun.workflow.pod_access import ApiServer, living_pod, why_hopeless
from dglrun.workflow.progress import Reporter
from dglrun.workflow.steps import (
    AwaitContainer,
    CheckKept,
    CheckPartition,
    Cleanup,
    Collect,
    IfKept,
    InParallel,
    KeepCheckpoints,
    MeasureQuality,
    PlanPhase,
    ReadQuality,
    ReadReference,
    ReportKept,
    ReportStage,
    Run,
    Send,
    Serve,
    StartAgents,
    Step,
    Train,
    VerifyPartition,
    WriteText,
)
from dglrun.workflow.training import Training
from dglrun.workflow.worker_pods import Fate, Replacements, WorkersLostError

POLL_SECONDS = 0.5
AGAIN_SECONDS = 30.0
"""Of the last round of checkpoints before the training starts again; the survivors still have theirs."""
WAIT_SECONDS = 60.0
"""Between two lines about a pod that is waited for."""


class Executor:
    """Performs the phases of one run.

    What a step leaves for later ones is named in the plan: a checked partition by its JSON, a kept one by its
    reference, a worker's agent and the files of its output folder by its pod.

    Args:
        cluster: The API server; None in a Skip job that has no use for it.
        streams: Opens streams to other pods.
        reporter: Takes the progress.
        replacements: Waits for the replacements of lost workers; None: a lost worker fails the run.
    """

    def __init__(
        self,
        cluster: ApiServer | None,
        streams: Streams,
        reporter: Reporter,
        replacements: Replacements | None = None,
    ) -> None:
        self._cluster, self._streams, self._reporter = cluster, streams, reporter
        self._replacements = replacements
        self._partitions: dict[str, PartitionFiles] = {}
        self._kept: dict[str, KeptFiles] = {}
        self._proved: set[str] = set()
        self._training: Training | None = None
        self._keeping: CheckpointKeeping | None = None
        self._outputs: dict[str, bool | None] = {}
        self._shared: dict[str, tuple[str, ...]] = {}
        self._collected: dict[str, Future[bool]] = {}

    def perform(self, phases: Iterable[PlanPhase]) -> None:
        """Perform all phases.

        Raises:
            RunError: something failed; all that was started is stopped.
            Terminated: a signal came; all that was started is stopped.
        """
        try:
            for phase in phases:
                self._reporter.stage(phase.stage, phase.title)
                with _told(phase):
                    self._perform(phase)
            self._close_training()
        except BaseException as error:
            self._stop_training(error)
            raise
        finally:
            try:
                self._close_training(is_in_haste=True)
            finally:
                self._streams.kill_all()  # copies that other threads still wait for

    def _perform(self, phase: PlanPhase) -> None:
        try:
            for step in phase.steps:
                self._do(step, phase.stage)
        except Exception as error:
            self._stop_training(error)
            self._finish_keeping()
            for step in phase.at_end:
                self._try(step, phase.stage)
            self._dismiss()
            raise
        for step in phase.at_end:
            self._do(step, phase.stage)

    def _try(self, step: Step, stage: str) -> None:
        """Perform a step after a failure, which stays the run's."""
        try:
            self._do(step, stage)
        except Exception as error:
            print(f"dglrun: note: {error}", flush=True)

    def _do(self, step: Step, stage: str) -> None:  # noqa: C901, PLR0912 - a case for each type, no other rule
        match step:
            case Run():
                self._run(step, stage)
            case WriteText():
                _write(step)
            case CheckPartition():
                self._partitions[step.config] = _checked(step)
            case IfKept():
                for each in step.kept if reference.read(Path(step.reference)).kept else step.missing:
                    self._do(each, stage)
            case CheckKept():
                self._kept[step.reference] = KeptFiles.find(Path(step.reference), step.parts)
            case ReportKept():
                self._report_kept(step)
            case ReadReference():
                self._read_reference(step)
            case VerifyPartition():
                self._verify(step)
            case MeasureQuality():
                self._measure(step)
            case ReadQuality():
                self._read_quality(step)
            case AwaitContainer():
                self._await(step)
            case Send():
                self._send(step)
            case Serve():
                self._serve(step, stage)
            case InParallel():
                self._do_in_parallel(step, stage)
            case StartAgents():
                self._start_agents(step)
            case KeepCheckpoints():
                self._keep_checkpoints(step)
            case Train():
                self._train(step, stage)
            case ReportStage():
                self._reporter.stage(step.stage, step.message)
            case Collect():
                self._collect(step)
            case _:
                assert_never(step)

    def _do_in_parallel(self, step: InParallel, stage: str) -> None:
        pool = ThreadPoolExecutor(step.limit, thread_name_prefix="step")
        futures = [pool.submit(self._do, each, stage) for each in step.steps]
        try:
            if not step.ends_all:
                _note_later_failures(futures)
            _first_failure(futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
        if any(isinstance(each, Collect) for each in step.steps):
            self._dismiss()  # the agents have brought what they had

    def _run(self, step: Run, stage: str) -> None:
        try:
            with local_progress.followed(step, self._reporter.values) as command:
                local_process.run(command, lambda line: self._reporter.stage(stage, line))
        except BaseException:
            if step.cleanup:
                _clean_up(step.cleanup)
            raise

    # --- partition

    def _verify(self, step: VerifyPartition) -> None:
        size, is_known = self._partition(step.config).size_and_form()
        if not is_known:
            return
        is_cheap = step.limit is None or size <= step.limit
        local_process.run(step.proof if is_cheap else step.serving, _ignore)
        if is_cheap:
            self._proved.add(step.config)

    def _measure(self, step: MeasureQuality) -> None:
        # A workspace may outlive its job, and a kept partition keeps the numbers that are there.
        Path(step.json).unlink(missing_ok=True)
        size, is_known = self._partition(step.config).size_and_form()
        is_proved = step.config in self._proved
        if not is_proved:
            print(f"the partition ({size / 1e6:.0f} MB) is not verified (--verify always would)", flush=True)
        if not is_known:
            return
        try:
            local_process.run(step.measure, _ignore)
            quality = {**json.loads(Path(step.json).read_text()), "verified": is_proved}
            Path(step.json).write_text(json.dumps(quality) + "\n")  # a kept partition keeps that, too
            self._reporter.partition(quality)
        except (RunError, OSError, ValueError) as error:
            print(f"dglrun: note: the partition's quality is not reported: {error}", flush=True)

    def _read_quality(self, step: ReadQuality) -> None:
        try:
            with self._streams.open(step.argv) as stream, stream.killed_after(step.seconds):
                found, said = self._streams.finish(stream)
            if stream.returncode != 0:
                raise OSError(f"{step.pod}: {step.json} could not be read: {said.decode(errors='replace')}")
            if found:
                self._reporter.partition(json.loads(found))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"dglrun: note: the partition's quality is not reported: {error}", flush=True)

    def _report_kept(self, step: ReportKept) -> None:
        found = reference.read(Path(step.reference)).kept
        if found and found.quality:
            self._reporter.partition(dict(found.quality))

    def _read_reference(self, step: ReadReference) -> None:
        deadline = time.monotonic() + step.seconds
        while True:
            try:
                with self._streams.open(step.argv) as stream, stream.killed_after(step.seconds):
                    found, said = self._streams.finish(stream)
                if stream.returncode == 0:
                    reference.write(reference.decode(found), Path(step.path))
                    return
                what = said.decode(errors="replace").strip()
            except (OSError, ValueError) as error:
                what = str(error)
            if why := self._gone(step.pod):
                raise RunError(f"{step.pod}: {why}", exitcodes.LOST)
            if time.monotonic() > deadline:
                what = f"{step.path} could not be read for {step.seconds:g} s: {what}"
                raise RunError(f"{step.pod}: {what}", exitcodes.UNAVAILABLE)
            time.sleep(POLL_SECONDS)

    def _delivered(self, config: str) -> PartitionFiles | KeptFiles:
        """What a partition's JSON, or the reference to a kept one, stands for."""
        return self._kept.get(config) or self._partition(config)

    def _partition(self, config: str) -> PartitionFiles:
        if config not in self._partitions:
            raise AssertionError(f"the plan checks {config} first")
        return self._partitions[config]

    # --- copies

    def _send(self, step: Send) -> None:
        start = time.monotonic()
        partition = self._delivered(step.config)
        files = partition.all_files() if step.part is None else partition.files(step.part)
        if step.under:
            files = [item._replace(name=f"{step.under}/{item.name}") for item in files]
        deadline = start + step.seconds
        sent = copy.send(self._streams, step.argv, step.pod, files, deadline, self._why_hopeless)
        seconds = time.monotonic() - start
        print(
            f"sent {sent.files} files, {sent.size / 1e6:.1f} MB to {step.pod} in {seconds:.1f} s, "
            "checksums compared",
            flush=True,
        )

    def _serve(self, step: Serve, stage: str) -> None:
        PartDelivery(
            step,
            self._delivered(step.config),
            self._streams,
            self._ip_of,
            self._gone,
            lambda line, percent: self._reporter.stage(stage, line, percent),
        ).run()

    def _ip_of(self, pod: str) -> str | None:
        from dglrun.kube import pods  # noqa: PLC0415 - as below

        try:
            return pods.ip(self._pod(pod))
        except RunError:  # away; whether the pod is gone is asked, too
            return None

    def _collect(self, step: Collect) -> None:
        """Collect a folder that workers share from one of them: the first with which it goes well."""
        is_done = False
        try:
            for other in self._shared.get(step.pod, ()):
                if self._collected[other].result():  # it began earlier, and ends whatever becomes of it
                    print(
                        f"{step.pod} has the output folder of {other}: nothing has to be copied", flush=True
                    )
                    is_done = True
                    return
            self._collect_from(step)
            is_done = True
        finally:
            if step.pod in self._collected:
                self._collected[step.pod].set_result(is_done)

    def _collect_from(self, step: Collect) -> None:
        has_files = self._outputs.get(step.pod, False)
        if has_files is False:
            return
        pods = list(self._outputs)
        is_first = all(self._outputs[pod] is False for pod in pods[: pods.index(step.pod)])
        folder = Path(step.folder_if_first if is_first else step.folder)
        seconds = step.seconds_if_lost if has_files is None else step.seconds
        with _marked(Path(step.folder_if_first), step.marker):
            deadline = time.monotonic() + seconds
            try:
                found, is_same = self._brought(step, folder, deadline)
            except NameTakenError as error:
                folder = Path(step.folder)
                print(
                    f"dglrun: note: {error}: the files of {step.pod} go to {shown(str(folder))}", flush=True
                )
                found, is_same = self._brought(step, folder, deadline)
        if not found:
            if not is_same:
                self._require_same(step.pod, deadline)
            with suppress(OSError):
                folder.rmdir()  # only an empty one, as that of a worker whose folder is shared
            return
        lines = [f"collected {len(found)} files of {step.pod} into {shown(str(folder))}:"]
        lines += [f"  {shown(name)} ({(folder / name).lstat().st_size} bytes)" for name in found]
        _print_at_once(*lines)  # several workers are collected at the same time

    def _brought(self, step: Collect, folder: Path, deadline: float) -> tuple[list[str], bool]:
        """The files that have come into a folder, and whether the pod that has trained sent them.

        Raises:
            NameTakenError: one of them would lie in the folder of another worker.
            RunError: they cannot be had.
        """
        is_top = folder == Path(step.folder_if_first)
        taken = self._folders_of_others(step.pod) if is_top else frozenset[str]()
        if not is_top:
            _make_way(folder)
        found = self._from_agent(step, folder, taken, deadline)
        if found is not None:
            return found, True
        gone = self._has_lost_output
        return copy.collect(self._streams, step.argv, step.pod, folder, deadline, gone, taken), False

    def _folders_of_others(self, pod: str) -> frozenset[str]:
        """The names of workers that have files of their own: a shared folder may have any names."""
        return frozenset(
            other
            for other, has_files in self._outputs.items()
            if other != pod and has_files is not False and pod not in self._shared.get(other, ())
        )

    def _from_agent(
        self, step: Collect, folder: Path, taken: frozenset[str], deadline: float
    ) -> list[str] | None:
        """The files that a worker's agent has sent, without the API server; None if it cannot."""
        if self._training is None:
            return None
        return self._training.collect(Wanted(step.pod, step.source, step.marker, folder, taken), deadline)

    def _has_lost_output(self, pod: str) -> str | None:
        """Why a copy from a pod that has trained need not be tried again."""
        fate, why = self._replacements.fate(pod) if self._replacements else (Fate.UNKNOWN, "")
        return why if fate is Fate.LOST else self._gone(pod)

    def _require_same(self, pod: str, deadline: float) -> None:
        """Check that a pod without files is the one that had trained: a new one of its name has none, either.

        Raises:
            RunError: it is another one, or nobody says.
        """
        if self._replacements is None:
            return
        fate, why = self._replacements.fate(pod)
        while fate is Fate.UNKNOWN and time.monotonic() <= deadline:
            time.sleep(POLL_SECONDS)
            fate, why = self._replacements.fate(pod)
        if fate in (Fate.LOST, Fate.FORBIDDEN):
            raise RunError(f"the output of {pod} is lost: {why}", exitcodes.LOST)
        if fate is Fate.UNKNOWN:
            raise RunError(f"whether {pod} has output cannot be told: {why}", exitcodes.UNAVAILABLE)

    # --- waits

    def _await(self, step: AwaitContainer) -> None:
        answered = told = time.monotonic()
        while True:
            try:
                pod = self._pod(step.pod)
                answered = time.monotonic()
            except RunError as error:
                if error.code == exitcodes.LOST or time.monotonic() - answered > step.seconds:
                    raise
            else:
                if _is_running(pod, step.container):
                    return
                told = _tell_of_wait(step, pod, told)
            time.sleep(POLL_SECONDS)

    def _pod(self, name: str) -> dict[str, Any]:
        """Read a pod that must be alive.

        Raises:
            RunError: it is gone, has ended, or the API server does not answer.
        """
        if self._cluster is None:
            raise AssertionError("a run with other pods has an API server")
        return living_pod(self._cluster, name)

    # --- training

    def _start_agents(self, step: StartAgents) -> None:
        fate = self._replacements.fate if self._replacements else None
        self._training = Training(step, self._streams, self._hopeless, fate)
        self._training.start_agents()

    def _keep_checkpoints(self, step: KeepCheckpoints) -> None:
        self._keeping = checkpoint_keeping.begun(step)
        if self._keeping is None:
            return
        if self._training:
            self._training.keep(self._keeping)
        else:
            self._keeping.keep_here()

    def _train(self, step: Train, stage: str) -> None:
        """Train, and again on all workers each time that lost ones are replaced.

        Raises:
            RunError: the training failed, or a worker was lost and not replaced.
        """
        steps: tuple[Step, ...] = (step,)
        self._reporter.replaces(self._replacements is not None)
        try:
            while lost := self._train_by(steps, stage):
                steps = self._after(lost, stage)
        finally:
            self._reporter.replaces(False)

    def _after(self, lost: WorkersLostError, stage: str) -> tuple[Step, ...]:
        """Wait for the replacements of lost workers; returns what trains again."""
        if self._replacements is None:
            raise lost
        who = ", ".join(lost.reasons)
        print(f"dglrun: {lost}; waiting for the replacement of {who}", flush=True)
        self._reporter.stage(stage, f"waiting for the replacement of {who}")
        steps = self._replacements.await_all(lost)
        print(f"dglrun: {who} is there again; the training starts again", flush=True)
        return steps

    def _train_by(self, steps: tuple[Step, ...], stage: str) -> WorkersLostError | None:
        """Perform the steps of a training; returns which workers were lost meanwhile, if that ended it.

        Raises:
            RunError: it failed in another way.
        """
        try:
            for step in steps:
                if isinstance(step, StartAgents) and self._replacements:
                    self._replacements.delivered()  # what comes before brings or makes the parts
                if isinstance(step, Train):
                    self._train_once(step, stage)
                else:
                    self._do(step, stage)
        except RunError as error:
            if not (lost := self._lost_by(error, step)):
                raise
            self._stop_training(error)
            self._close_training(seconds=AGAIN_SECONDS)
            return lost
        return None

    def _lost_by(self, error: RunError, step: Step) -> WorkersLostError | None:
        """The loss of workers that is behind the failure of a step, if that is what it is."""
        if isinstance(error, WorkersLostError):
            return error
        is_early = not isinstance(step, Train) and error.code in (exitcodes.LOST, exitcodes.UNAVAILABLE)
        is_early |= isinstance(step, Run | IfKept)  # MPI says in many ways that a host is gone
        reasons = self._replacements.lost() if is_early and self._replacements else {}
        return WorkersLostError(reasons, error) if reasons else None

    def _train_once(self, step: Train, stage: str) -> None:
        if self._training is None or self._training.pods != step.workers:
            raise AssertionError(f"the plan starts the agents of {step.workers} first")
        try:
            self._training.run(step, lambda line: self._reporter.stage(stage, line), self._reporter.values)
        finally:
            self._outputs, self._shared = self._training.outputs, self._training.shared_outputs
            self._collected = {pod: Future() for pod in self._outputs}
            if all(has_files is False for has_files in self._outputs.values()):
                print(f"nothing to collect: no worker has files in {env.OUTPUT_DIR}", flush=True)
        self._reporter.replaces(False)  # a new pod would have no output, and the last round takes its time
        self._finish_keeping()

    def _stop_training(self, error: BaseException) -> None:
        if self._training:
            self._training.stop(type(error).__name__)

    def _close_training(self, is_in_haste: bool = False, seconds: float | None = None) -> None:
        """Let the agents leave, once the last checkpoints are kept; not where a signal ends the run."""
        try:
            if not is_in_haste:
                self._finish_keeping(seconds)
        finally:
            self._dismiss()

    def _finish_keeping(self, seconds: float | None = None) -> None:
        """Keep the last checkpoints; the agents stay, as they send the output."""
        try:
            if self._keeping:
                self._keeping.finish(self._training.silent if self._training else (), seconds)
        finally:
            self._end_keeping()

    def _end_keeping(self) -> None:
        if self._keeping:
            self._keeping.close()
            self._keeping = None

    def _dismiss(self) -> None:
        self._end_keeping()
        if self._training:
            self._training.close()
            self._training = None  # only now: a signal during close still has to stop and close it

    def _why_hopeless(self, pod: str) -> str | None:
        error = self._hopeless(pod)
        return str(error) if error else None

    def _gone(self, pod: str) -> str | None:
        """For the output, which is worth waiting for rights that come late."""
        error = self._hopeless(pod)
        return str(error) if error and error.code == exitcodes.LOST else None

    def _hopeless(self, pod: str) -> RunError | None:
        return why_hopeless(self._cluster, pod) if self._cluster else None


def _tell_of_wait(step: AwaitContainer, pod: dict[str, Any], told: float) -> float:
    """Say now and then what a pod that is waited for waits for; returns when that was said last."""
    from dglrun.kube import pods  # noqa: PLC0415 - as above

    now = time.monotonic()
    if now - told < WAIT_SECONDS:
        return told
    print(f"dglrun: waiting for {step.container} of {step.pod}: {pods.waiting_reason(pod)}", flush=True)
    return now


def _is_running(pod: dict[str, Any], container: str) -> bool:
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return any(s.get("name") == container and (s.get("state") or {}).get("running") for s in statuses)


def _clean_up(cleanup: Cleanup) -> None:
    """End what a command has left on other pods; best effort, as these may be what has failed."""
    pool = ThreadPoolExecutor(cleanup.limit, thread_name_prefix="cleanup")
    wait([pool.submit(_clean_one, argv, cleanup.seconds) for argv in cleanup.commands], cleanup.seconds)
    pool.shutdown(wait=False, cancel_futures=True)


def _clean_one(argv: Sequence[str], seconds: float) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, timeout=seconds, text=True, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        print(f"dglrun: note: {error}", flush=True)
        return
    if said := (done.stdout + done.stderr).strip():
        print(f"dglrun: note: {said}", flush=True)


def _write(step: WriteText) -> None:
    try:
        Path(step.path).parent.mkdir(parents=True, exist_ok=True)
        Path(step.path).write_text(step.text)
    except OSError as error:
        raise RunError(f"{step.path}: cannot be written: {error.strerror}", exitcodes.IO) from error


def _make_way(folder: Path) -> None:
    """Remove a link or file of an earlier run: a worker's files stay below the launcher's output folder."""
    try:
        if folder.is_symlink() or not folder.is_dir():
            folder.unlink(missing_ok=True)
    except OSError as error:
        raise WriteError(folder, error) from error


@contextmanager
def _marked(folder: Path, name: str) -> Iterator[None]:
    """Within it a file lies there, by which a worker recognises a shared folder; it must be writable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        folder_mark.put(folder, name)
    except OSError as error:
        raise WriteError(folder / name, error) from error
    try:
        yield
    finally:
        folder_mark.remove(folder, name)


def _ignore(_line: str) -> None:
    """What a check says is in the log; the stage's message stays."""


def _checked(step: CheckPartition) -> PartitionFiles:
    try:
        return PartitionFiles.find(Path(step.config), step.parts)
    except DataError as error:
        raise RunError(str(error), error.exit_code) from error


def _note_later_failures(futures: "list[Future[None]]") -> None:
    """Wait for all, and say of those that failed what the first one's error does not."""
    wait(futures)
    for error in [error for future in futures if (error := future.exception())][1:]:
        print(f"dglrun: note: {error}", flush=True)


def _first_failure(futures: "list[Future[None]]") -> None:
    """Wait for all, or for the first that fails.

    Raises:
        RunError: that one's error.
    """
    done, _rest = wait(futures, return_when=FIRST_EXCEPTION)
    for future in sorted(done, key=futures.index):
        future.result()


@contextmanager
def _told(phase: PlanPhase) -> Iterator[None]:
    """The log lines of 2021 around a phase."""
    start = time.monotonic()
    name = f"Phase {phase.number}/{phase.of}"
    _print_at_once(f"{name}: {phase.title}", "----------")
    try:
        yield
    except BaseException:
        print(f"{name} error raised", flush=True)
        raise
    _print_at_once("----------", f"{name} finished", f"Phase : {time.monotonic() - start:.1f} seconds")


def _print_at_once(*lines: str) -> None:
    """Print lines by one write, whoever else writes to this log; print itself writes the last end apart."""
    print("".join(f"{line}\n" for line in lines), end="", flush=True)
