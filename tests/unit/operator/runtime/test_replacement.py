"""A worker that is lost in the training, against an API server in memory."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.status_writer import OutdatedSchema
from dglrun.contract import names
from tests.support.jobs import a_pod_status
from tests.unit.operator.runtime.test_attempts import disrupted
from tests.unit.operator.runtime.test_reconcile import Operator, training, worker_status

WORKER = "sage-worker-1"


def going_on() -> Operator:
    """A job that trains, whose launcher goes on when a lost worker is replaced."""
    operator = Operator()
    training(operator)
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    report["data"] = {"progress.json": json.dumps({"stage": "Training", "replaces": True})}
    operator.wait(60)
    operator.settle()
    return operator


def uid(operator: Operator) -> str:
    found: str = operator.cluster.objects[Kind.POD, "default", WORKER]["metadata"]["uid"]
    return found


def may_reach(operator: Operator) -> list[str]:
    """The pods that the launcher may exec into."""
    role = operator.cluster.objects[Kind.ROLE, "default", "sage-launcher"]
    found: list[str] = next(
        rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["pods/exec"]
    )
    return found


@pytest.mark.parametrize("how", ["evicted", "deleted", "gone"])
def test_a_lost_worker_is_replaced_alone(how: str) -> None:
    """Another pod of the same attempt takes its name; all others stay, and the loss is counted."""
    operator = going_on()
    before = uid(operator)
    if how == "evicted":
        operator.pod(WORKER, disrupted())
    elif how == "deleted":
        operator.cluster.objects[Kind.POD, "default", WORKER]["metadata"]["deletionTimestamp"] = (
            "2026-11-21T12:01:00Z"
        )
        operator.settle()
        operator.cluster.remove(Kind.POD, "default", WORKER)
    else:
        operator.cluster.remove(Kind.POD, "default", WORKER)

    operator.settle()

    assert uid(operator) != before
    assert (operator.status["phase"], operator.status.get("attempt", 0)) == ("Training", 0)
    assert operator.status["restarts"]["workers"] == 1
    assert operator.status["attempts"][-1]["lostWorkers"] == [WORKER]
    assert operator.names(Kind.POD) >= {"sage-launcher", "sage-worker-0", WORKER}
    assert operator.reasons().count("WorkerLost") == 1


def test_the_replacement_ends_the_loss_and_is_published() -> None:
    """Its address stands in the files that scripts read."""
    operator = going_on()
    operator.cluster.remove(Kind.POD, "default", WORKER)
    operator.settle()

    operator.pod(WORKER, a_pod_status("Running", ip="10.0.0.99", ready=True))
    operator.wait(10)
    operator.settle()

    assert operator.status["attempts"][-1].get("lostWorkers", []) == []
    assert operator.status["message"] == "training on 2 workers"
    assert f"10.0.0.99 30050 {WORKER}" in operator.config()["hostfile"]


def test_the_launcher_may_reach_the_others_and_the_new_one() -> None:
    """And never a pod of the name that is not the job's."""
    operator = going_on()
    operator.cluster.objects[Kind.POD, "default", WORKER]["metadata"]["deletionTimestamp"] = (
        "2026-11-21T12:01:00Z"
    )
    operator.settle()
    meanwhile = may_reach(operator)

    operator.cluster.remove(Kind.POD, "default", WORKER)
    operator.settle()

    assert meanwhile == ["sage-worker-0"]
    assert may_reach(operator) == ["sage-worker-0", WORKER]


def test_the_loss_is_written_before_another_pod_is_made() -> None:
    """An operator that ends in between counts it all the same."""
    operator = going_on()
    operator.cluster.remove(Kind.POD, "default", WORKER)
    create = operator.cluster.create
    counts: list[int] = []

    def noted(body: Json, **more: Any) -> Json:
        counts.append(operator.status.get("restarts", {}).get("workers", 0))
        return create(body, **more)

    operator.cluster.create = noted  # type: ignore[method-assign]
    operator.settle()

    assert set(counts) == {1}


def test_an_operator_that_restarts_counts_a_loss_once() -> None:
    """What it must know stands in the status."""
    operator = going_on()
    operator.cluster.remove(Kind.POD, "default", WORKER)
    for _ in range(3):
        operator.restart()
        operator.look()
    operator.pod(WORKER, worker_status(1))
    operator.restart()
    operator.wait(10)
    operator.settle()

    assert operator.status["restarts"]["workers"] == 1
    assert operator.status.get("attempt", 0) == 0


def test_a_loss_that_a_fresh_read_does_not_show_is_none() -> None:
    """A watch may be late."""
    operator = going_on()
    pod = operator.cluster.objects[Kind.POD, "default", WORKER]
    operator.unsee(pod)

    operator.reconcile(("default", "sage"))  # type: ignore[arg-type]

    assert "workers" not in operator.status.get("restarts", {})
    assert uid(operator) == pod["metadata"]["uid"]


def test_a_launcher_is_told_how_long_to_wait() -> None:
    """Longer than the operator waits, which says then what has failed."""
    operator = going_on()
    launcher = operator.cluster.objects[Kind.POD, "default", "sage-launcher"]
    env = {each["name"]: each["value"] for each in launcher["spec"]["containers"][0]["env"]}

    assert float(env["DGL_OPERATOR_REPLACEMENT_TIMEOUT_SECONDS"]) > 1800
    worker = operator.cluster.objects[Kind.POD, "default", WORKER]
    assert "DGL_OPERATOR_REPLACEMENT_TIMEOUT_SECONDS" not in json.dumps(worker)


def test_a_crd_that_drops_the_count_stalls_the_job() -> None:
    """Nothing would bound the losses."""
    operator = going_on()
    operator.cluster.remove(Kind.POD, "default", WORKER)
    write = operator.cluster.write_status

    def dropping(raw: Mapping[str, Any], status: Json) -> Json:
        restarts = {key: value for key, value in (status.get("restarts") or {}).items() if key != "workers"}
        return write(raw, {**status, "restarts": restarts})

    operator.cluster.write_status = dropping  # type: ignore[assignment, method-assign]
    with pytest.raises(OutdatedSchema):
        operator.look()

    assert WORKER not in operator.names(Kind.POD)
    assert names.LABEL_ATTEMPT in json.dumps(operator.cluster.objects[Kind.POD, "default", "sage-launcher"])
