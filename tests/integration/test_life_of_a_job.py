"""A job's life on a real API server, its pods' status played; the operator is the real process."""

from typing import Any

import pytest

from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import hostfile
from dglrun.contract.names import Mode
from tests.integration.conftest import Submit
from tests.support.api_client import ApiServer
from tests.support.jobs import ended, running
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import a_played_job
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

PHASES = ["Pending", "Starting", "Partitioning", "Partitioned", "Training", "Completed"]


def test_a_dgl_api_job_goes_through_all_phases(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """Each phase after Pending makes one event, and the clean-up leaves what has ended."""
    job = submit()

    job.reach("Completed")
    job.await_pods("launcher", "partitioner")

    reasons = [event["reason"] for event in api.events(job.namespace, job.name)]
    assert sorted(reasons) == sorted(["Accepted", "WorkersReady", *PHASES[1:]])
    status = job.status
    assert status["startTime"] <= status["completionTime"]
    assert {each["type"]: each["status"] for each in status["conditions"]} == {
        "Accepted": "True",
        "Partitioned": "True",
        "WorkersReady": "False",
        "LauncherStarted": "True",
        "Completed": "True",
    }


def test_a_skip_job_goes_from_pending_to_completed(operator: OperatorProcess, submit: Submit) -> None:
    """With its launcher alone."""
    job = submit(mode=Mode.SKIP)
    job.await_phase("Pending")

    job.play("launcher", "Running", ip="10.9.0.1")
    job.await_phase("Training")
    job.play("launcher", "Succeeded")

    job.await_phase("Completed")
    assert job.pods() == {"sage-launcher"}


def test_a_dist_parmetis_job_partitions_on_its_workers(operator: OperatorProcess, submit: Submit) -> None:
    """No partitioner pod; the phase comes from the launcher's report."""
    job = submit(mode=Mode.DIST_PARMETIS)
    job.await_phase("Pending")
    job.await_pods("launcher", "worker-0", "worker-1")

    job.train()
    job.await_phase("Partitioning")
    _report(job.api, job.namespace, '{"stage": "Training"}')
    job.await_phase("Training")
    job.play("launcher", "Succeeded")

    job.await_phase("Completed")


def _report(api: ApiServer, namespace: str, progress: str, partition: str = "") -> None:
    body: Json = {"data": {"progress.json": progress, "partition.json": partition}}
    api.call("PATCH", Kind.CONFIG_MAP.path(namespace, "sage-report"), body, "application/merge-patch+json")


def test_the_address_files_are_whole_before_the_launcher_is_told(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """With 12 workers in integer order; the launcher's annotation follows."""
    job = submit(workers=12).reach("Partitioned")
    for index in range(11):
        job.play(f"worker-{index}", "Running", ip=f"10.9.1.{index}", ready=True)
    wait_for(
        "11 ready", lambda: True if "11 of 12" in job.condition("WorkersReady").get("message", "") else None
    )
    almost = _data(api, job.namespace)
    before = wait_for("the annotation is settled", lambda: _settled(api, job.namespace))

    job.play("worker-11", "Running", ip="10.9.1.11", ready=False)
    wait_for("annotation", lambda: True if _annotation(api, job.namespace) != before else None)
    whole = _data(api, job.namespace)

    assert almost["hostfile"] == almost["ipconfig"] == ""
    hosts = hostfile.parse_hosts(whole["hostfile"])
    assert [(host.name, host.ip) for host in hosts] == [
        (f"sage-worker-{index}", f"10.9.1.{index}") for index in range(12)
    ]
    assert [worker.index for worker in hostfile.parse_workers(whole["ipconfig"])] == list(range(12))
    assert whole["leadfile"] == "10.9.0.1 30050 sage-launcher\n"
    assert whole["partfile"] == "10.9.0.2 30050 sage-partitioner\n"


def _data(api: ApiServer, namespace: str) -> dict[str, str]:
    found = api.get(Kind.CONFIG_MAP, namespace, "sage-config")
    assert found is not None
    return dict(found["data"])


def _settled(api: ApiServer, namespace: str) -> str | None:
    """The annotation after its second writing, a second after the first."""
    found = _annotation(api, namespace)
    return None if found.endswith(".first") else found


def _annotation(api: ApiServer, namespace: str) -> str:
    found = api.get(Kind.POD, namespace, "sage-launcher")
    assert found is not None
    return str(found["metadata"]["annotations"]["dgl-operator/config-hash"])


def test_a_job_ends_although_a_sidecar_of_its_launcher_runs_on(
    operator: OperatorProcess, submit: Submit
) -> None:
    """And the clean-up takes the launcher, which would hold its node."""
    job = submit().reach("Training")

    job.play("launcher", "Running", ip="10.9.0.1", containers=[ended(), running("proxy")])

    job.await_phase("Completed")
    job.await_pods("partitioner")


@pytest.mark.parametrize(("code", "phase"), [(0, "Completed"), (1, "Failed")])
def test_a_launcher_that_has_ended_stays_with_its_log(
    operator: OperatorProcess, submit: Submit, code: int, phase: str
) -> None:
    """Although its pod's phase is Running for another second or two, as kubelets report it."""
    job = submit().reach("Training")

    job.play("launcher", "Running", ip="10.9.0.1", containers=[ended(code=code)])
    job.await_phase(phase)
    job.await_pods("launcher", "partitioner")

    job.play("launcher", "Succeeded" if code == 0 else "Failed", containers=[ended(code=code)])
    assert job.pods() == {f"{job.name}-launcher", f"{job.name}-partitioner"}


def test_what_the_job_reports_reaches_its_status(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """Progress and partition quality, nonsense left out and told of."""
    job = submit().reach("Training")
    _report(api, job.namespace, '{"stage": "Training", "percent": 40}', '{"numParts": 2, "edgeCut": "12.3%"}')
    wait_for("progress", lambda: job.status.get("progress"))
    status = job.status

    _report(api, job.namespace, "{", '{"numParts": "many"}')
    malformed = wait_for("malformed", lambda: job.condition("Reported") or None)

    assert (status["progress"]["percent"], status["partition"]["edgeCut"]) == (40, "12.3%")
    assert (malformed["status"], malformed["reason"]) == ("False", "Malformed")
    assert job.status["partition"]["numParts"] == 2


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        ("Running", {"launcher", "partitioner"}),
        ("All", set()),
        ("None", {"launcher", "partitioner", "worker-0"}),
    ],
)
def test_clean_pod_policy_is_honoured(
    operator: OperatorProcess, submit: Submit, policy: str, left: set[str]
) -> None:
    """And the counters follow the cluster."""
    job = submit(workers=1, cleanPodPolicy=policy).reach("Completed")

    job.await_pods(*left)

    counted: dict[str, Any] = wait_for("counters", lambda: _counters(job.status, len(left)))
    assert counted["Worker"]["running"] == (1 if policy == "None" else 0)


def _counters(status: Json, pods: int) -> Json | None:
    counts = status["replicaStatuses"]
    total = sum(number for role in counts.values() for key, number in role.items() if key != "ready")
    return dict(counts) if total == pods else None


def test_an_example_of_2021_is_taken_as_it_is(operator: OperatorProcess, submit: Submit) -> None:
    """The shapes of its YAML stand in the compatibility notes."""
    body = a_played_job()
    body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"cpu": "10", "memory": "20Gi"}
    }

    submit(body).await_phase("Pending")
