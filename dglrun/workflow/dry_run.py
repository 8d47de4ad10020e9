"""A plan as YAML: what `--dry-run` prints, and with `--verbose` all that the executor performs."""

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import yaml

from dglrun.workflow import plan_summary
from dglrun.workflow.config import RunConfig
from dglrun.workflow.plan import launcher_phases, placeholder_hosts, plan
from dglrun.workflow.plan_summary import OneLine
from dglrun.workflow.steps import IfKept, InParallel, PlanPhase, Step


def as_yaml(config: RunConfig) -> str:
    """The plan of this pod; outside of a job that of all pods."""
    shown = {"role": config.context.phase, "job": config.context.job}
    return full(phases(config), shown) if config.verbose else short(phases(config), shown)


def full(phases: tuple[PlanPhase, ...], head: Mapping[str, str]) -> str:
    """All values of all steps: commands as lists of arguments, environments, specs."""
    shown = {**head, "phases": [_phase(phase, _step) for phase in phases]}
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def short(phases: tuple[PlanPhase, ...], head: Mapping[str, str]) -> str:
    """Each step in a user's terms; every command is one line, to be copied into a shell."""
    shown = {**head, "phases": [_titled(_phase(phase, plan_summary.of)) for phase in phases]}
    return yaml.dump(shown, Dumper=_ShortDumper, sort_keys=False, width=float("inf"), allow_unicode=True)


def phases(config: RunConfig) -> tuple[PlanPhase, ...]:
    """The phases of this pod with placeholders for what only a run knows."""
    hosts = placeholder_hosts(config)
    is_one_pods = (
        config.context.in_job or config.is_skip or config.is_partitioner or config.partitions_on_workers
    )
    if is_one_pods or not (config.partition_entry_point or config.chunked_graph):
        return plan(config, hosts)
    context = config.context.model_copy(update={"phase": "Partitioner"})
    update = {"context": context, "num_partitions": config.workers}
    return (*plan(config.model_copy(update=update)), *launcher_phases(config, hosts, "<id of this run>"))


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        return True


class _ShortDumper(yaml.SafeDumper):
    """One line for each value, however long: nobody has to join a command again."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _one_line_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if len(text.splitlines()) > 1 or text != text.rstrip("\n") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Commands on few lines, but a script within one as a block."""
    is_flow = all(isinstance(item, (str, int)) and "\n" not in str(item) for item in items)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_flow)


def _one_line(dumper: yaml.SafeDumper, items: OneLine) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", items, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(list, _list)
_ShortDumper.add_representer(str, _one_line_text)
_ShortDumper.add_representer(list, _list)
_ShortDumper.add_representer(OneLine, _one_line)


def _phase(phase: PlanPhase, show: Callable[[Step], dict[str, Any]]) -> dict[str, Any]:
    steps = [show(step) for step in phase.steps]
    shown = {"phase": f"{phase.number}/{phase.of}", "title": phase.title, "pod": phase.pod, "steps": steps}
    if phase.at_end:
        shown["however_these_end"] = [show(step) for step in phase.at_end]
    return shown


def _titled(phase: dict[str, Any]) -> dict[str, Any]:
    """Number, title and pod in one line."""
    rest = {key: value for key, value in phase.items() if key not in ("phase", "title", "pod")}
    return {"phase": f"{phase['phase']} {phase['title']}, on {phase['pod']}", **rest}


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, InParallel):
        values = {"limit": step.limit, "ends_all": step.ends_all}
        return {"InParallel": {**values, "steps": [_step(each) for each in step.steps]}}
    if isinstance(step, IfKept):
        sides = {"missing": step.missing, "kept": step.kept}
        named = {side: [_step(each) for each in steps] for side, steps in sides.items() if steps}
        return {"IfKept": {"reference": step.reference, **named}}
    return {type(step).__name__: _plain(step)}


def _plain(value: Any) -> Any:
    match value:
        case Enum():
            return value.value
        case tuple() | list():
            return [_plain(item) for item in value]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        fields = {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {name: item for name, item in fields.items() if item not in (None, "", [], {})}
    return value
