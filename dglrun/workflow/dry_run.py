"""A plan as YAML: what `--dry-run` prints, and with `--verbose` all that the executor performs."""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any

import yaml

from dglrun.workflow import plan_summary
from dglrun.workflow.config import RunConfig
from dglrun.workflow.plan import launcher_phases, placeholder_hosts, plan
from dglrun.workflow.plan_summary import OneLine
from dglrun.workflow.steps import InParallel, PlanPhase, Step


def as_yaml(config: RunConfig) -> str:
    """The plan of this pod; outside of a job that of all pods."""
    shown = {"role": config.context.phase, "job": config.context.job}
    return full(phases(config), shown) if config.verbose else short(phases(config), shown)


def full(phases: tuple[PlanPhase, ...], head: Mapping[str, str]) -> str:
    """All values of all steps: commands as lists of arguments, environments, specs."""
    shown = {**head, "phases": [_phase(phase, [_step(step) for step in phase.steps]) for phase in phases]}
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=True)


def short(phases: tuple[PlanPhase, ...], head: Mapping[str, str]) -> str:
    """Each step in a user's terms; every command is one line, to be copied into a shell."""
    steps = [[plan_summary.of(step) for step in phase.steps] for phase in phases]
    shown = {**head, "phases": [_phase(phase, found) for phase, found in zip(phases, steps, strict=True)]}
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


def _phase(phase: PlanPhase, steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"phase": f"{phase.number}/{phase.of}", "title": phase.title, "pod": phase.pod, "steps": steps}


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, InParallel):
        return {"InParallel": {"limit": step.limit, "steps": [_step(each) for each in step.steps]}}
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
