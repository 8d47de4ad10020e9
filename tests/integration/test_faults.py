"""The matrix of faults: every role, phase and fault that can be; `make faults` plays more repeats."""

import pytest

from tests.faults import matrix
from tests.faults.cells import of_the_gate

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_every_fault_in_every_phase_of_every_role_ends_as_the_reference_says() -> None:
    """In 30 s, or made good by a new pod or attempt; docs/reference/faults.md shows the same cells."""
    found = matrix.all_of(list(of_the_gate()))

    assert {each.cell.name: each.problem for each in found if each.problem} == {}
