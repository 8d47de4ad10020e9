"""The matrix as a page of the reference."""

from collections.abc import Sequence
from pathlib import Path

from dgl_operator.api.v1alpha1 import Phase
from dglrun.contract.names import Role
from tests.faults import cells
from tests.faults.cells import PHASES, Cell, End, Fault
from tests.faults.matrix import Outcome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"
NOTES = (cells.NOTHING_RUNS, cells.NO_CONTAINER, cells.ALL_RUNS, cells.HAS_ENDED)

_HEAD = """# What becomes of a job when a pod fails

Written by `make faults`, which plays every cell on a real API server and checks it. Rules and words:
[attempts](operator.md#attempts).

A job with two workers and `backoffLimit: 0` meets one fault, while it is in the phase of the column. In
the cell is what becomes of it:

- **Failed** with the reason of its condition, whose message names the pod. With `backoffLimit: 1` a job
  whose container exits, is killed or fails in an init container is Completed by its second attempt, which
  counts as a failure; that is checked, too. Images and scheduling have `startDeadlineSeconds`, and no
  other attempt after it.
- **new attempt**: all pods are made anew, this counts towards no limit, and the job is Completed.
- **new pod**: this pod alone is made anew within the attempt, and the job is Completed.
- **Completed**: the fault changes nothing.

The end, or the attempt or pod that makes the fault good, is there within 30 s of the fault (of a lost
node: of its taint). One thing takes longer: names of pods on a lost node are free a minute after their
grace period, and pods of the next attempt, or the new pod, wait for them.
"""

_REPLACES = """## Worker of a launcher that goes on

While it trains, dglrun says that it waits for the new pod of a lost worker (`progress.replaces`,
[lost workers](operator.md#lost-workers)). The tables above are of a launcher that does not, such as one of an
older job image, or one that has ended its training. Where it does, a new pod counts as `restarts.workers`:

| fault | Training |
| --- | --- |"""

_FEET = """
Workers that are there from the beginning, and a launcher that partitions, are those of DistParMETIS; the
other cells are of DGL-API. The pods are played: the test reports what a kubelet reports, binds them to
nodes that are objects only, and lets them end as real ones do. API server, evictions, garbage collection
and the deletion of pods from a tainted node are real. What only a kubelet and a kernel do (an exit, an
OOM kill, an image that cannot be pulled, an init container that fails) is checked in each role on a real
node, too.
"""


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page with what was found."""
    tables = [_table(role, outcomes) for role in (Role.LAUNCHER, Role.PARTITIONER, Role.WORKER)]
    tables.append(_replacements(outcomes))
    notes = "\n".join(f"- {_mark(note)}: {note}." for note in NOTES)
    return "\n".join([_HEAD, *tables, f"Cells that cannot be:\n\n{notes}\n", _FEET.lstrip("\n")])


def expected() -> str:
    """Return the page with what must be found."""
    return page([Outcome(cell, "", 0.0) for cell in cells.cells()])


def _table(role: Role, outcomes: Sequence[Outcome]) -> str:
    head = ["fault", *(phase.value for phase in PHASES)]
    rows = [[fault.value, *(_text(role, phase, fault, outcomes) for phase in PHASES)] for fault in Fault]
    lines = [head, ["---"] * len(head), *rows]
    return f"## {role.value}\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _replacements(outcomes: Sequence[Outcome]) -> str:
    """Workers of a launcher that goes on without them."""
    found = [each for each in outcomes if each.cell.replaces]
    rows = [
        f"| {fault.value} | {_became([each for each in found if each.cell.fault is fault])} |"
        for fault in cells.IN_TRAINING
    ]
    return "\n".join([_REPLACES, *rows]) + "\n"


def _text(role: Role, phase: Phase, fault: Fault, outcomes: Sequence[Outcome]) -> str:
    if why := cells.impossible(role, phase, fault):
        return _mark(why)
    return _became([e for e in outcomes if _place(e.cell) == (role, phase, fault) and not e.cell.replaces])


def _became(found: Sequence[Outcome]) -> str:
    """What the cells of one place say."""
    if any(each.problem for each in found):
        return "**NOT AS IT MUST BE**"
    return _said(next((each.cell for each in found if not each.cell.backoff_limit), None))


def _said(cell: Cell | None) -> str:
    if cell is None:
        return "not played"
    wanted = cell.expected
    if wanted.end is End.FAILED:
        return f"Failed: `{wanted.reason}`"
    return str(wanted.end.value).removesuffix(", Completed")


def _place(cell: Cell) -> tuple[Role, Phase, Fault]:
    return cell.role, cell.phase, cell.fault


def _mark(note: str) -> str:
    return f"({NOTES.index(note) + 1})"
