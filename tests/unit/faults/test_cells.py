"""The matrix: whole, with a name for each cell, and with the page that is written from it."""

import pytest

from dgl_operator.api.v1alpha1 import Phase
from dglrun.contract.names import Role
from tests.faults import cells, page
from tests.faults.cells import PHASES, Cell, End, Fault
from tests.faults.matrix import Outcome


def test_every_place_of_the_matrix_is_played_or_has_a_reason_why_it_cannot_be() -> None:
    """No cell is left out in silence."""
    played = {(cell.role, cell.phase, cell.fault) for cell in cells.cells()}

    for role in Role:
        for phase in PHASES:
            for fault in Fault:
                assert ((role, phase, fault) in played) != bool(cells.impossible(role, phase, fault))


def test_the_gate_plays_each_fault_in_each_phase_of_each_role() -> None:
    """Only repeats are left to `make faults`, and each role keeps some."""
    gate, whole = list(cells.of_the_gate()), list(cells.cells())

    assert [cell for cell in gate if not cell.backoff_limit] == [c for c in whole if not c.backoff_limit]
    assert {cell.role for cell in gate if cell.backoff_limit} == set(Role)
    assert len(gate) < len(whole)


def test_each_cell_has_a_name_of_its_own() -> None:
    """A job is named by it."""
    names = [cell.name for cell in cells.cells()]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("cell", "end"),
    [
        (Cell(Role.LAUNCHER, Phase.STARTING, Fault.DELETED), End.REPLACED),
        (Cell(Role.LAUNCHER, Phase.PARTITIONING, Fault.REJECTED), End.RETRIED),
        (Cell(Role.PARTITIONER, Phase.TRAINING, Fault.DELETED), End.UNDISTURBED),
        (Cell(Role.WORKER, Phase.PARTITIONED, Fault.EVICTED), End.REPLACED),
        (Cell(Role.WORKER, Phase.TRAINING, Fault.NODE_LOST), End.RETRIED),
        (Cell(Role.WORKER, Phase.TRAINING, Fault.NODE_LOST, replaces=True), End.REPLACED),
        (Cell(Role.WORKER, Phase.TRAINING, Fault.OOM, replaces=True), End.FAILED),
        (Cell(Role.WORKER, Phase.TRAINING, Fault.OOM), End.FAILED),
        (Cell(Role.WORKER, Phase.TRAINING, Fault.OOM, backoff_limit=1), End.RETRIED),
        (Cell(Role.WORKER, Phase.PARTITIONED, Fault.IMAGE, backoff_limit=1), End.FAILED),
    ],
)
def test_what_must_follow_is_what_the_reference_says(cell: Cell, end: End) -> None:
    """A pod without work is replaced, one with work costs an attempt, a failure counts."""
    assert cell.expected.end is end


def test_the_page_of_the_reference_is_that_of_this_matrix() -> None:
    """`make faults` writes it, and only when all cells were played."""
    assert page.PAGE.read_text() == page.expected()


def test_a_cell_that_was_not_as_it_must_be_shows_in_the_page() -> None:
    """The page never says more than was found."""
    (cell, *rest) = cells.cells()

    text = page.page(
        [Outcome(cell, "Failed instead of Completed", 1.0), *(Outcome(each, "", 1.0) for each in rest)]
    )

    assert text.count("NOT AS IT MUST BE") == 1
