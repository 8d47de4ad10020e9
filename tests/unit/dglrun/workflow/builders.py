"""Configurations, hosts and processes for the tests of dglrun."""

from collections.abc import Mapping, Sequence

from dglrun.agent.spec import Process, ProcessRole, Spec
from dglrun.cli import parse
from dglrun.contract import version
from dglrun.contract.hostfile import Host
from dglrun.workflow.config import JobContext, RunConfig, check
from dglrun.workflow.config import parse as parse_config

BASE = ("-g", "g", "--partition-entry-point", "code/part.py", "--train-entry-point", "code/train.py")


def a_context(
    phase: str | None = None, workers: int = 2, gpus: int = 0, env: Mapping[str, str] | None = None
) -> JobContext:
    """What the operator tells a pod."""
    found = {
        "DGL_OPERATOR_ENV": "1",
        "DGL_OPERATOR_JOB_NAME": "job",
        "DGL_OPERATOR_NUM_WORKERS": str(workers),
        "DGL_OPERATOR_GPUS_PER_WORKER": str(gpus),
        "DGL_OPERATOR_CONTRACT_VERSION": str(version.CURRENT),
        **(env or {}),
    }
    return JobContext.of(found | ({"DGL_OPERATOR_PHASE_ENV": phase} if phase else {}))


def a_config(
    *args: str,
    phase: str | None = None,
    workers: int = 2,
    gpus: int = 0,
    env: Mapping[str, str] | None = None,
    base: Sequence[str] = BASE,
) -> RunConfig:
    """A checked configuration: a graph and both scripts, and what `args` add."""
    flags, _is_dry, script_args = parse([*base, *args])
    return check(parse_config(a_context(phase, workers, gpus, env), flags, script_args))


def hosts(count: int) -> tuple[Host, ...]:
    """Workers with the addresses 10.0.0.1, 10.0.0.2 and so on."""
    return tuple(Host(f"10.0.0.{index + 1}", 30050, f"job-worker-{index}") for index in range(count))


def a_trainer(*argv: str, index: int = 0) -> Process:
    """A trainer that runs `argv`."""
    return Process(ProcessRole.TRAINER, index, index, argv, {"DGL_ROLE": "client"})


def a_server(*argv: str) -> Process:
    """A server that runs `argv`."""
    return Process(ProcessRole.SERVER, 0, None, argv, {"DGL_ROLE": "server"})


def a_spec(*processes: Process, **more: object) -> Spec:
    """A spec for this machine."""
    return Spec(**{"run": "r", "ip": "127.0.0.1", "trainers": 1, "processes": processes, **more})  # type: ignore[arg-type]
