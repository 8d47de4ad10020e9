"""When nothing happens nothing is written; restarts change nothing and deletions leave nothing."""

import uuid
from pathlib import Path

import pytest
import yaml

from dgl_operator.runtime.cluster import NotFound
from dgl_operator.runtime.kinds import Kind
from tests.integration.conftest import Start, Submit
from tests.support.api_client import ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, a_played_job, versions
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

PHASES = ["Pending", "Starting", "Partitioning", "Partitioned", "Training", "Completed", "Failed"]


def touch(api: ApiServer, job: PlayedJob, word: str) -> None:
    """Change the job in a way that means nothing."""
    body = {"metadata": {"annotations": {"touched": word}}}
    api.call("PATCH", Kind.JOB.path(job.namespace, job.name), body, "application/merge-patch+json")


def warnings(api: ApiServer, job: PlayedJob) -> list[str]:
    """What the job's events warn of."""
    events = api.events(job.namespace, job.name)
    return sorted(event["message"] for event in events if event["type"] == "Warning")


def uids(api: ApiServer, namespace: str) -> set[str]:
    return {item["metadata"]["uid"] for item in api.everything(namespace).values()}


def test_a_look_without_a_change_writes_nothing(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """The job is touched, and everything but the job has its old version; it is not even looked at."""
    job = submit().reach("Training")
    operator.wait_idle()
    touch(api, job, "once")
    before, status = versions(api.everything(job.namespace)), job.status

    touch(api, job, "twice")
    submit(name="later").await_phase("Pending")  # the operator's watch of jobs is past the touch now
    operator.wait_idle()

    after = versions(api.everything(job.namespace))
    key = ("DGLJob", "sage")
    assert {**after, **before, key: None} == {**after, key: None}
    assert job.status == status


@pytest.mark.parametrize("phase", PHASES)
def test_a_restarted_operator_changes_nothing(
    start: Start, submit: Submit, api: ApiServer, phase: str
) -> None:
    """Killed in any phase: the next one finds all as it must be, same UIDs, no write, no event."""
    first = start()
    job = submit().reach(phase)
    if phase in {"Completed", "Failed"}:
        job.await_pods("launcher", "partitioner")
    first.wait_idle()
    first.kill()
    before = versions(api.everything(job.namespace))
    told = len(api.events(job.namespace, job.name))

    second = start()
    wait_for("a look", lambda: True if second.reconciles() > 0 else None)
    second.wait_idle()

    assert versions(api.everything(job.namespace)) == before
    assert len(api.events(job.namespace, job.name)) == told


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("phase", PHASES)
def test_a_deleted_job_leaves_nothing(
    start: Start, submit: Submit, api: ApiServer, phase: str, is_up: bool
) -> None:
    """By owner references alone, with the operator up or down."""
    operator = start()
    job = submit().reach(phase)
    operator.wait_idle()
    if not is_up:
        operator.kill()
    told = warnings(api, job)

    job.delete()

    wait_for("all gone", lambda: True if not api.everything(job.namespace) else None, 60)
    assert warnings(api, job) == told
    assert bool(told) == (phase == "Failed")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.CONFIG_MAP, "sage-config"),
        (Kind.CONFIG_MAP, "sage-report"),
        (Kind.SERVICE, "sage"),
        (Kind.NETWORK_POLICY, "sage"),
        (Kind.ROLE, "sage-launcher"),
        (Kind.ROLE_BINDING, "sage-partitioner"),
        (Kind.SERVICE_ACCOUNT, "sage-launcher"),
    ],
)
def test_a_deleted_child_returns(
    operator: OperatorProcess, submit: Submit, api: ApiServer, kind: Kind, name: str
) -> None:
    """Everything that a job needs is watched."""
    job = submit().reach("Partitioned")
    old = api.get(kind, job.namespace, name)
    assert old is not None

    api.call("DELETE", kind.path(job.namespace, name))

    wait_for(
        f"{name} returns",
        lambda: _with_other_uid(api.get(kind, job.namespace, name), old["metadata"]["uid"]),
    )


def _with_other_uid(found: dict[str, object] | None, uid: str) -> bool | None:
    return True if found and found["metadata"]["uid"] != uid else None  # type: ignore[index]


def test_an_edited_role_is_put_right(operator: OperatorProcess, submit: Submit, api: ApiServer) -> None:
    """Server-side apply takes the field back."""
    job = submit().reach("Starting")
    path = Kind.ROLE.path(job.namespace, "sage-launcher")
    good = api.call("GET", path)["rules"]

    api.call("PATCH", path, {"rules": []}, "application/merge-patch+json")

    wait_for("rules", lambda: True if api.call("GET", path)["rules"] == good else None)


def test_a_namespace_deleted_under_a_running_job_disturbs_no_other(
    start: Start, submit: Submit, api: ApiServer
) -> None:
    """While it goes, nothing can be made there anew; the operator tries no look for ever."""
    doomed = f"it-{uuid.uuid4().hex[:8]}-doomed"
    api.make_namespace(doomed)
    operator = start("--namespace", doomed)
    PlayedJob(api, doomed, a_played_job("gone")).reach("Training")

    api.remove_namespace(doomed)

    submit().reach("Completed")
    wait_for("the end of the namespace", lambda: True if _is_gone(api, doomed) else None, 120)
    operator.wait_idle()
    assert operator.is_running


def _is_gone(api: ApiServer, namespace: str) -> bool:
    try:
        api.call("GET", f"/api/v1/namespaces/{namespace}")
    except NotFound:
        return True
    return False


def test_an_operator_ends_within_seconds_of_sigterm(operator: OperatorProcess, submit: Submit) -> None:
    """Exit code 0, nothing hangs."""
    submit().reach("Starting")

    assert operator.stop() == 0


def test_a_job_of_the_same_name_follows_its_predecessor(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """The old one's children stand in the way until they are collected, and are never taken over."""
    first = submit().reach("Training")
    old = uids(api, first.namespace)
    first.delete()

    second = submit()
    wait_for("old children gone", lambda: None if old & uids(api, second.namespace) else True)
    second.await_pods("launcher", "partitioner")

    second.reach("Completed")


def test_an_operator_without_an_api_server_ends_non_zero(
    kubeconfig: Path, namespace: str, tmp_path: Path
) -> None:
    """The kubelet restarts it; it does not sit there looking alive."""
    lost = tmp_path / "lost.kubeconfig"
    config = yaml.safe_load(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    lost.write_text(yaml.safe_dump(config))

    process = OperatorProcess(lost, namespace, tmp_path / "operator.log")

    code = wait_for("end", process.poll, 240)
    assert code != 0
    assert "127.0.0.1" in process.log.read_text()


def test_probes_answer(operator: OperatorProcess) -> None:
    """The kubelet asks them."""
    assert operator.get("/healthz") == (200, "ok\n")
    assert operator.get("/readyz") == (200, "ok\n")
    assert operator.get("/nothing")[0] == 404
    assert "dgl_operator_queue_depth" in operator.metrics()
