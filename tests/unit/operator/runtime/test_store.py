"""The read cache: newer versions win, the dead stay dead, a list drops what is gone, strangers stay out."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.runtime.kinds import Key, Kind
from dgl_operator.runtime.store import KEPT_SPEC_BYTES, SPEC_SIZE, Store
from dglrun.contract import names
from tests.support.jobs import a_raw_job

Json = dict[str, Any]

KEY = Key("default", "sage")
LAUNCHER = "sage-launcher"


def pod(name: str, version: int, uid: str = "", owner: str = "job-uid", job: str = "sage") -> Json:
    """A pod of the job as a watch brings it."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": uid or f"{name}-uid",
            "resourceVersion": str(version),
            "labels": {names.LABEL_JOB: "sage"},
            "ownerReferences": [
                {
                    "apiVersion": "qihoo.net/v1alpha1",
                    "kind": "DGLJob",
                    "name": job,
                    "uid": owner,
                    "controller": True,
                }
            ],
        },
        "spec": {"containers": [{"name": "main"}]},
        "status": {"phase": "Running"},
    }


def a_store() -> Store:
    """A store that knows the job."""
    store = Store()
    store.put(Kind.JOB, a_raw_job())
    return store


def known(store: Store) -> list[tuple[str, str, str]]:
    """Name, UID and version of the job's children."""
    found = store.seen(KEY).observed
    versions = {name: record.version for (_, name), record in store._families[KEY].children.items()}
    return [(pod.name, pod.uid, str(versions[pod.name])) for pod in found.pods]


def everything(_key: Key) -> bool:
    return True


def test_an_older_version_never_replaces_a_newer_one() -> None:
    """The answer to a write may come before the watch's older event."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 9))

    store.put(Kind.POD, pod(LAUNCHER, 10))
    store.put(Kind.POD, pod(LAUNCHER, 2))

    assert known(store) == [(LAUNCHER, f"{LAUNCHER}-uid", "10")]


def test_that_kueue_was_not_heard_holds_for_a_whole_look() -> None:
    """A pod that comes meanwhile makes no withdrawal of a Workload that is absent."""
    store = a_store()
    deaf = store.seen(KEY).without_kueue()
    store.put(Kind.POD, pod(LAUNCHER, 9))

    assert [pod.name for pod in store.seen(KEY, deaf).observed.pods] == [LAUNCHER]
    assert not store.seen(KEY, deaf).observed.hears_kueue
    assert store.seen(KEY).observed.hears_kueue


def test_what_changes_nothing_that_we_read_concerns_nobody() -> None:
    """The echo of our own write, another's annotation: no look is taken for them."""
    store = a_store()
    first = store.put(Kind.POD, pod(LAUNCHER, 9))
    noise = pod(LAUNCHER, 11)
    noise["metadata"]["managedFields"] = [{"manager": "x"}]
    noise["metadata"]["annotations"] = {"example.com/note": "x"}

    echoes = [store.put(Kind.POD, pod(LAUNCHER, 9)), store.put(Kind.POD, noise)]
    change = store.put(Kind.POD, {**pod(LAUNCHER, 12), "status": {"phase": "Succeeded"}})

    assert (first, echoes, change) == (KEY, [None, None], KEY)
    assert known(store)[0][2] == "12"


def test_a_child_that_is_known_in_its_version_is_not_read_again() -> None:
    """A watch brings back each object that the operator has written, as it was answered."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 9))
    seen = store.seen(KEY)

    echo = store.put(Kind.POD, pod(LAUNCHER, 9))

    assert echo is None
    assert store.seen(KEY, seen) is seen


def test_no_text_of_a_job_is_remembered_when_it_is_read() -> None:
    """As with what the API server sends: the memory of the store is that of what it holds."""
    store = Store()
    job = a_raw_job()
    store.put(Kind.JOB, {**job, "spec": {**job["spec"], "a-key-of-the-user": "a value of the user"}})

    once, again = (list((store.job(KEY) or {})["spec"]) for _ in range(2))

    assert once == again
    assert once[-1] is not again[-1]


def test_a_deleted_object_is_not_brought_back_by_a_late_answer() -> None:
    """Its UID is remembered; another pod of the name is welcome."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 1))
    store.drop(Kind.POD, pod(LAUNCHER, 2))

    store.put(Kind.POD, pod(LAUNCHER, 1))
    store.put(Kind.POD, pod(LAUNCHER, 5, uid="the-next"))

    assert known(store) == [(LAUNCHER, "the-next", "5")]


def test_a_deletion_is_forgotten_when_no_answer_is_under_way_any_more() -> None:
    """A watch that was silent brings what it has missed after minutes; a UID that stays holds memory."""
    now = 0.0
    store = Store(seconds=lambda: now)
    store.put(Kind.JOB, a_raw_job())
    store.put(Kind.POD, pod(LAUNCHER, 1))
    store.drop(Kind.POD, pod(LAUNCHER, 2))

    now = 299.0
    store.forget_deletions()
    store.put(Kind.POD, pod(LAUNCHER, 1))
    assert known(store) == []

    now = 301.0
    store.forget_deletions()
    assert f"{LAUNCHER}-uid" not in store._families[KEY].deletions


def test_a_deleted_job_is_not_brought_back_by_a_late_answer() -> None:
    """That of its last status, for example; its children's deletions are forgotten with it."""
    now = 0.0
    store = Store(seconds=lambda: now)
    store.put(Kind.JOB, a_raw_job())
    store.drop(Kind.POD, pod("sage-worker-0", 2))
    store.drop(Kind.JOB, a_raw_job())

    store.drop(Kind.POD, pod(LAUNCHER, 2))
    late = store.put(Kind.JOB, a_raw_job())

    assert (late, store.keys()) == (None, frozenset())
    assert list(store._deletions._times) == [a_raw_job()["metadata"]["uid"]]

    now = 301.0
    store.forget_deletions()
    assert a_raw_job()["metadata"]["uid"] not in store._deletions


def test_deletions_are_remembered_up_to_a_bound() -> None:
    """Whatever is made and deleted under our names."""
    store = a_store()
    for number in range(10_001):
        store.drop(Kind.POD, pod(LAUNCHER, 2, uid=f"uid-{number}"))

    deletions = store._families[KEY].deletions
    assert ("uid-0" in deletions, "uid-1" in deletions, "uid-10000" in deletions) == (False, True, True)


def test_a_deletion_that_comes_again_is_the_newest() -> None:
    """A watch that is taken up again may report it once more, and others come after it."""
    store = a_store()
    for number in (0, 1, 0, *range(2, 10_001)):
        store.drop(Kind.POD, pod(LAUNCHER, 2, uid=f"uid-{number}"))

    deletions = store._families[KEY].deletions
    assert ("uid-0" in deletions, "uid-1" in deletions) == (True, False)


def test_a_late_deletion_does_not_take_the_successor() -> None:
    """Another UID is another pod."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 5, uid="the-next"))

    store.drop(Kind.POD, pod(LAUNCHER, 2))

    assert known(store) == [(LAUNCHER, "the-next", "5")]


def test_a_list_drops_what_it_lacks_but_not_what_is_newer_than_itself() -> None:
    """A watch that expired reports no deletion; a pod made since the list is no loss."""
    store = a_store()
    for item in (pod("sage-worker-0", 3), pod("sage-worker-1", 4), pod("sage-worker-2", 12)):
        store.put(Kind.POD, item)

    concerned = store.drop_missing(Kind.POD, ["sage-worker-1-uid"], 10, everything)

    assert [name for name, _, _ in known(store)] == ["sage-worker-1", "sage-worker-2"]
    assert concerned == {KEY}


def test_a_list_of_one_namespace_or_kind_leaves_the_others() -> None:
    """The operator may watch several, and pods and Services of a job may share a name."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 1))

    store.drop_missing(Kind.POD, (), 10, lambda key: key.namespace == "elsewhere")
    store.drop_missing(Kind.SERVICE, (), 10, everything)

    assert len(known(store)) == 1


STRANGERS: dict[str, Json] = {
    "without an owner": {
        **pod(LAUNCHER, 1),
        "metadata": {**pod(LAUNCHER, 1)["metadata"], "ownerReferences": []},
    },
    "of another job": pod(LAUNCHER, 1, job="other", owner="other-uid"),
    "of a job that is gone": pod(LAUNCHER, 1, owner="an-older-uid"),
    "under a name that the job does not give": pod("sage-helper", 1),
    "of an index with a leading zero": pod("sage-worker-01", 1),
    "of a Deployment": {
        **pod(LAUNCHER, 1),
        "metadata": {
            **pod(LAUNCHER, 1)["metadata"],
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "Deployment",
                    "name": "sage",
                    "uid": "job-uid",
                    "controller": True,
                }
            ],
        },
    },
}


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_only_what_a_known_job_owns_and_names_is_kept(stranger: Json) -> None:
    """Users who label their objects as ours do not fill the operator's memory."""
    store = a_store()

    assert store.put(Kind.POD, stranger) is None
    assert known(store) == []


@pytest.mark.parametrize("stranger", STRANGERS.values(), ids=STRANGERS)
def test_only_the_deletion_of_what_a_known_job_owns_and_names_is_remembered(stranger: Json) -> None:
    """Users who label their objects as ours, and delete them, do not displace those of the job."""
    store = a_store()

    assert store.drop(Kind.POD, stranger) is None
    assert stranger["metadata"]["uid"] not in store._families[KEY].deletions


def test_a_known_child_goes_whatever_its_owner_is_called_at_last() -> None:
    """An owner reference can be changed; a late answer has the former one."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 1))

    concerned = store.drop(Kind.POD, pod(LAUNCHER, 2, owner="an-older-uid"))

    assert (concerned, store.put(Kind.POD, pod(LAUNCHER, 1)), known(store)) == (KEY, None, [])


def test_the_children_go_with_their_job() -> None:
    """The operator's memory returns when the jobs are gone."""
    store = a_store()
    store.put(Kind.POD, pod(LAUNCHER, 1))

    store.drop(Kind.JOB, a_raw_job())

    assert (store.keys(), store.job(KEY), store.seen(KEY).observed.pods) == (frozenset(), None, ())
    assert store.put(Kind.POD, pod(LAUNCHER, 2)) is None


def test_a_large_spec_is_not_kept_but_its_size_is() -> None:
    """It is read when its job is looked at."""
    store = Store()
    large = a_raw_job(args=("x" * KEPT_SPEC_BYTES,))

    store.put(Kind.JOB, large)

    kept = store.job(KEY)
    assert kept is not None
    assert "spec" not in kept
    assert kept[SPEC_SIZE] > KEPT_SPEC_BYTES


@given(st.lists(st.tuples(st.sampled_from(["put", "drop"]), st.integers(1, 9)), max_size=20))
def test_the_outcome_does_not_depend_on_the_order_of_puts(steps: list[tuple[str, int]]) -> None:
    """The newest version stands unless its UID was deleted."""
    store = a_store()
    for verb, version in steps:
        (store.put if verb == "put" else store.drop)(Kind.POD, pod(LAUNCHER, version))

    was_dropped = any(verb == "drop" for verb, _ in steps)
    versions = [version for verb, version in steps if verb == "put"]
    newest = [] if was_dropped or not versions else [(LAUNCHER, f"{LAUNCHER}-uid", str(max(versions)))]
    assert known(store) == newest
