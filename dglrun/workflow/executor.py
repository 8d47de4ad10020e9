"""Performs a plan: phase after phase, the steps of a phase side by side, the first failure ends it."""

import json
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from dglrun.contract import env, exitcodes, names, report
from dglrun.contract.hostfile import Host
from dglrun.errors import DataError, RunError
from dglrun.transfer import copy
from dglrun.transfer.partition_files import PartitionFiles
from dglrun.transfer.streams import Streams
from dglrun.workflow import local_process
from dglrun.workflow.config import RunConfig
from dglrun.workflow.progress import Reporter
from dglrun.workflow.steps import (
    Assess,
    AwaitContainer,
    CheckPartition,
    Collect,
    PlanPhase,
    Preparation,
    ReadQuality,
    Run,
    Send,
    Supervise,
    WriteText,
)
from dglrun.workflow.training import Training

POLL_SECONDS = 0.5
SWEEP_SECONDS = 10.0
PARALLEL = 16
"""Copies at one time; each is a process with a stream through the API server."""


class ApiServer(Protocol):
    """What a run asks of the API server (dglrun.kube.api.Api)."""

    def get_pod(self, name: str) -> dict[str, Any]:
        """Read one pod."""

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Set keys of a ConfigMap, leaving its others."""


class Executor:
    """Performs the phases of one run.

    Args:
        config: The run's configuration.
        cluster: The API server; None in a Skip job that has no use for it.
        streams: Opens streams to other pods.
        reporter: Takes the progress.
    """

    def __init__(
        self, config: RunConfig, cluster: ApiServer | None, streams: Streams, reporter: Reporter
    ) -> None:
        self._config, self._cluster, self._streams, self._reporter = config, cluster, streams, reporter
        self._partition: PartitionFiles | None = None
        self._training: Training | None = None

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
        except BaseException as error:
            self._end(type(error).__name__)
            raise
        finally:
            if self._training:
                self._training.close()

    def _end(self, why: str) -> None:
        self._streams_of_copies_end()
        if self._training:
            self._training.stop(why)

    def _streams_of_copies_end(self) -> None:
        if not self._training:
            self._streams.kill_all()

    def _perform(self, phase: PlanPhase) -> None:
        supervise = [step for step in phase.steps if isinstance(step, Supervise)]
        collect = [step for step in phase.steps if isinstance(step, Collect)]
        if supervise:
            self._prepare(supervise)
        if collect:
            self._train(collect)
        for step in phase.steps:
            if not isinstance(step, Supervise | Collect | Send):
                self._do(step, phase)
        if sends := [step for step in phase.steps if isinstance(step, Send)]:
            self._send(sends)

    def _do(self, step: Preparation, phase: PlanPhase) -> None:
        match step:
            case Run():
                self._run(step, phase)
            case WriteText():
                _write(step)
            case ReadQuality():
                self._read_quality(step)
            case CheckPartition():
                self._partition = _checked(step)
            case Assess():
                self._assess(step)
            case AwaitContainer():
                self._await(step)

    def _run(self, step: Run, phase: PlanPhase) -> None:
        try:
            local_process.run(step, lambda line: self._reporter.stage(phase.stage, line))
        except BaseException:
            self._sweep(step.sweep)
            raise

    def _sweep(self, commands: Sequence[Sequence[str]]) -> None:
        """End what a command has left on other pods; best effort, as these may be what has failed."""
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="sweep")
        sweeps = [pool.submit(_sweep_one, command) for command in commands]
        wait(sweeps, SWEEP_SECONDS)
        pool.shutdown(wait=False, cancel_futures=True)

    # --- partition

    def _assess(self, step: Assess) -> None:
        """Verify and measure the partition, and put its quality into the job's report."""
        size, is_known = self._checked_partition.size_and_form()
        verify = step.verify if is_known and (step.limit is None or size <= step.limit) else None
        if verify is None:
            print(f"the partition ({size / 1e6:.0f} MB) is not verified (--verify always would)", flush=True)
        if not is_known:
            return
        if step.verify:  # with --verify never the user answers for a form that only DGL knows
            local_process.run(verify or step.serving, _ignore)
        try:
            local_process.run(step.report, _ignore)
            quality = json.loads(Path(step.json).read_text())
            self._reporter.partition({**quality, "verified": verify is not None})
        except (RunError, OSError, ValueError) as error:
            print(f"dglrun: note: the partition's quality is not reported: {error}", flush=True)

    def _read_quality(self, step: ReadQuality) -> None:
        try:
            with self._streams.open(step.argv) as stream:
                found = self._streams.finish(stream)[0]
            if found:
                self._reporter.partition(json.loads(found))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"dglrun: note: the partition's quality is not reported: {error}", flush=True)

    @property
    def _checked_partition(self) -> PartitionFiles:
        if self._partition is None:
            raise AssertionError("CheckPartition comes first")
        return self._partition

    # --- copies

    def _send(self, sends: list[Send]) -> None:
        pool = ThreadPoolExecutor(PARALLEL, thread_name_prefix="copy")
        futures = [pool.submit(self._send_one, step) for step in sends]
        try:
            _first_failure(futures)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _send_one(self, step: Send) -> None:
        start = time.monotonic()
        partition = self._checked_partition
        files = partition.all_files() if step.part is None else partition.files(step.part)
        if step.under:
            files = [item._replace(name=f"{step.under}/{item.name}") for item in files]
        deadline = start + self._config.start_timeout
        sent = copy.send(self._streams, step.argv, step.pod, files, deadline)
        seconds = time.monotonic() - start
        print(
            f"sent {sent.files} files, {sent.size / 1e6:.1f} MB to {step.pod} in {seconds:.1f} s, "
            "checksums compared",
            flush=True,
        )

    # --- waits

    def _await(self, step: AwaitContainer) -> None:
        deadline = time.monotonic() + step.seconds
        while not _is_running(self._pod(step.pod), step.container):
            if time.monotonic() > deadline:
                raise RunError(
                    f"{step.pod}: container {step.container} did not run within {step.seconds:.0f} s",
                    exitcodes.TIMEOUT,
                )
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

    def _prepare(self, steps: list[Supervise]) -> None:
        self._training = Training(steps, self._streams, self._reporter, self._gone)
        self._training.prepare(self._config.start_timeout)

    def _train(self, steps: list[Collect]) -> None:
        if self._training is None:
            raise AssertionError("the workers are prepared in the phase before")
        files = self._training.run()
        self._training.close()
        self._training = None
        self._collect([step for step in steps if files.get(step.host.name)])

    def _collect(self, steps: list[Collect]) -> None:
        """Bring the outputs here: rank 0's files, or those of the only worker that has some, at the top."""
        self._reporter.stage(report.STAGE_COLLECTING, "bring the output here")
        for index, step in enumerate(steps):
            folder = Path(step.folder) if index == 0 else Path(step.folder, step.host.name)
            deadline = time.monotonic() + self._config.start_timeout
            found = copy.collect(self._streams, step.argv, step.host.name, folder, deadline)
            print(f"collected {len(found)} files of {step.host.name} into {folder}:", flush=True)
            for name in found:
                print(f"  {name} ({(folder / name).stat().st_size} bytes)", flush=True)
        if not steps:
            print(f"nothing to collect: no worker has files in {env.OUTPUT_DIR}", flush=True)

    def _gone(self, pod: str) -> str | None:
        try:
            self._pod(pod)
        except RunError as error:
            return str(error) if error.code == exitcodes.LOST else None
        return None


def addresses(config: RunConfig, cluster: ApiServer) -> tuple[Host, ...]:
    """The live IPs of the workers, by index; their names are known before they exist.

    Raises:
        RunError: a worker has no IP within the deadline, or is gone.
    """
    deadline = time.monotonic() + config.start_timeout
    pods = names.workers(config.context.job, config.workers)
    return tuple(Host(_ip(cluster, pod, deadline), names.DGL_PORT, pod) for pod in pods)


def living_pod(cluster: ApiServer, name: str) -> dict[str, Any]:
    """Read a pod that must be alive.

    Raises:
        RunError: it is gone or has ended (75), or the API server does not answer (69).
    """
    from dglrun.kube import errors, pods  # noqa: PLC0415 - not needed in a Skip job

    try:
        pod = cluster.get_pod(name)
    except errors.NotFound as error:
        raise RunError(f"pod {name} does not exist", exitcodes.LOST) from error
    except errors.ApiError as error:
        raise RunError(f"pod {name} cannot be read: {error}", exitcodes.UNAVAILABLE) from error
    if pods.phase(pod) in ("Failed", "Succeeded"):
        raise RunError(f"pod {name} has ended: {pods.failure_reason(pod)}", exitcodes.LOST)
    if pods.is_being_deleted(pod):
        raise RunError(f"pod {name} is being deleted", exitcodes.LOST)
    return pod


def _ip(cluster: ApiServer, name: str, deadline: float) -> str:
    from dglrun.kube import pods  # noqa: PLC0415 - as above

    while True:
        pod = living_pod(cluster, name)
        if ip := pods.ip(pod):
            return ip
        if time.monotonic() > deadline:
            raise RunError(f"pod {name} has no IPv4 address: {pods.waiting_reason(pod)}", exitcodes.TIMEOUT)
        time.sleep(POLL_SECONDS)


def _is_running(pod: dict[str, Any], container: str) -> bool:
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return any(s.get("name") == container and (s.get("state") or {}).get("running") for s in statuses)


def _sweep_one(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, timeout=SWEEP_SECONDS, text=True, check=False)
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


def _ignore(_line: str) -> None:
    """What a check says is in the log; the stage's message stays."""


def _checked(step: CheckPartition) -> PartitionFiles:
    try:
        return PartitionFiles.find(Path(step.config), step.parts)
    except DataError as error:
        raise RunError(str(error), error.exit_code) from error


def _first_failure(futures: "list[Future[None]]") -> None:
    """Wait for all, or for the first that fails.

    Raises:
        RunError: that one's error.
    """
    done, _rest = wait(futures, return_when=FIRST_EXCEPTION)
    for future in done:
        future.result()


@contextmanager
def _told(phase: PlanPhase) -> Iterator[None]:
    """The log lines of 2021 around a phase."""
    start = time.monotonic()
    name = f"Phase {phase.number}/{phase.of}"
    print(f"{name}: {phase.title}\n----------", flush=True)
    try:
        yield
    except BaseException:
        print(f"{name} error raised", flush=True)
        raise
    print(f"----------\n{name} finished", flush=True)
    print(f"Phase : {time.monotonic() - start:.1f} seconds", flush=True)
