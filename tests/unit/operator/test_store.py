"""The read cache: newer versions win, the dead stay dead, a list drops what is gone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.runtime.cluster import Listing
from dgl_operator.runtime.kinds import Key, Kind
from dgl_operator.runtime.store import Store
from dglrun.contract import names

KEY = Key("default", "sage")


def pod(name: str, version: int, uid: str = "") -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"{name}-uid",
            "resourceVersion": str(version),
            "labels": {names.LABEL_JOB: "sage"},
        },
    }


def everything(_key: Key) -> bool:
    return True


def test_an_older_version_never_replaces_a_newer_one() -> None:
    """The answer to a write may come before the watch's older event."""
    store = Store()
    store.put(Kind.POD, pod("a", 9))

    store.put(Kind.POD, pod("a", 10))
    store.put(Kind.POD, pod("a", 2))

    assert store.children(KEY) == (pod("a", 10),)


def test_a_deleted_object_is_not_brought_back_by_a_late_answer() -> None:
    """Its UID is remembered; another pod of the name is welcome."""
    store = Store()
    store.put(Kind.POD, pod("a", 1))
    store.drop(Kind.POD, pod("a", 2))

    store.put(Kind.POD, pod("a", 1))
    store.put(Kind.POD, pod("a", 5, uid="the-next"))

    assert store.children(KEY) == (pod("a", 5, uid="the-next"),)


def test_a_late_deletion_does_not_take_the_successor() -> None:
    """Another UID is another pod."""
    store = Store()
    store.put(Kind.POD, pod("a", 5, uid="the-next"))

    store.drop(Kind.POD, pod("a", 2))

    assert store.children(KEY) == (pod("a", 5, uid="the-next"),)


def test_a_list_drops_what_it_lacks_but_not_what_is_newer_than_itself() -> None:
    """Kopf reports no deletion after an expired watch; a pod made since the list is no loss."""
    store = Store()
    for item in (pod("gone", 3), pod("kept", 4), pod("new", 12)):
        store.put(Kind.POD, item)

    concerned = store.replace(Kind.POD, Listing((pod("kept", 4),), 10), everything)

    assert {child["metadata"]["name"] for child in store.children(KEY)} == {"kept", "new"}
    assert concerned == {KEY}


def test_a_list_of_one_namespace_leaves_the_others() -> None:
    """The operator may watch several."""
    store = Store()
    store.put(Kind.POD, pod("a", 1))

    store.replace(Kind.POD, Listing((), 10), lambda key: key.namespace == "elsewhere")

    assert len(store.children(KEY)) == 1


def test_a_list_of_one_kind_leaves_the_other_kinds() -> None:
    """Pods and Services of a job may share a name."""
    store = Store()
    store.put(Kind.POD, pod("a", 1))

    store.replace(Kind.SERVICE, Listing((), 10), everything)

    assert len(store.children(KEY)) == 1


@given(st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.integers(1, 9)), max_size=20))
def test_the_outcome_does_not_depend_on_the_order_of_puts(steps: list[tuple[str, int]]) -> None:
    """The newest version stands unless its UID was deleted."""
    store = Store()
    for verb, version in steps:
        (store.put if verb == "put" else store.drop)(Kind.POD, pod("a", version))

    was_dropped = any(verb == "drop" for verb, _ in steps)
    versions = [version for verb, version in steps if verb == "put"]
    expected = () if was_dropped or not versions else (pod("a", max(versions)),)
    assert store.children(KEY) == expected
