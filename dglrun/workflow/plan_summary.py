"""The steps of a plan in a user's terms: what `--dry-run` shows of each. Pure; the plan holds the whole."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, assert_never

from dglrun.agent import CAUSES_VARIABLE
from dglrun.agent.spec import Process
from dglrun.workflow.steps import (
    Argv,
    AwaitContainer,
    CheckKept,
    CheckPartition,
    Collect,
    IfKept,
    InParallel,
    KeepCheckpoints,
    MeasureQuality,
    Puller,
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
    WorkerAgent,
    WriteText,
)

INTERNAL = {CAUSES_VARIABLE, "PYTHONUNBUFFERED", "DGL_ROLE", "DGL_GROUP_ID", "DGL_DIST_MODE"}
"""Variables between dglrun, its agents and DGL, which users neither set nor read."""
NUMBERS = {"RANK", "LOCAL_RANK", "DGL_SERVER_ID"}
"""Numbers of one process; a worker's line has them as a range."""
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


class OneLine(dict[str, Any]):
    """A mapping that is shown on one line, whatever its length."""


def of(step: Step) -> dict[str, Any]:
    """A step by its name in the plan, and what of it matters to a user."""
    return {type(step).__name__: _values(step)}


def _values(step: Step) -> dict[str, Any]:  # noqa: C901, PLR0911, PLR0912 - a case for each type of step
    match step:
        case Run():
            return _run(step)
        case WriteText():
            return OneLine(path=step.path, lines=step.text.splitlines())
        case CheckPartition():
            return OneLine(partition=step.config, parts=step.parts)
        case IfKept():
            return _if_kept(step)
        case CheckKept():
            return OneLine(reference=step.reference, parts=step.parts)
        case ReportKept():
            return OneLine(reference=step.reference)
        case ReadReference():
            return OneLine(pod=step.pod, file=step.path, deadline=_seconds(step.seconds))
        case VerifyPartition():
            return _verify(step)
        case MeasureQuality():
            return {"command": _command(step.measure.argv)}
        case ReadQuality():
            return OneLine(pod=step.pod, file=step.json, deadline=_seconds(step.seconds))
        case AwaitContainer():
            ends = "when it runs, or the pod has ended"
            return OneLine(pod=step.pod, container=step.container, ends=ends)
        case Send():
            return _files(step, step.config)
        case Serve():
            return _serve(step)
        case InParallel():
            return _in_parallel(step)
        case StartAgents():
            return _start_agents(step)
        case KeepCheckpoints():
            return _keep(step)
        case Train():
            return _train(step)
        case ReportStage():
            return OneLine(stage=step.stage, message=step.message)
        case Collect():
            return _collect(step)
        case _:
            assert_never(step)


def _run(step: Run) -> dict[str, Any]:
    deadline = None if step.seconds is None else _seconds(step.seconds)
    where = OneLine(_set(ranks=step.ranks, pods=list(step.pods), deadline=deadline))
    env = OneLine(_recognised(step.env))
    return _set(title=step.title, command=_command(step.argv), where=where, env=env)


def _if_kept(step: IfKept) -> dict[str, Any]:
    missing, kept = [of(each) for each in step.missing], [of(each) for each in step.kept]
    return _set(if_missing=missing, if_kept=kept)


def _verify(step: VerifyPartition) -> dict[str, Any]:
    shown = {"command": _command(step.proof.argv)}
    if step.limit is not None:
        shown[f"above {_bytes(step.limit)}"] = _command(step.serving.argv)
    return shown


def _files(step: Send | Puller, config: str) -> OneLine:
    files = "all parts" if step.part is None else f"part {step.part}"
    folder = f"{step.target}/{step.under}" if isinstance(step, Send) and step.under else step.target
    return OneLine({"files": files, "of": config, "to": step.pod, "folder": folder})


def _serve(step: Serve) -> dict[str, Any]:
    pullers = [_files(each, step.config) for each in step.pullers]
    seen = {"links_if_it_sees": step.marker} if step.marker else {}
    if len(pullers) == 1:
        return OneLine(pullers[0] | seen)
    return {"at_a_time": step.limit, **seen, "pullers": pullers}


def _in_parallel(step: InParallel) -> dict[str, Any]:
    ends = None if step.ends_all else "when all have ended; a failure of one stops no other"
    how = OneLine(_set(at_a_time=step.limit, ends=ends))
    return {"how": how, "steps": [of(each) for each in step.steps]}


def _train(step: Train) -> dict[str, Any]:
    shown = {
        "workers": list(step.workers),
        "world_size": step.world_size,
        "ends": "when all ranks have ended with 0; the first failure of a process or worker stops all",
        "servers_stop_after": _seconds(step.servers_seconds),
    }
    if step.hang_seconds is not None:
        shown["fails_if_idle_for"] = _seconds(step.hang_seconds)
    return shown


def _keep(step: KeepCheckpoints) -> OneLine:
    folders = [folder for keeper in step.keepers for folder in keeper.folders.values()]
    last = "" if len(folders) == 1 else f" to {folders[-1].rpartition('/')[2]}"
    return OneLine(
        {
            "of": f"{folders[0]}{last}",
            "in": step.place or f"{step.folder} of {step.owner}",
            "every": _seconds(step.every),
            "of_each_worker": f"{step.rate / 1e6:g} MB/s",
        }
    )


def _collect(step: Collect) -> OneLine:
    shown = OneLine({"from": step.pod, "folder": step.source, "to": step.folder})
    if step.folder_if_first != step.folder:
        shown["to_if_first"] = step.folder_if_first
    return shown


# --- the training's processes


def _start_agents(step: StartAgents) -> dict[str, Any]:
    processes = [process for agent in step.agents for process in agent.spec.processes]
    files = {path: text for agent in step.agents for path, text in agent.spec.files.items()}
    trainers = [process for process in processes if process.rank is not None]
    everywhere = _common(processes)
    commands = list(dict.fromkeys(_command(process.argv) for process in processes))
    only = {name: value for name, value in _common(trainers).items() if name not in everywhere}
    return {
        "workers": [_worker(agent) for agent in step.agents],
        "command": commands[0] if len(commands) == 1 else commands,
        "files": OneLine({path: text.splitlines() for path, text in files.items()}),
        "env": OneLine(everywhere),
        "env_of_trainers": OneLine(only),
        "limits": OneLine(deadline=_seconds(step.seconds), lease=_lease(step)),
    }


def _worker(agent: WorkerAgent) -> OneLine:
    spec = agent.spec
    ranks = [process.rank for process in spec.processes if process.rank is not None]
    servers = len(spec.processes) - len(ranks)
    return OneLine(
        pod=agent.host.name,
        ip=spec.ip,
        servers=servers,
        ports=_range(spec.ports),
        trainers=len(ranks),
        ranks=_range(ranks),
    )


def _common(processes: Iterable[Process]) -> dict[str, str]:
    """Variables that all processes have with the same value."""
    first, *others = [process.env for process in processes] or [{}]
    same = {name: value for name, value in first.items() if all(env.get(name) == value for env in others)}
    return _recognised(same)


def _recognised(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in INTERNAL | NUMBERS}


# --- words


def _set(**values: Any) -> dict[str, Any]:
    """Those that have a value."""
    return {name: value for name, value in values.items() if value}


def _command(argv: Argv) -> str:
    return shlex.join(argv)


def _lease(step: StartAgents) -> str:
    return ", ".join(dict.fromkeys(_seconds(agent.spec.lease) for agent in step.agents))


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s"


def _bytes(size: int) -> str:
    unit = next(((size // each, name) for each, name in _UNITS if size % each == 0), (size, "bytes"))
    return f"{unit[0]} {unit[1]}"


def _range(numbers: Sequence[int]) -> str | int:
    """Consecutive numbers as `0-3`, one as itself."""
    return f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else numbers[0] if numbers else "none"
