"""What `dglrun` does: a subcommand, or this pod's role in a DGLJob, and its actual status as exit code."""

import secrets
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dglrun.cli import is_command, parse, run_command
from dglrun.commands import program
from dglrun.commands.arguments import UsageError
from dglrun.contract import env, exitcodes, version
from dglrun.errors import RunError, Terminated

if TYPE_CHECKING:
    from dglrun.workflow.config import RunConfig
    from dglrun.workflow.pod_access import ApiServer

TERMINATION_LOG = Path("/dev/termination-log")
MESSAGE_BYTES = 4096


def main(argv: Sequence[str]) -> int:
    """Run `dglrun <argv>`; returns the exit code."""
    return run_command(argv) if is_command(argv) else workflow(argv)


def workflow(argv: Sequence[str], cluster: "ApiServer | None" = None, log: Path = TERMINATION_LOG) -> int:
    """Run the workflow's part of this pod.

    Args:
        argv: The command line.
        cluster: The API server; None: the one of this cluster.
        log: The termination message of the container.
    """
    with program.raising_terminated():  # around the messages, too: a second signal must not disturb them
        try:
            return _workflow(argv, cluster)
        except RunError as error:
            return _fail(f"{error}", error.words, error.code, log)
        except Terminated as ended:
            text = f"{program.describe_end(ended.number)}; nothing was left running"
            return _fail(text, "", 128 + ended.number, log)
        except Exception as error:
            if isinstance(error, OSError) and error.filename is not None:
                return _fail(program.describe(error), "", exitcodes.IO, log)
            words = traceback.format_exc()
            return _fail(f"a bug in dglrun: {type(error).__name__}: {error}", words, exitcodes.SOFTWARE, log)


def _workflow(argv: Sequence[str], cluster: "ApiServer | None") -> int:
    config, is_dry = _configuration(argv)
    if is_dry:
        from dglrun.workflow.dry_run import as_yaml  # noqa: PLC0415 - yaml is slow to import and needed here only

        print(as_yaml(config), end="")
        return exitcodes.OK
    _run(config, cluster)
    return exitcodes.OK


def _configuration(argv: Sequence[str]) -> "tuple[RunConfig, bool]":
    import os  # noqa: PLC0415

    is_in_job = not {env.CONTRACT_VERSION, env.OPERATOR, env.JOB_NAME}.isdisjoint(os.environ)
    if is_in_job and (refused := version.refusal(os.environ, version.JOB_IMAGE)):
        raise RunError(refused, exitcodes.CONTRACT)
    from dglrun.workflow import config  # noqa: PLC0415 - pydantic is not for the subcommands

    try:
        flags, is_dry, script_args = parse(argv)
        return config.check(config.parse(config.JobContext.of(os.environ), flags, script_args)), is_dry
    except (UsageError, config.ConfigError) as error:
        raise RunError(str(error), exitcodes.USAGE) from error


def _run(config: "RunConfig", cluster: "ApiServer | None") -> None:
    from dglrun.transfer.streams import Streams  # noqa: PLC0415
    from dglrun.workflow import worker_pods  # noqa: PLC0415
    from dglrun.workflow.executor import Executor  # noqa: PLC0415
    from dglrun.workflow.plan import plan, training_again  # noqa: PLC0415
    from dglrun.workflow.progress import COMPLETED_SECONDS, Reporter  # noqa: PLC0415

    start, run = time.monotonic(), secrets.token_hex(8)
    cluster = cluster or _cluster(config)
    reporter = Reporter(cluster, config.context.report)
    is_launcher = not (config.is_skip or config.is_partitioner)
    try:
        workers = worker_pods.find(config, cluster) if is_launcher and cluster else ()
        replacements = None
        if cluster and config.replaces_workers:
            replacements = worker_pods.Replacements(
                _at_once(cluster),
                workers,
                config.context.replacement_timeout,
                lambda hosts, lost: training_again(config, hosts, run, lost),
            )
        phases = plan(config, [worker.host for worker in workers], run)
        Executor(cluster, Streams(), reporter, replacements).perform(phases)
        print(f"Total : {time.monotonic() - start:.1f} seconds", flush=True)
        if config.is_partitioner:
            reporter.close(COMPLETED_SECONDS)
        else:
            reporter.complete("the training has ended and its output is collected")
    finally:
        reporter.close()


def _cluster(config: "RunConfig") -> "ApiServer | None":
    from dglrun.kube.api import Api  # noqa: PLC0415
    from dglrun.kube.errors import NotInCluster  # noqa: PLC0415

    try:
        return Api.in_cluster(config.context.namespace if config.context.in_job else None)
    except NotInCluster as error:
        if config.is_skip:
            return None
        raise RunError(_outside(config, error), exitcodes.USAGE) from None


def _at_once(cluster: "ApiServer") -> "ApiServer":
    """The API server for who asks about lost pods, which the operator withdraws the right to read."""
    from dglrun.kube.api import Api  # noqa: PLC0415

    return cluster.at_once() if isinstance(cluster, Api) else cluster


def _outside(config: "RunConfig", error: Exception) -> str:
    """What to do where there is no API server: in a job's pod its service account is missing."""
    if config.context.in_job:
        return str(error)
    return (
        "this is no pod of a DGLJob: add --dry-run to see the plan here, or create a DGLJob with this"
        " command line (docs/tutorial/first-job.md)"
    )


def _fail(message: str, words: str, code: int, log: Path) -> int:
    """Tell stderr and the kubelet why, and return the code."""
    text = f"dglrun: {message}\n" + (f"{words.rstrip()}\n" if words else "")
    sys.stdout.flush()
    sys.stderr.write(text)
    _leave_words(text, log)
    return code


def _leave_words(text: str, log: Path) -> None:
    """Write the termination message: the first line whole, of the rest what fits, its end first."""
    data = text.encode(errors="backslashreplace")  # a file name may be no UTF-8
    if len(data) > MESSAGE_BYTES:
        head = data.split(b"\n", 1)[0][: MESSAGE_BYTES // 2] + b"\n...\n"
        data = head + data[-(MESSAGE_BYTES - len(head)) :]
    if log.exists():
        try:
            log.write_bytes(data.decode(errors="ignore").encode())
        except OSError as error:
            sys.stderr.write(f"dglrun: the termination message could not be written: {error}\n")
