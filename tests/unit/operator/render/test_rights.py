"""Rights: only on pods that exist and are the job's own."""

import pytest

from dgl_operator.render import desired
from dglrun.contract.names import Mode
from tests.support.jobs import a_job

LAUNCHER, PARTITIONER = "sage-launcher", "sage-partitioner"
WORKERS = ("sage-worker-0", "sage-worker-1")
REPORT = ("configmaps", ("sage-report",), ("get", "patch"))
EXEC = ("get", "create")
WATCH = ("get", "list", "watch")


def granted(mode: Mode, *own: str) -> dict[str, tuple[tuple[object, ...], ...]]:
    """The rules by Role: resource, names and verbs."""
    found = desired.rights(a_job(mode=mode), frozenset(own))
    return {
        body["metadata"]["name"]: tuple(
            (rule["resources"][0], tuple(rule["resourceNames"]), tuple(rule["verbs"]))
            for rule in body["rules"]
        )
        for body in found
        if body["kind"] == "Role"
    }


def test_no_right_is_given_before_a_pod_is_there() -> None:
    """An object of the pod's name may be somebody else's."""
    assert [granted(mode) for mode in Mode] == [{}] * 4


def test_the_launcher_and_the_partitioner_get_rights_on_each_other_and_no_other_pod() -> None:
    """The partitioner delivers into the launcher, whose init container watches it; it reads its own image."""
    both = (LAUNCHER, PARTITIONER)

    assert granted(Mode.DGL_API, PARTITIONER) == {LAUNCHER: (("pods", (PARTITIONER,), WATCH), REPORT)}
    assert granted(Mode.DGL_API, LAUNCHER)[PARTITIONER][0] == ("pods", (LAUNCHER,), ("get",))
    assert granted(Mode.DGL_API, *both)[PARTITIONER] == (
        ("pods", both, ("get",)),
        ("pods/exec", (LAUNCHER,), EXEC),
        REPORT,
    )
    assert granted(Mode.DGL_API, *both)[LAUNCHER] == (("pods", (PARTITIONER,), WATCH), REPORT)
    assert granted(Mode.DGL_API, *both, WORKERS[0]) == granted(Mode.DGL_API, *both)


@pytest.mark.parametrize("mode", [Mode.DGL_API, Mode.DIST_PARMETIS])
def test_the_workers_are_named_once_all_are_there(mode: Mode) -> None:
    """A Role of a thousand names is not written a thousand times."""
    before = granted(mode, LAUNCHER, WORKERS[0])
    after = granted(mode, LAUNCHER, *WORKERS)

    assert LAUNCHER not in before
    assert after[LAUNCHER] == (("pods", WORKERS, WATCH), ("pods/exec", WORKERS, EXEC), REPORT)


def test_a_skip_job_may_report_once_its_launcher_is_there() -> None:
    """And nothing else."""
    assert granted(Mode.SKIP, LAUNCHER, PARTITIONER, *WORKERS) == {LAUNCHER: (REPORT,)}


def test_a_right_is_given_by_role_and_binding_and_taken_away_in_the_other_order() -> None:
    """A binding without its Role grants nothing."""
    job = a_job()
    kinds = [body["kind"] for body in desired.rights(job, frozenset({LAUNCHER, PARTITIONER}))]

    assert kinds == ["Role", "RoleBinding"] * 2
    assert desired.rights_names(job) == (
        ("RoleBinding", LAUNCHER),
        ("Role", LAUNCHER),
        ("RoleBinding", PARTITIONER),
        ("Role", PARTITIONER),
    )
