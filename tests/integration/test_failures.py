"""Every failure names its true cause, and pods that had work are never made anew."""

from functools import partial

import pytest

from dgl_operator.runtime.cluster import Refused
from dgl_operator.runtime.kinds import Json, Kind
from tests.integration.conftest import Submit
from tests.support.api_client import ApiServer
from tests.support.jobs import ended, waiting
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, a_played_job
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration


NO_OTHER_ATTEMPT = {"rules": [{"action": "FailJob", "role": role} for role in ("Launcher", "Worker")]}


def cause(job: PlayedJob) -> tuple[str, str]:
    job.await_phase("Failed")
    failed = job.condition("Failed")
    return failed["reason"], failed["message"]


def test_a_launcher_that_fails_names_container_code_and_last_words(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """In the condition, the message and a warning event."""
    job = submit().reach("Training")

    job.play("launcher", "Failed", containers=[ended(code=7, message="worker-1 rank 1: NaN")])

    words = "pod sage-launcher, container main, exit code 7: worker-1 rank 1: NaN"
    assert cause(job) == ("TrainingFailed", words)
    warning = wait_for("event", lambda: next(iter(_warnings(api, job)), None))
    assert warning == ("TrainingFailed", words)
    assert job.status["completionTime"]


def _warnings(api: ApiServer, job: PlayedJob) -> list[tuple[str, str]]:
    found = api.events(job.namespace, job.name)
    return [(event["reason"], event["message"]) for event in found if event["type"] == "Warning"]


def test_a_partitioner_that_fails_is_the_cause(operator: OperatorProcess, submit: Submit) -> None:
    """Although the launcher's watcher ends right after it."""
    job = submit().reach("Partitioning")
    job.play("partitioner", "Failed", containers=[ended(code=3, message="no such dataset")])

    assert cause(job) == (
        "PartitionFailed",
        "pod sage-partitioner, container main, exit code 3: no such dataset",
    )


@pytest.mark.parametrize("suffix", ["worker-1", "launcher"])
def test_a_pod_lost_in_training_fails_a_job_that_wants_no_other_attempt(
    operator: OperatorProcess, submit: Submit, suffix: str
) -> None:
    """Nothing is made anew."""
    job = submit(failurePolicy=NO_OTHER_ATTEMPT).reach("Training")

    job.delete_pod(suffix)

    reason, message = cause(job)
    assert reason == "PodLost"
    assert message.startswith(f"pod sage-{suffix} is")
    job.await_pods(*({"launcher", "partitioner"} - {suffix}))


def test_a_pod_lost_while_the_operator_was_down_is_known_as_lost(
    operator: OperatorProcess, submit: Submit, start: object
) -> None:
    """What was reached stands in the status, not in the operator's memory."""
    job = submit(failurePolicy=NO_OTHER_ATTEMPT).reach("Training")
    operator.kill()
    job.delete_pod("worker-0")

    start()  # type: ignore[operator]

    assert cause(job)[0] == "PodLost"


def test_an_evicted_worker_fails_the_job_with_the_nodes_words(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """And the clean-up applies."""
    job = submit().reach("Training")

    job.play("worker-1", "Failed", containers=[], reason="Evicted", message="The node was low on memory")

    assert cause(job) == ("Evicted", "pod sage-worker-1 was evicted: Evicted: The node was low on memory")
    job.await_pods("launcher", "partitioner", "worker-1")

    def launcher_deadline() -> int | None:
        launcher = api.get(Kind.POD, job.namespace, f"{job.name}-launcher")
        assert launcher is not None
        deadline: int | None = launcher["spec"].get("activeDeadlineSeconds")
        return deadline

    # The workers are deleted before: the launcher is ended, and kept for its logs.
    assert wait_for("the end of the launcher", launcher_deadline) == 1


def test_an_image_that_cannot_be_pulled_is_shown_until_it_can(
    operator: OperatorProcess, submit: Submit, api: ApiServer
) -> None:
    """The job waits and says for what."""
    job = submit()
    job.await_phase("Pending")

    job.play("launcher", "Pending", containers=[waiting(reason="ImagePullBackOff", message="no such tag")])
    blocked = wait_for("blocked", lambda: job.condition("Blocked") or None)
    job.launcher_waits()
    job.await_phase("Starting")

    assert (blocked["reason"], blocked["status"]) == ("ImagePullBackOff", "True")
    assert job.condition("Blocked")["status"] == "False"
    assert _warnings(api, job) == [("ImagePullBackOff", "pod sage-launcher, container main: no such tag")]


def test_invalid_jobs_fail_beside_a_valid_one_that_completes(
    operator: OperatorProcess, submit: Submit
) -> None:
    """One bad job never disturbs another."""
    partitions = a_played_job("three-of-two", workers=3, args=["--num-partitions", "2"])
    clash = a_played_job("clash")
    clash["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["restartPolicy"] = "Always"
    taken = a_played_job("taken")
    taken["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["volumes"] = [{"name": "config-volume"}]
    bad = [submit(body) for body in (partitions, clash, taken)]

    submit().reach("Completed")

    messages = {job.name: cause(job) for job in bad}
    assert {reason for reason, _ in messages.values()} == {"InvalidSpec"}
    assert "expected --num-partitions to equal Worker.replicas (3)" in messages["three-of-two"][1]
    assert "restartPolicy: expected Never" in messages["clash"][1]
    assert "volumes: expected a name that the operator does not use" in messages["taken"][1]


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        ({"name": "Not A Name"}, "Not A Name"),
        ({"livenessProbe": {"periodSeconds": "often"}}, "periodSeconds"),
    ],
)
def test_a_worker_template_that_is_no_pod_fails_before_the_partitioning(
    operator: OperatorProcess, submit: Submit, spoilt: Json, said: str
) -> None:
    """Found by a dry run, with the API server's words, and nothing was started."""
    body = a_played_job()
    body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0].update(spoilt)

    job = submit(body)

    reason, message = cause(job)
    assert reason == "InvalidSpec"
    assert message.startswith("Pod sage-worker-0: ")
    assert said in message
    assert job.pods() == set()


def test_a_dataset_volume_of_no_kind_that_exists_fails_the_job_by_name(
    operator: OperatorProcess, submit: Submit
) -> None:
    """The schema takes any source; the API server, asked for a pod with it, refuses a misspelt one."""
    body = a_played_job(datasetVolume={"persistantVolumeClaim": {"claimName": "graphs"}})

    job = submit(body)

    reason, message = cause(job)
    assert reason == "InvalidSpec"
    assert "persistantVolumeClaim" in message
    assert job.pods() == set()


def test_the_annotations_of_a_job_are_on_its_accounts(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """That of the workers, too, which have one for this alone."""
    job = submit(a_played_job(serviceAccountAnnotations={"example.org/role": "reader"}))
    job.await_phase("Pending")

    for name in ("sage-launcher", "sage-partitioner", "sage-worker"):
        account = wait_for(name, partial(api.get, Kind.SERVICE_ACCOUNT, namespace, name))
        assert account["metadata"]["annotations"]["example.org/role"] == "reader"


def test_a_spent_quota_is_said_and_the_job_goes_on_when_there_is_room(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """Creation errors reach condition and event with the server's words."""
    quotas = f"/api/v1/namespaces/{namespace}/resourcequotas"
    api.put(quotas, {"kind": "ResourceQuota", "metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}})
    wait_for("quota", lambda: api.call("GET", f"{quotas}/none").get("status", {}).get("used"))
    job = submit()
    blocked = wait_for("blocked", lambda: job.condition("Blocked") or None)

    api.call("DELETE", f"{quotas}/none")

    assert blocked["reason"] == "QuotaExceeded"
    assert "exceeded quota: none" in blocked["message"]
    job.await_pods("launcher", "partitioner")


def test_a_policy_that_denies_blocks_the_job_until_it_is_gone(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """A ValidatingAdmissionPolicy answers 422 as the API's own validation does, but may change (KEP-3488)."""
    policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    name = f"team-{namespace}"
    here = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": here},
        "validations": [{"expression": "false", "message": "label team is missing"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    bindings = policies.removesuffix("ies") + "ybindings"
    api.put(policies, {"kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec})
    api.put(
        bindings, {"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name}, "spec": binding}
    )
    try:
        wait_for("policy in force", lambda: _is_denied(api, namespace))
        job = submit()
        blocked = wait_for("blocked", lambda: job.condition("Blocked") or None)
    finally:
        api.call("DELETE", f"{bindings}/{name}")
        api.call("DELETE", f"{policies}/{name}")

    assert "label team is missing" in blocked["message"]
    job.await_pods("launcher", "partitioner")
    assert job.status["phase"] == "Pending"


def _is_denied(api: ApiServer, namespace: str) -> bool | None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": namespace},
        "spec": {"containers": [{"name": "x", "image": "x"}]},
    }
    try:
        api.create(pod, rehearse=True)
    except Refused:
        return True
    return None


def test_a_foreign_object_is_reported_and_left_alone(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """A ConfigMap of somebody else with our name; the job goes on when it is gone."""
    path = Kind.CONFIG_MAP.path(namespace)
    foreign = api.put(path, {"kind": "ConfigMap", "metadata": {"name": "sage-config"}, "data": {"mine": "1"}})
    job = submit()
    blocked = wait_for("blocked", lambda: job.condition("Blocked") or None)
    untouched = api.get(Kind.CONFIG_MAP, namespace, "sage-config")

    api.call("DELETE", f"{path}/sage-config")

    assert (blocked["reason"], blocked["status"]) == ("ObjectConflict", "True")
    assert untouched is not None
    assert untouched["metadata"]["resourceVersion"] == foreign["metadata"]["resourceVersion"]
    job.await_pods("launcher", "partitioner")


def test_a_namespace_with_a_strict_quota_takes_a_job(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """Every container of ours has requests and limits."""
    hard = {"requests.cpu": "4", "requests.memory": "8Gi", "limits.cpu": "8", "limits.memory": "16Gi"}
    quota = {"kind": "ResourceQuota", "metadata": {"name": "strict"}, "spec": {"hard": hard}}
    api.put(f"/api/v1/namespaces/{namespace}/resourcequotas", quota)
    body = a_played_job()
    sizes = {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}}
    for role in body["spec"]["dglReplicaSpecs"].values():
        role["template"]["spec"]["containers"][0]["resources"] = sizes

    submit(body).reach("Partitioned")


def test_a_restricted_namespace_takes_a_job_that_demands_it(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """Our init containers meet what the user's pod meets."""
    api.make_namespace(namespace, {"pod-security.kubernetes.io/enforce": "restricted"})
    body = a_played_job()
    for role in body["spec"]["dglReplicaSpecs"].values():
        pod = role["template"]["spec"]
        pod["securityContext"] = {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        pod["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }

    submit(body).reach("Partitioned")
