"""The examples of manifests/examples train a real model; distributed is as good as one process."""

import json
import re
from statistics import mean

import pytest

from tests.e2e.accuracy import ABOVE_MAJORITY, FINAL
from tests.e2e.conftest import Submit
from tests.e2e.figures import Figures
from tests.e2e.jobs import Job, example, main_container, moment, tiny
from tests.e2e.kubectl import Object
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

SEEDS = (0, 1, 2)
WITHIN = 0.03

RANK = re.compile(
    r"rank (?P<rank>\d+) of (?P<size>\d+): part (?P<part>\d+), (?P<nodes>\d+) training nodes, "
    r"parameters (?P<hash>[0-9a-f]{64})"
)


def seeded(name: str, seed: int) -> Object:
    """An example with a seed of its own."""
    return example(name, f"{name}-{seed}", extra_args=("--", "--seed", str(seed)))


def trained(job: Job) -> tuple[float, float, str]:
    """Wait for the end of a job; returns test accuracy, accuracy of the majority class, and the log."""
    job.wait_phase("Completed", seconds=900)
    log = job.kubectl.logs(job.launcher, _main(job))
    wait_for("the launcher's final phase", lambda: _is_left(job), 60)
    found = FINAL.search(log)
    assert found, log[-3000:]
    return float(found[1]), float(found[2]), log


def _is_left(job: Job) -> bool | None:
    """Whether the launcher is still there when its pod's phase follows its containers, with its log."""
    pod = job.kubectl.get("pod", job.launcher)
    assert pod is not None, "the launcher was deleted with its log"
    assert "deletionTimestamp" not in pod["metadata"]
    return True if pod["status"]["phase"] == "Succeeded" else None


def _main(job: Job) -> str:
    pod = job.kubectl.get("pod", job.launcher)
    assert pod is not None
    name: str = pod["spec"]["containers"][0]["name"]
    return name


def _running_workers(job: Job) -> int:
    count: int = job.status()["replicaStatuses"]["Worker"]["running"]
    return count


def ranks(log: str) -> list[dict[str, str]]:
    """What each rank says of itself, in the order of the ranks."""
    return sorted((m.groupdict() for m in RANK.finditer(log)), key=lambda rank: int(rank["rank"]))


def test_one_process_learns(submit: Submit, accuracies: dict[str, list[float]]) -> None:
    """The Skip example trains in the launcher alone."""
    job = submit(seeded("skip", SEEDS[0]))

    accuracy, majority, _log = trained(job)

    assert accuracy >= majority + ABOVE_MAJORITY
    assert set(job.status()["replicaStatuses"]) >= {"Launcher"}
    accuracies.setdefault("skip", []).append(accuracy)


def test_two_workers_learn_one_model(
    submit: Submit, measured: Figures, accuracies: dict[str, list[float]]
) -> None:
    """World size, parts and parameters are those of one model over two parts (not two models)."""
    job = submit(seeded("dgl-api", SEEDS[0]))

    accuracy, majority, log = trained(job)

    told = ranks(log)
    assert [rank["rank"] for rank in told] == ["0", "1"]
    assert {rank["size"] for rank in told} == {"2"}
    assert {rank["part"] for rank in told} == {"0", "1"}
    assert len({rank["hash"] for rank in told}) == 1
    assert accuracy >= majority + ABOVE_MAJORITY
    accuracies.setdefault("dgl-api", []).append(accuracy)
    status = job.status()
    took = moment(status["completionTime"]) - moment(status["startTime"])
    measured.add("job-dgl-api", took.total_seconds(), "s", "DGL-API example, from apply to Completed")
    wait_for("workers gone", lambda: True if _running_workers(job) == 0 else None, 60)


def test_the_model_outlives_the_workers(submit: Submit) -> None:
    """What rank 0 wrote is in the launcher's workspace before the job is Completed; one worker is enough."""
    job = submit(example("single-worker"))

    accuracy, majority, log = trained(job)

    assert accuracy >= majority + ABOVE_MAJORITY
    assert re.search(r"model\.pt", log)
    told = ranks(log)
    assert [(rank["rank"], rank["size"], rank["part"]) for rank in told] == [("0", "1", "0")]


def test_the_model_arrives_on_the_launcher_byte_by_byte(submit: Submit) -> None:
    """What stands in the launcher's workspace when dglrun has ended is what rank 0 wrote on its worker."""
    body = tiny("bytes")
    launcher = main_container(body, "Launcher")
    after = 'test "$DGL_OPERATOR_PHASE_ENV" = Partitioner || sha256sum /dgl_workspace/output/model.pt'
    launcher["command"] = ["sh", "-c", f'set -e; dglrun "$@"; {after}', "sh"]
    job = submit(body)

    job.wait_phase("Completed")

    log = job.kubectl.logs(job.launcher, "main")
    wrote = re.findall(r"wrote model\.pt (\w{64})", log)
    arrived = re.findall(r"^(\w{64})  .*/model\.pt", log, re.MULTILINE)
    assert len(wrote) == 1, log[-3000:]
    assert wrote == arrived


def test_distributed_is_as_good_as_one_process(
    submit: Submit, accuracies: dict[str, list[float]], measured: Figures
) -> None:
    """Mean of three seeds, within three points; the jobs of the other seeds run at the same time."""
    assert set(accuracies) == {"skip", "dgl-api"}, "run this file as a whole"
    others = [(name, submit(seeded(name, seed))) for name in accuracies for seed in SEEDS[1:]]
    for name, job in others:
        accuracy, majority, _log = trained(job)
        assert accuracy >= majority + ABOVE_MAJORITY
        accuracies[name].append(accuracy)
    one, many = mean(accuracies["skip"]), mean(accuracies["dgl-api"])

    assert len(accuracies["skip"]) == len(accuracies["dgl-api"]) == len(SEEDS)
    assert abs(one - many) <= WITHIN, json.dumps(accuracies)
    measured.add("accuracy-skip", one, "", "test accuracy, one process, mean of 3 seeds")
    measured.add("accuracy-dgl-api", many, "", "test accuracy, DGL-API with 2 workers, mean of 3 seeds")
