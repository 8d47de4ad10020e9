"""What a run reports of itself reaches the ConfigMap in order, and never harms the run."""

import json
import queue
import threading
from collections.abc import Mapping

import pytest

from dglrun.kube.errors import Unavailable
from dglrun.workflow.progress import Reporter

SECONDS = 60.0


class SlowConfigMaps:
    """Takes the first report only when it is told to."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.is_asked, self.may_answer = threading.Event(), threading.Event()

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Note the stage."""
        self.is_asked.set()
        assert self.may_answer.wait(SECONDS)
        self.stages.append(json.loads(data["progress.json"])["stage"])


class LateConfigMaps:
    """An API server that is away for the first request."""

    def __init__(self) -> None:
        self.data: list[dict[str, object]] = []
        self.is_asked, self.is_back = threading.Event(), threading.Event()

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Note the keys once it is back."""
        self.is_asked.set()
        assert self.is_back.wait(SECONDS)
        self.data.append({key: json.loads(value) for key, value in data.items()})


class NoConfigMaps:
    """An API server that is away."""

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Refuse."""
        raise Unavailable("the API server does not answer")


def test_the_success_of_a_run_is_the_last_thing_reported() -> None:
    """It follows a report that is still on its way, and the run waits until it arrived."""
    cluster = SlowConfigMaps()
    reporter = Reporter(cluster, "job-report")
    reporter.stage("Collecting", "bring the output here")
    assert cluster.is_asked.wait(SECONDS)
    completing = threading.Thread(target=reporter.complete, args=("done",))
    completing.start()

    cluster.may_answer.set()
    completing.join(SECONDS)

    assert not completing.is_alive()
    assert cluster.stages == ["Collecting", "Completed"]


def test_a_partition_is_reported_when_the_api_server_is_back() -> None:
    """The run does not wait for that; newer progress goes with it."""
    cluster = LateConfigMaps()
    reporter = Reporter(cluster, "job-report")
    reporter.stage("Partitioning", "verify")
    assert cluster.is_asked.wait(SECONDS)

    reporter.partition({"edgeCut": 7})
    reporter.stage("Delivering", "deliver partitions")
    cluster.is_back.set()
    reporter.close(SECONDS)

    last = cluster.data[-1]
    assert last["partition.json"] == {"edgeCut": 7}
    assert last["progress.json"]["stage"] == "Delivering"  # type: ignore[index]


def test_a_success_that_cannot_be_reported_is_only_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """The training has ended well whether or not the API server takes the report."""
    reporter = Reporter(NoConfigMaps(), "job-report")

    reporter.complete("done")

    assert "note: progress is not reported: the API server does not answer" in capsys.readouterr().out


def test_a_run_outside_of_a_job_reports_nothing() -> None:
    """Without a report ConfigMap the end of a run waits for nothing."""
    cluster = SlowConfigMaps()

    Reporter(cluster, None).complete("done")

    assert not cluster.is_asked.is_set()


class KeptConfigMaps:
    """Keeps each report."""

    def __init__(self) -> None:
        self.reports: list[dict[str, object]] = []

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Keep it."""
        self.reports.append(json.loads(data["progress.json"]))


class OneByOne:
    """Hands each report over, without what each of them has."""

    def __init__(self) -> None:
        self._reports: queue.SimpleQueue[dict[str, object]] = queue.SimpleQueue()

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Keep it until it is taken."""
        found = json.loads(data["progress.json"])
        self._reports.put({key: found[key] for key in ("stage", "message", "replaces") if key in found})

    def take(self) -> dict[str, object]:
        """The oldest that was not taken."""
        return self._reports.get(timeout=SECONDS)


def test_what_the_script_tells_goes_with_the_next_report() -> None:
    """Epoch and loss stay to the end; percent is of its stage."""
    cluster = KeptConfigMaps()
    reporter = Reporter(cluster, "job-report")
    reporter.stage("Training", "started")
    reporter.values({"epoch": 3, "loss": 0.5, "percent": 40})
    reporter.values({"epoch": 4, "loss": float("nan")})

    reporter.complete("done")

    assert {key: cluster.reports[-1].get(key) for key in ("stage", "epoch", "loss", "percent")} == {
        "stage": "Completed",
        "epoch": 4,
        "loss": "0.5",
        "percent": None,
    }


def test_whether_lost_workers_are_replaced_is_reported_at_once() -> None:
    """The operator acts on it: a change waits for no other news, and no other stage says so."""
    cluster = OneByOne()
    reporter = Reporter(cluster, "job-report")
    reporter.stage("Training", "restore")
    cluster.take()

    reporter.replaces(True)
    assert cluster.take() == {"stage": "Training", "message": "restore", "replaces": True}
    reporter.replaces(False)
    assert cluster.take() == {"stage": "Training", "message": "restore"}
    reporter.replaces(True)
    cluster.take()
    reporter.stage("Collecting", "bring the output here")
    assert cluster.take() == {"stage": "Collecting", "message": "bring the output here"}
    reporter.close(SECONDS)


def test_a_script_that_tells_all_the_time_is_reported_now_and_then() -> None:
    """Each report is a write to the API server."""
    cluster = KeptConfigMaps()
    reporter = Reporter(cluster, "job-report")
    reporter.stage("Training", "started")

    for epoch in range(1000):
        reporter.values({"epoch": epoch})

    reporter.close(SECONDS)
    assert len(cluster.reports) <= 2
