"""What the operator's verbs mean to a real API server: nothing hits an object that was not meant."""

import itertools
import json

import pytest

from dgl_operator.runtime.cluster import AlreadyExists, Conflict, NotFound, Place, Refused
from dgl_operator.runtime.decode import UNREADABLE
from dgl_operator.runtime.kinds import Json, Kind
from tests.support.api_client import ApiServer
from tests.support.jobs import a_template
from tests.support.played_job import a_played_job

pytestmark = pytest.mark.integration


def a_config_map(namespace: str, **data: str) -> Json:
    metadata = {"name": "thing", "namespace": namespace, "labels": {"dgl-operator/job-name": "sage"}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def a_pod(namespace: str) -> Json:
    pod = a_template()
    metadata = {"name": "pod", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**pod["spec"], "schedulerName": "none"},
    }


def test_create_refuses_a_name_that_is_taken(api: ApiServer, namespace: str) -> None:
    """Nothing is taken over."""
    api.create(a_config_map(namespace, mine="1"))

    with pytest.raises(AlreadyExists):
        api.create(a_config_map(namespace, mine="2"))


def test_a_rehearsal_leaves_nothing(api: ApiServer, namespace: str) -> None:
    """It is a server-side dry run."""
    api.create(a_pod(namespace), rehearse=True)

    assert api.get(Kind.POD, namespace, "pod") is None


def test_apply_changes_our_fields_alone(api: ApiServer, namespace: str) -> None:
    """What others added stays."""
    old = api.create(a_config_map(namespace, mine="1"))
    path = Kind.CONFIG_MAP.path(namespace, "thing")
    theirs = api.call("PATCH", path, {"data": {"theirs": "1"}}, "application/merge-patch+json")

    new = api.apply(a_config_map(namespace, mine="2"), theirs)

    assert new["data"] == {"mine": "2", "theirs": "1"}
    assert new["metadata"]["uid"] == old["metadata"]["uid"]


def test_apply_hits_neither_a_changed_nor_a_replaced_nor_an_absent_object(
    api: ApiServer, namespace: str
) -> None:
    """An absent one is not created either."""
    seen = api.create(a_config_map(namespace, mine="1"))
    path = Kind.CONFIG_MAP.path(namespace, "thing")
    api.call("PATCH", path, {"data": {"theirs": "1"}}, "application/merge-patch+json")

    with pytest.raises(Conflict):
        api.apply(a_config_map(namespace, mine="2"), seen)
    api.call("DELETE", path)
    with pytest.raises(Conflict):
        api.apply(a_config_map(namespace, mine="2"), seen)
    api.create(a_config_map(namespace, theirs="1"))
    with pytest.raises(Conflict):
        api.apply(a_config_map(namespace, mine="2"), seen)


def test_a_status_does_not_land_on_a_successor_of_the_same_name(api: ApiServer, namespace: str) -> None:
    """A UID alone would not prevent it: the status subresource ignores it."""
    path = Kind.JOB.path(namespace)
    seen = api.call("POST", path, a_played_job("again"))
    api.call("DELETE", f"{path}/again")
    with pytest.raises(NotFound):
        api.write_status(seen, {"message": "old"})
    api.call("POST", path, a_played_job("again"))

    with pytest.raises(Conflict):
        api.write_status(seen, {"message": "old"})

    successor = api.get(Kind.JOB, namespace, "again")
    assert successor is not None
    assert successor.get("status", {}).get("message") != "old"


def test_annotations_and_deletions_hit_the_pod_that_was_meant(api: ApiServer, namespace: str) -> None:
    """By its UID; another pod of the name is left alone."""
    api.create(a_pod(namespace))
    other = Place(namespace, "pod", "another-uid")

    annotated = api.mark(Kind.POD, other, {"annotations": {"a": "1"}})
    api.delete(Kind.POD, other)
    gone = api.mark(Kind.POD, Place(namespace, "nothing", "x"), {"annotations": {"a": "1"}})
    api.delete(Kind.POD, Place(namespace, "nothing", "x"))

    assert (annotated, gone) == (None, None)
    found = api.get(Kind.POD, namespace, "pod")
    assert found is not None
    assert "annotations" not in found["metadata"]
    mine = Place(namespace, "pod", found["metadata"]["uid"])
    assert api.mark(Kind.POD, mine, {"annotations": {"a": "1"}}) is not None
    api.delete(Kind.POD, mine)
    assert api.get(Kind.POD, namespace, "pod") is None


def test_lists_come_whole_in_pages(api: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filtered by the job label on the server."""
    monkeypatch.setattr("dgl_operator.runtime.kube_cluster.FIRST_PAGE", 2)
    monkeypatch.setattr("dgl_operator.runtime.kube_cluster.LARGEST_PAGE", 2)
    for index in range(5):
        body = a_config_map(namespace)
        api.create({**body, "metadata": {**body["metadata"], "name": f"thing-{index}"}})

    pages = list(api.pages(Kind.CONFIG_MAP, namespace))

    items = [item for page in pages for item in page.items]
    assert [item["metadata"]["name"] for item in items] == [f"thing-{index}" for index in range(5)]
    assert {(item["kind"], item["apiVersion"]) for item in items} == {("ConfigMap", "v1")}
    assert len(pages) == 3
    assert pages[0].version >= max(int(item["metadata"]["resourceVersion"]) for item in items)


def test_a_watch_brings_what_came_after_the_list(api: ApiServer, namespace: str) -> None:
    """From the list's version on, the deletion included."""
    (page,) = api.pages(Kind.CONFIG_MAP, namespace)
    api.create(a_config_map(namespace, mine="1"))
    api.call("DELETE", Kind.CONFIG_MAP.path(namespace, "thing"))

    changes = itertools.islice(api.watch(Kind.CONFIG_MAP, namespace, page.version), 1, 3)

    assert [(change.type, change.item["metadata"]["name"]) for change in changes] == [
        ("ADDED", "thing"),
        ("DELETED", "thing"),
    ]


def test_a_mistyped_field_of_a_pod_is_refused_by_name(api: ApiServer, namespace: str) -> None:
    """It was accepted and dropped; by the rehearsal, too."""
    pod = a_pod(namespace)
    pod["spec"]["nodeselector"] = {"disk": "ssd"}

    for rehearse in (True, False):
        with pytest.raises(Refused, match=r'unknown field "spec\.nodeselector"') as caught:
            api.create(pod, rehearse=rehearse)
        assert caught.value.status == 400


def test_an_object_of_nine_thousand_levels_is_listed_and_watched(api: ApiServer, namespace: str) -> None:
    """The others with it."""
    (page,) = api.pages(Kind.JOB, namespace)
    body = a_played_job("deep")
    body["spec"]["dglReplicaSpecs"]["Launcher"]["template"]["odd"] = "DEEP"
    text = json.dumps(body).replace('"DEEP"', '{"a":' * 9_000 + "1" + "}" * 9_000)
    api.post_text(Kind.JOB.path(namespace), text)
    api.call("POST", Kind.JOB.path(namespace), a_played_job("plain"))

    listed = api.list(Kind.JOB, namespace)
    watched = list(itertools.islice(api.watch(Kind.JOB, namespace, page.version), 1, 3))

    assert [item["metadata"]["name"] for item in listed] == ["deep", "plain"]
    assert [UNREADABLE in item for item in listed] == [True, False]
    assert [change.item["metadata"]["name"] for change in watched] == ["deep", "plain"]
