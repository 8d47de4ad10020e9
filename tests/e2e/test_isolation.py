"""What a job leaves behind, what it may touch, and what the operator never does."""

import time
from typing import Any

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, tiny
from tests.e2e.kubectl import Kubectl, Refused
from tests.e2e.test_failures import process_on, wait_for_log
from tests.support import audit
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

ACCOUNT = "system:serviceaccount:dgl-operator:dgl-operator"


def left_on(job: Job, worker: int) -> list[str]:
    """Python processes and shared-memory segments that are on a worker."""
    script = (
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null | "
        "grep -E '[p]ython|[d]glrun'; done; ls /dev/shm"
    )
    return job.kubectl.exec(job.worker(worker), "sh", "-c", script, container="main").split("\n")[:-1]


def wait_until_clean(job: Job, seconds: float) -> None:
    """Wait until neither worker has a process or a segment of the run."""

    def look() -> bool | None:
        return True if not left_on(job, 0) + left_on(job, 1) else None

    wait_for(f"workers of {job.name} clean", look, seconds)


def test_sigterm_to_the_launcher_leaves_nothing_on_the_workers(submit: Submit) -> None:
    """Processes and /dev/shm segments are gone from workers that live on (cleanPodPolicy None)."""
    body = tiny("sigterm", "--do", "hang")
    body["spec"]["cleanPodPolicy"] = "None"
    job = submit(body)
    wait_for_log(job, "rank 1 does hang")
    assert left_on(job, 0)

    job.kubectl.exec(job.launcher, "sh", "-c", "kill -TERM 1", container="main")
    job.wait_phase("Failed", seconds=60)

    wait_until_clean(job, 25)  # less than a lease, after which all ends by itself
    pod = job.kubectl.get("pod", job.launcher)
    assert pod is not None
    assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_a_launcher_that_is_deleted_leaves_nothing_on_the_workers(submit: Submit) -> None:
    """Killed without a word, the launcher's lease runs out and the agents end everything."""
    body = tiny("lost-launcher", "--do", "hang")
    body["spec"]["cleanPodPolicy"] = "None"
    body["spec"]["failurePolicy"] = {"rules": [{"action": "FailJob", "role": "Launcher"}]}
    job = submit(body)
    wait_for_log(job, "rank 1 does hang")

    job.kubectl.run("delete", "pod", job.launcher, "--grace-period=0", "--force")
    job.wait_phase("Failed", seconds=60)

    assert job.launcher in job.condition("Failed")["message"]
    wait_until_clean(job, 60)


def test_a_worker_lost_in_training_fails_a_job_that_wants_no_other_attempt(submit: Submit) -> None:
    """No silent re-creation with an empty disk."""
    body = tiny("lost-worker", "--do", "hang")
    body["spec"]["failurePolicy"] = {"rules": [{"action": "FailJob", "role": "Worker"}]}
    job = submit(body)
    wait_for_log(job, "rank 1 does hang")
    uid = (job.kubectl.get("pod", job.worker(1)) or {})["metadata"]["uid"]

    job.kubectl.run("delete", "pod", job.worker(1), "--grace-period=0", "--force")
    since = time.time()
    job.wait_phase("Failed", seconds=60)

    assert time.time() - since <= 10
    assert job.worker(1) in job.condition("Failed")["message"]
    again = job.kubectl.get("pod", job.worker(1))
    assert again is None or again["metadata"]["uid"] == uid


def test_a_job_may_not_exec_into_the_pods_of_another(submit: Submit) -> None:
    """The launcher's own token gets 403 for another job's worker, and works for its own."""
    mine = submit(tiny("mine", "--do", "hang"))
    other = submit(tiny("other", "--do", "hang"))
    wait_for_log(mine, "rank 1 does hang")
    wait_for("other's worker", lambda: other.kubectl.get("pod", other.worker(0)), 180)
    inside = ("/opt/kube/kubectl", "exec")

    own = mine.kubectl.exec(mine.launcher, *inside, mine.worker(0), "--", "echo", "hello", container="main")
    with pytest.raises(Refused) as refused:
        mine.kubectl.exec(mine.launcher, *inside, other.worker(0), "--", "echo", "hello", container="main")
    with pytest.raises(Refused) as listing:
        mine.kubectl.exec(mine.launcher, "/opt/kube/kubectl", "get", "pods", container="main")

    assert own == "hello\n"
    assert "forbidden" in str(refused.value).lower()
    assert "forbidden" in str(listing.value).lower()


@pytest.mark.parametrize("phase", ["Starting", "Partitioning", "Training"])
def test_an_operator_restart_changes_nothing(submit: Submit, operator: Kubectl, phase: str) -> None:
    """Killed in each phase, the operator goes on: same pods, and the job completes."""
    body = tiny(f"restart-{phase.lower()}", "--do", "hang", "--seconds", "15")
    if phase == "Starting":  # otherwise over in a second; the partitioner has its worker's init containers
        pod = body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]
        image = pod["containers"][0]["image"]
        pod["initContainers"] = [{"name": "slow", "image": image, "command": ["sleep", "10"]}]
    job = submit(body)
    job.wait_phase(phase)
    before = {p["metadata"]["name"]: p["metadata"]["uid"] for p in job.kubectl.list("pods")}

    operator.run("delete", "pods", "-l", "app=dgl-operator", "--grace-period=0", "--force")
    job.wait_phase("Completed", seconds=300)

    after = {p["metadata"]["name"]: p["metadata"]["uid"] for p in job.kubectl.list("pods")}
    assert {name: uid for name, uid in after.items() if name in before and before[name] != uid} == {}
    operator.run("rollout", "status", "deployment/dgl-operator", "--timeout=120s")


def test_a_deleted_job_leaves_nothing(submit: Submit) -> None:
    """Owner references take everything away, in mid-training."""
    job = submit(tiny("deleted", "--do", "hang"))
    wait_for_log(job, "rank 1 does hang")

    job.kubectl.run("delete", "dgljob", job.name, "--wait=false")

    def left() -> list[str]:
        kinds = "pods,configmaps,services,networkpolicies,serviceaccounts,roles,rolebindings"
        return [o["metadata"]["name"] for o in job.kubectl.list(kinds) if job.name in o["metadata"]["name"]]

    wait_for("nothing left", lambda: True if not left() else None, 60)


def test_the_operator_never_used_exec(operator: Kubectl) -> None:
    """The API server's audit log of the whole run has no pods/exec by the operator's account."""
    records = list(audit.records())
    users = {record["user"].get("username") for record in records}
    execs = [record for record in records if record.get("objectRef", {}).get("subresource") == "exec"]

    assert ACCOUNT in users
    assert execs, "the audit log records no exec at all: it cannot prove anything"
    assert [record for record in execs if record["user"].get("username") == ACCOUNT] == []


def test_the_operator_deletes_the_workers_of_a_completed_job_but_not_its_launcher(
    operator: Kubectl, submit: Submit
) -> None:
    """The kubelet tells the launcher's end twice, containers first; the operator may act on neither."""
    audit.log()
    job = submit(tiny("kept"))
    job.wait_phase("Training", "Completed")
    before = job.kubectl.get("pod", job.launcher)
    assert before is not None
    job.wait_phase("Completed")

    after = wait_for("the launcher's final phase", lambda: _ended(job), 60)
    wait_for("the workers gone", lambda: None if job.kubectl.get("pod", job.worker(0)) else True, 60)
    deleted = _deleted_by_the_operator(before["metadata"]["namespace"])

    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert job.worker(0) in deleted, "the audit log records no clean-up: it cannot prove anything"
    assert job.launcher not in deleted


def _ended(job: Job) -> dict[str, Any] | None:
    """The launcher in its final phase."""
    pod = job.kubectl.get("pod", job.launcher)
    assert pod is not None, "the launcher was deleted with its log"
    assert "deletionTimestamp" not in pod["metadata"]
    return pod if pod["status"]["phase"] == "Succeeded" else None


def _deleted_by_the_operator(namespace: str) -> set[str]:
    """Names of the pods in a namespace that the operator asked the API server to delete."""
    return {
        record["objectRef"]["name"]
        for record in audit.requests(ACCOUNT)
        if (record["verb"], record["objectRef"]["resource"]) == ("delete", "pods")
        and record["objectRef"].get("namespace") == namespace
    }


def test_process_lookup_finds_trainers(submit: Submit) -> None:
    """The helper that the kill tests rely on tells servers from trainers."""
    job = submit(tiny("lookup", "--do", "hang"))
    wait_for_log(job, "rank 1 does hang")

    assert process_on(job, 0, "client") != process_on(job, 0, "server")


def test_a_whole_job_trains_under_pod_security_restricted(submit: Submit, kubectl: Kubectl) -> None:
    """Partitioner, launcher, workers and all init containers, with no more rights than the level gives."""
    kubectl.run("label", "namespace", kubectl.namespace, "pod-security.kubernetes.io/enforce=restricted")
    body = tiny("restricted")
    for role in body["spec"]["dglReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["securityContext"] = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        pod["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    job = submit(body)

    job.wait_phase("Completed", seconds=300)
    assert "rank 1 of 2" in kubectl.logs(job.launcher)
