"""What a launcher asks of an agent, as frozen values and as the JSON line that carries them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from dglrun.contract import names

THREADS = "<CPU limit of the container / trainers>"
"""Stands in a plan for a number that only the worker knows; the agent puts it in."""
INTERFACE = "<interface with the pod's IP>"
MASTER_PORT = "<free port of worker 0, from 29500>"
CAUSES_FOLDER = "<folder for causes of death>"
PROGRESS_FILE = "<file for progress>"


class SpecError(ValueError):
    """The text is no spec of this version; says which part and what was expected."""


class ProcessRole(Enum):
    """What a process does in DGL."""

    SERVER = "server"
    TRAINER = "trainer"


@dataclass(frozen=True)
class Process:
    """One process on a worker.

    Attributes:
        role: Server or trainer.
        index: Number within its role on this worker, from 0.
        rank: Rank in the world of trainers, None for a server.
        argv: Command, run in the folder in which the agent was started.
        env: Added to the container's environment; whole values may be placeholders of this module.
    """

    role: ProcessRole
    index: int
    rank: int | None
    argv: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def name(self) -> str:
        """`server 0` or `trainer 1`, unique on its worker."""
        return f"{self.role.value} {self.index}"


@dataclass(frozen=True)
class Spec:
    """All that one worker has to do.

    Attributes:
        run: Identity of the run; an agent serves one.
        ip: The pod's IP, which an interface must have.
        trainers: How many trainers share the CPU limit.
        processes: What to start, in this order.
        files: Texts to write first, by path.
        folders: Folders to make first.
        ports: Ports that must be free, or the run is refused.
        output: Folder that is looked at in the end: has it files, and which other workers share it?
        index: This worker's number.
        lease: Seconds without a word from the launcher after which everything is ended.
        grace: Seconds between SIGTERM and SIGKILL.
        shm: Where shared-memory segments appear.
        watched: What counts as activity of a process (`dglrun.agent.activity`); empty: nothing is watched.
    """

    run: str
    ip: str
    trainers: int
    processes: tuple[Process, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    output: str = ""
    index: int = 0
    lease: float = 30.0
    grace: float = 3.0
    shm: str = names.SHM_DIR
    watched: tuple[str, ...] = ()


def encode(spec: Spec) -> str:
    """Write a spec as one line of JSON."""
    return json.dumps({**asdict(spec), "processes": [_plain(process) for process in spec.processes]})


def decode(text: str) -> Spec:
    """Read what `encode` wrote.

    Raises:
        SpecError: it is something else.
    """
    try:
        raw = json.loads(text)
        return Spec(
            **{
                **raw,
                "processes": tuple(_process(item) for item in raw["processes"]),
                "folders": tuple(raw["folders"]),
                "ports": tuple(raw["ports"]),
                "watched": tuple(raw["watched"]),
            }
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SpecError(f"expected an agent's spec as one JSON line, got {text[:80]!r}: {error}") from error


def _plain(process: Process) -> dict[str, Any]:
    return {**asdict(process), "role": process.role.value}


def _process(raw: dict[str, Any]) -> Process:
    return Process(ProcessRole(raw["role"]), raw["index"], raw["rank"], tuple(raw["argv"]), dict(raw["env"]))
