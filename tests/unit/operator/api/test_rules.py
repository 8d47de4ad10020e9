"""What the operator refuses, in the words of the API server."""

import pytest

from dgl_operator.api import rules
from dgl_operator.api.v1alpha1 import DGLJob
from tests.support.job_cases import BROKEN_CONTAINERS, BROKEN_RULES, GOOD, Bad, Object, a_job, role


@pytest.mark.parametrize("bad", BROKEN_RULES + BROKEN_CONTAINERS, ids=lambda bad: bad.what)
def test_a_bad_job_is_refused_with_its_reason(bad: Bad) -> None:
    """The line names the field, what was expected, and what was found."""
    found = rules.violations(DGLJob.parse(bad.job))

    assert any(line.startswith(bad.where) and bad.says in line and ", got " in line for line in found), found


@pytest.mark.parametrize("job", GOOD.values(), ids=GOOD)
def test_a_good_job_is_accepted(job: Object) -> None:
    """No rule is broken by what may be."""
    assert rules.violations(DGLJob.parse(job)) == ()


def test_each_rule_is_broken_by_a_case() -> None:
    """No rule is without its test; that a Launcher has to be there is the models' business."""
    jobs = [DGLJob.parse(bad.job) for bad in BROKEN_RULES]

    never = [rule.cel for rule in rules.RULES if all(rule.holds(job) for job in jobs)]

    assert never == ["'Launcher' in self"]


def test_all_broken_rules_are_named_at_once() -> None:
    """A job with two faults gets two lines."""
    job = DGLJob.parse(a_job("Sage", roles={"Launcher": role(3), "Worker": role(2)}))

    assert len(rules.violations(job)) == 2


def test_quotes_in_a_message_do_not_end_a_cel_string() -> None:
    """Names of roles stand in messages; a quote in one must not change the expression."""
    rule = rules.Rule("spec", "true", lambda _: True, "it's \\ here", lambda _: "", "'x'")

    assert rule.message_cel == "'it\\'s \\\\ here, got ' + 'x'"
