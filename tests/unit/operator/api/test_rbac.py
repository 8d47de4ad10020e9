"""The operator's rights are the requests that it makes, neither more nor less."""

import io
from collections.abc import Mapping
from typing import Any

from urllib3 import HTTPResponse

from dgl_operator.api import rbac
from dgl_operator.runtime.cluster import Place
from dgl_operator.runtime.gangs import KINDS
from dgl_operator.runtime.kinds import CHILDREN, Json, Kind
from dgl_operator.runtime.kube_cluster import KubeCluster, Request

Right = tuple[str, str, str]
BODY: Json = {"metadata": {"name": "x", "namespace": "ns", "uid": "uid", "resourceVersion": "1"}}
PLACE = Place("ns", "x", "uid")

HELD_FOR_OTHERS = {
    ("", "pods/exec", "get"),
    ("", "pods/exec", "create"),
    ("qihoo.net", "dgljobs/finalizers", "update"),
}
"""Granted on to launchers, and asked for by the admission of owner references; never requested."""

DELETED = (Kind.POD, Kind.NETWORK_POLICY, Kind.ROLE, Kind.ROLE_BINDING)
"""What the operator deletes itself: pods by the job's policy, rights at its end, a policy on demand."""


class Recorder(KubeCluster):
    """Keeps the right that each request asks for instead of sending it."""

    def __init__(self) -> None:
        self._timeout = 30.0
        self.rights: set[Right] = set()

    def _request(self, request: Request, timeout: Any) -> Any:
        query = request.query or {}
        self.rights.add(right_of(request.method, request.path, query))
        text = b"" if "watch" in query else b'{"items": [], "metadata": {"resourceVersion": "1"}}'
        return HTTPResponse(io.BytesIO(text), preload_content=False)


def right_of(method: str, path: str, query: Mapping[str, str]) -> Right:
    """Group, resource and verb of a request, as the API server's authoriser names them."""
    root, _, rest = path.replace("/api/v1/nodes", "/api/v1/namespaces/ns/nodes").partition("/namespaces/ns/")
    resource, *inside = rest.split("/")
    reads = "watch" if "watch" in query else "get" if inside else "list"
    verbs = {"GET": reads, "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
    group = "" if root == "/api/v1" else root.split("/")[2]
    return group, "/".join([resource, *inside[1:]]), verbs[method]


def requested() -> set[Right]:
    """What the operator asks for: each method of the cluster on the kinds that `runtime` uses it on."""
    recorder = Recorder()
    for kind in (Kind.JOB, *CHILDREN):
        list(recorder.pages(kind, "ns"))
        list(recorder.watch(kind, "ns", 1))
        recorder.get(kind, "ns", "x")
    for kind in CHILDREN:
        recorder.create({"kind": kind.value[0], **BODY})
    for kind in set(CHILDREN) - {Kind.POD}:
        recorder.apply({"kind": kind.value[0], **BODY}, BODY)
    recorder.mark(Kind.POD, PLACE, {})
    recorder.stop(PLACE)
    for kind in DELETED:
        recorder.delete(kind, PLACE)
    recorder.get(Kind.NODE, None, "x")
    for kind in KINDS.values():
        recorder.get(kind, "ns", "x")
        recorder.create({"kind": kind.value[0], "apiVersion": kind.api_version, **BODY})
    recorder.delete_job(BODY)
    recorder.write_status(BODY, {})
    recorder.post_event({"kind": "Event", **BODY})
    return recorder.rights


def test_each_right_is_used_and_each_use_is_a_right() -> None:
    """Defects 29 and 37: a verb that is missed ends in an error loop, one too many is a risk for all."""
    held = {
        (rule.group, resource, verb)
        for rule in (*rbac.RULES, *rbac.OF_CLUSTER)
        for resource in rule.resources
        for verb in rule.verbs
    }

    assert held - HELD_FOR_OTHERS == requested()
    assert held >= HELD_FOR_OTHERS


def test_a_queue_asks_for_workloads_and_what_they_name_alone() -> None:
    """Of an operator with `--kueue=true`; Workloads are never applied, and nothing of Kueue's is written."""
    recorder = Recorder()
    workload = {"kind": Kind.WORKLOAD.value[0], **BODY}
    list(recorder.pages(Kind.WORKLOAD, "ns"))
    list(recorder.watch(Kind.WORKLOAD, "ns", 1))
    recorder.get(Kind.WORKLOAD, "ns", "x")
    recorder.create(workload)
    recorder.patch_status(workload, {})
    recorder.delete(Kind.WORKLOAD, PLACE)
    for kind in (Kind.RESOURCE_FLAVOR, Kind.WORKLOAD_PRIORITY_CLASS, Kind.PRIORITY_CLASS):
        recorder.get(kind, "ns", "x")

    held = {
        (rule.group, resource, verb)
        for rule in (*rbac.KUEUE, *rbac.KUEUE_OF_CLUSTER)
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert held == recorder.rights


def test_an_election_asks_for_its_lease_alone() -> None:
    """It is created once and then renewed."""
    recorder = Recorder()
    recorder.get(Kind.LEASE, "ns", "x")
    recorder.create({"kind": "Lease", **BODY})
    recorder.replace({"kind": "Lease", **BODY})

    held = {
        (rule.group, resource, verb)
        for rule in rbac.LEADER_RULES
        for resource in rule.resources
        for verb in rule.verbs
    }
    assert held == recorder.rights


def test_no_right_is_a_wildcard() -> None:
    """Neither group, resource nor verb is `*`, and nobody may escalate or bind."""
    every = (*rbac.RULES, *rbac.OF_CLUSTER, *rbac.LEADER_RULES, *rbac.KUEUE, *rbac.KUEUE_OF_CLUSTER)
    words = [word for rule in every for word in (rule.group, *rule.resources, *rule.verbs)]

    assert not {"*", "escalate", "bind", "impersonate"} & set(words)


def test_a_right_is_asked_for_by_all_three_of_its_parts() -> None:
    """The same resource in another group, or another verb, is no right."""
    assert rbac.allows("qihoo.net", "dgljobs/status", "patch")
    assert not rbac.allows("", "dgljobs/status", "patch")
    assert not rbac.allows("qihoo.net", "dgljobs", "patch")
