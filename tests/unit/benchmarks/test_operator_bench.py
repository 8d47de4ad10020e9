"""What of the operator benchmark needs no cluster: figures, counting, stages, the launcher driver."""

import json
from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.domain import validate
from tests.benchmarks.operator_bench import bodies, figures, launcher_driver, page, requests_count, stages
from tests.benchmarks.operator_bench.figures import SideFigures
from tests.benchmarks.operator_bench.launcher_driver import Needs, Waiting
from tests.benchmarks.operator_bench.resources import CpuSample

ACCOUNT = "system:serviceaccount:home:under-test"


def side_figures(name: str = "ours", **given: Any) -> SideFigures:
    """Four jobs in ten seconds."""
    usual: dict[str, Any] = {
        "jobs": 4,
        "seconds": 10.0,
        "completed": [2.0, 4.0, 6.0, 10.0],
        "cpu": {"operator": 0.4, "apiserver": 2.0},
        "rss_start": 50.0,
        "rss_peak": 100.0,
        "rss_after": 60.0,
        "requests": {"patch dgljobs/status": 8, "create pods": 16},
        "events": 4,
    }
    return SideFigures(name, **(usual | given))


def record(
    verb: str, resource: str, subresource: str = "", *, user: str = ACCOUNT, ended: bool = True
) -> str:
    """A line of the audit log."""
    stage = "ResponseComplete" if ended else "ResponseStarted"
    about = {"resource": resource, **({"subresource": subresource} if subresource else {})}
    return json.dumps({"verb": verb, "stage": stage, "user": {"username": user}, "objectRef": about}) + "\n"


def test_figures_are_told_per_job_and_per_run() -> None:
    """Ratios do not depend on the size of the run."""
    found = side_figures()

    assert (found.pace, found.cpu_ms) == (0.4, 100.0)
    assert (found.share(0.5), found.share(0.95)) == (0.4, 1.0)
    assert (found.requests_per_job, found.status_writes_per_job) == (7.0, 2.0)


def test_two_sides_have_a_ratio() -> None:
    """The first over the second."""
    text = figures.table([side_figures(), side_figures("theirs", seconds=20.0)])

    assert "|  | ours | theirs | ratio |" in text
    assert "| jobs per second | 0.40 | 0.20 | 2.00 |" in text


def test_one_side_alone_has_no_ratio() -> None:
    """Without the peer the table has one column."""
    assert "| jobs per second | 0.40 |" in figures.table([side_figures()])


def test_without_an_audit_log_requests_are_left_out() -> None:
    """Another cluster's log is out of reach."""
    assert "requests" not in page.tables([side_figures(requests=None)])


def test_cpu_is_told_by_process_with_the_sum_of_what_belongs_to_the_run() -> None:
    """A busy machine changes jobs per second, and this sum much less."""
    text = figures.cpu_table([side_figures(cpu={"operator": 0.4, "apiserver": 2.0, "others": 9.0})])

    assert "| operator | 100 |" in text
    assert text.endswith("| all but others | 600 |")


def test_requests_stand_by_verb_and_resource_the_most_frequent_first() -> None:
    """Where the API server's work comes from."""
    lines = figures.requests_table([side_figures()]).splitlines()

    assert lines[2:] == ["| create pods | 4.00 |", "| patch dgljobs/status | 2.00 |"]


def test_the_page_says_by_which_command_it_was_written() -> None:
    """Nobody edits it by hand."""
    assert "make bench ONLY=operator" in page.page([side_figures()])


@pytest.mark.parametrize(("quantile", "expected"), [(0.5, 2.0), (0.95, 3.0), (0.01, 1.0)])
def test_a_quantile_is_a_value_that_was_measured(quantile: float, expected: float) -> None:
    """Nearest rank: no interpolation between jobs."""
    assert figures.nearest_rank([3.0, 1.0, 2.0], quantile) == expected


def test_only_the_account_s_own_finished_requests_count() -> None:
    """Other users, starts of watches and a line that is being written are left out."""
    lines = [
        record("create", "pods"),
        record("patch", "dgljobs", "status"),
        record("create", "pods", user="someone"),
        record("watch", "pods", ended=False),
        record("create", "pods").rstrip("\n"),
    ]

    assert requests_count.count(lines, ACCOUNT) == {"create pods": 1, "patch dgljobs/status": 1}


def test_cpu_of_the_rest_of_the_machine_is_told() -> None:
    """Noise from outside is seen in the table."""
    used = CpuSample({"operator": 3.0}, 10.0).since(CpuSample({"operator": 1.0}, 4.0))

    assert used == {"operator": 2.0, "others": 4.0}


def test_the_jobs_are_valid_and_have_as_many_pods() -> None:
    """Launcher, partitioner and two workers beside launcher and three workers."""
    ours, theirs = bodies.dgl_job("job", "run"), bodies.mpi_job("job", "run")
    job = DGLJob.parse({**ours, "metadata": {**ours["metadata"], "namespace": "default", "uid": "1"}})
    replicas = [theirs["spec"]["mpiReplicaSpecs"], ours["spec"]["dglReplicaSpecs"]]

    assert not validate.problems(job)
    assert [sum(role["replicas"] for role in each.values()) for each in replicas] == [4, 4]


def test_every_document_of_kwok_s_configuration_is_whole() -> None:
    """Each Stage names its kind, and no placeholder is left in its template."""
    documents = [json.loads(text) for text in stages.config().split("\n---\n")]

    assert [each["kind"] for each in documents] == ["KwokConfiguration", *["Stage"] * (len(documents) - 1)]
    assert "@" not in stages.config()


def test_a_launcher_waits_for_partitioner_workers_and_addresses() -> None:
    """Each one alone is not enough."""
    needs = Needs(workers=2, partitioner=True, addresses=True)
    launcher = {"status": {"startTime": "2026-11-21T12:00:00Z"}}
    whole: dict[str, Any] = {
        "launcher": launcher,
        "ready": {"a", "b"},
        "partitioned": True,
        "addressed": True,
    }
    lacking: list[dict[str, Any]] = [
        {"launcher": {}},
        {"ready": {"a"}},
        {"partitioned": False},
        {"addressed": False},
    ]

    assert Waiting(**whole).may_start(needs)
    assert not any(Waiting(**(whole | lack)).may_start(needs) for lack in lacking)


def test_a_launcher_of_the_peer_waits_for_its_workers_only() -> None:
    """It has no partitioner and no address file that arrives later."""
    launcher = {"status": {"startTime": "2026-11-21T12:00:00Z"}}

    assert Waiting(launcher=launcher, ready={"a", "b", "c"}).may_start(Needs(workers=3))


def test_a_started_launcher_has_ended_init_containers_and_a_running_main_container() -> None:
    """The status that a kubelet would report."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "then"}
    waiting = {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}
    init = {"name": "watcher-loop-worker", "state": {"running": {}}}
    status = {
        "conditions": [scheduled, {"type": "Ready", "status": "False"}],
        "containerStatuses": [waiting],
        "initContainerStatuses": [init],
    }

    found = launcher_driver.started(status)

    assert found["phase"] == "Running"
    assert [each["status"] for each in found["conditions"]] == ["True", "True"]
    assert "running" in found["containerStatuses"][0]["state"]
    assert found["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 0
