"""Who may do what: jobs reach their own pods alone, and the operator never runs a command in any."""

from functools import partial

import pytest

from dgl_operator.api import rbac
from dgl_operator.runtime.kinds import Json
from tests.integration.conftest import HOME, Submit
from tests.support import audit
from tests.support.api_client import ACCOUNT, ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

USER = f"system:serviceaccount:{HOME}:{ACCOUNT}"


def may(api: ApiServer, namespace: str, account: str, verb: str, what: str, name: str = "") -> bool:
    """Ask the API server's authoriser."""
    resource, _, sub = what.partition("/")
    attributes = {
        "namespace": namespace,
        "verb": verb,
        "resource": resource,
        "subresource": sub,
        "name": name,
    }
    user = f"system:serviceaccount:{namespace}:{account}"
    groups = ["system:serviceaccounts", "system:authenticated"]
    body: Json = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    }
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
    return bool(answer["status"]["allowed"])


def granted(api: ApiServer, namespace: str, account: str, pod: str) -> bool | None:
    """Whether the account may run commands in a pod, None while it may not."""
    return may(api, namespace, account, "create", "pods/exec", pod) or None


def test_a_job_reaches_its_own_pods_and_no_other(
    operator: OperatorProcess, submit: Submit, api: ApiServer, namespace: str
) -> None:
    """Exec by both verbs, since WebSocket asks for get."""
    submit()
    submit(name="other").reach("Partitioned")
    submit_done = submit(name="third").reach("Partitioned")
    assert submit_done

    launcher, partitioner = "other-launcher", "other-partitioner"
    for account, pod in ((launcher, "other-worker-0"), (partitioner, launcher)):  # rights come after the pods
        wait_for(f"rights of {account}", partial(granted, api, namespace, account, pod))
    for verb in ("get", "create"):
        assert may(api, namespace, launcher, verb, "pods/exec", "other-worker-0")
        assert may(api, namespace, partitioner, verb, "pods/exec", "other-launcher")
        assert not may(api, namespace, launcher, verb, "pods/exec", "third-worker-0")
        assert not may(api, namespace, launcher, verb, "pods/exec", "other-launcher")
        assert not may(api, namespace, launcher, verb, "pods/exec")
        assert not may(api, namespace, partitioner, verb, "pods/exec", "other-worker-0")
    assert may(api, namespace, launcher, "watch", "pods", "other-partitioner")
    assert may(api, namespace, partitioner, "get", "pods", "other-partitioner")  # the digest of its image
    assert not may(api, namespace, partitioner, "get", "pods", "other-worker-0")
    assert not may(api, namespace, launcher, "list", "pods")
    assert not may(api, namespace, launcher, "get", "secrets")
    assert may(api, namespace, launcher, "patch", "configmaps", "other-report")
    assert not may(api, namespace, launcher, "patch", "configmaps", "other-config")
    assert not may(api, namespace, launcher, "patch", "configmaps", "third-report")


def test_the_operators_audit_trail_has_its_rules_verbs_and_no_exec(
    operator: OperatorProcess, submit: Submit, namespace: str
) -> None:
    """Every request of the account is one that the rules name; pods/exec is none of them."""
    audit.log()
    submit().reach("Completed")
    operator.wait_idle()

    used = _requests(namespace)

    assert used
    assert not [each for each in used if each[1].startswith("pods/exec")]
    assert not [each for each in used if not rbac.allows(*each)]
    held = {
        (rule.group, resource, verb)
        for rule in rbac.RULES
        for resource in rule.resources
        for verb in rule.verbs
    }
    unseen = {each[1] for each in held} - {each[1] for each in used}
    asked_for_by_gangs = {"podgroups"}
    assert (
        unseen - {"events"} == {"pods/exec", "dgljobs/finalizers"} | asked_for_by_gangs
    )  # no audit of events


def test_every_list_and_watch_of_children_is_filtered_by_the_server(
    operator: OperatorProcess, submit: Submit, namespace: str
) -> None:
    """Other people's pods never cross the wire."""
    audit.log()
    submit().reach("Completed")

    looks = [
        event["requestURI"]
        for event in _of_this_test(namespace)
        if event["verb"] in ("list", "watch") and event["objectRef"]["resource"] != "dgljobs"
    ]

    assert looks
    assert not [uri for uri in looks if "labelSelector=dgl-operator/job-name" not in uri]


def _of_this_test(namespace: str) -> list[Json]:
    """Requests of the operator in the test's namespace: other runs use the same account."""
    return [event for event in audit.requests(USER) if event["objectRef"].get("namespace") == namespace]


def _requests(namespace: str) -> set[tuple[str, str, str]]:
    """(group, resource, verb) of all requests that the operator made and that were allowed."""
    found = set()
    for event in _of_this_test(namespace):
        ref = event["objectRef"]
        name = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
        assert event.get("responseStatus", {}).get("code") != 403 or "quota" in str(event), event
        found.add((ref.get("apiGroup", ""), name, event["verb"]))
    return found
