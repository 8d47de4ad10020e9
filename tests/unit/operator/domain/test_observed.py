"""Reading pods: containers are judged one by one, addresses are IPv4 or none."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_operator.domain import reduced, report
from dgl_operator.domain.observed import Observed, Pod, Problem
from dgl_operator.render import access, config, network
from dgl_operator.render.config import Addresses
from dgl_operator.runtime.is_applied import is_met
from dglrun.contract import names
from dglrun.contract.names import Role
from tests.support.jobs import Json, a_child, a_job, a_pod, ended, observed, running, waiting
from tests.support.junk import Path, paths, put

JOB = a_job()


def seen_pod(role: Role = Role.LAUNCHER, phase: str = "Running", **given: Any) -> Pod:
    return observed(JOB, a_pod(JOB, role, phase, **given)).pods[0]


def test_a_launcher_whose_main_container_ended_well_has_succeeded_while_its_sidecar_runs() -> None:
    """Sidecars do not keep a job from ending."""
    pod = seen_pod(phase="Running", containers=[ended(), running("proxy")])

    assert pod.succeeded
    assert not pod.stopped


def test_a_sidecar_that_fails_after_the_main_container_does_not_fail_the_pod() -> None:
    """The pod's phase is Failed then, the launcher's work is done all the same."""
    pod = seen_pod(phase="Failed", containers=[ended(), ended("proxy", 1)])

    assert (pod.succeeded, pod.failed) == (True, False)


def test_a_failed_init_container_fails_the_pod() -> None:
    """The user's own init container counts, too."""
    pod = seen_pod(phase="Failed", containers=[waiting()], init=[ended("fetch", 4, "no such bucket")])

    assert pod.failed
    assert pod.first_failure is not None
    assert (pod.first_failure.container, pod.first_failure.exit_code) == ("fetch", 4)


def test_the_main_container_is_the_one_that_was_rendered() -> None:
    """A webhook may put its sidecar first."""
    raw = a_pod(JOB, Role.LAUNCHER, containers=[running("mesh"), ended("main")])
    raw["spec"]["containers"].insert(0, {"name": "mesh", "image": "mesh"})

    assert observed(JOB, raw).pods[0].succeeded


def test_workers_are_sorted_by_integer_index() -> None:
    """Worker 10 comes after worker 2."""
    job = a_job(workers=12)
    raw = [a_pod(job, Role.WORKER, index=index) for index in (10, 2, 11, 0, 1)]

    assert [pod.index for pod in observed(job, *raw).of_role(Role.WORKER)] == [0, 1, 2, 10, 11]


def test_pods_of_another_owner_are_not_seen() -> None:
    """A predecessor of the same name leaves pods behind for a while."""
    old = a_pod(JOB, Role.LAUNCHER, owner="the-job-before")

    assert observed(JOB, old) == Observed()


@pytest.mark.parametrize(
    ("status", "ip"),
    [
        ({"podIPs": [{"ip": "fd00::1"}, {"ip": "10.0.0.1"}]}, "10.0.0.1"),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}, "10.0.0.1"),
        ({"podIPs": [{"ip": "fd00::1"}], "podIP": "fd00::1"}, None),
        ({"podIPs": []}, None),
    ],
)
def test_an_address_is_ipv4_or_none(status: dict[str, Any], ip: str | None) -> None:
    """DGL takes no other family; dual-stack pods have both."""
    assert seen_pod(**status).ip == ip


def test_an_ipv6_only_pod_is_a_problem_that_is_said() -> None:
    """Otherwise the job would wait for ever without a word."""
    pod = seen_pod(podIPs=[{"ip": "fd00::1"}], podIP="fd00::1")

    assert pod.problem == Problem(
        "NoIPv4Address", "pod sage-launcher has the address fd00::1; DGL uses IPv4 only"
    )


def test_pull_errors_have_one_reason_although_the_kubelet_alternates() -> None:
    """ErrImagePull and ImagePullBackOff take turns; the reason must not."""
    reasons = {
        seen_pod(phase="Pending", containers=[waiting(reason=reason, message="no such tag")]).problem
        for reason in ("ErrImagePull", "ImagePullBackOff")
    }

    assert reasons == {Problem("ImagePullBackOff", "pod sage-launcher, container main: no such tag")}


def test_an_unschedulable_pod_says_why() -> None:
    """The scheduler's own words reach the status."""
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes: cpu",
    }
    pod = seen_pod(phase="Pending", containers=[], conditions=[condition])

    assert pod.problem == Problem("Unschedulable", "pod sage-launcher: 0/1 nodes: cpu")


@pytest.mark.parametrize("labels", [None, {}, {names.LABEL_REPLICA_TYPE: "Boss", names.LABEL_INDEX: "x"}])
def test_a_pods_role_and_index_come_from_its_name(labels: dict[str, str] | None) -> None:
    """Anybody who may label pods could otherwise stop the operator from reading the job."""
    raw = a_pod(JOB, Role.WORKER, index=1)
    raw["metadata"]["labels"] = labels

    (pod,) = observed(JOB, raw).pods

    assert (pod.role, pod.index) == (Role.WORKER, 1)


@pytest.mark.parametrize(
    "name",
    ["sage", "sage-worker-", "sage-worker-01", "sage-worker-x", "sage-worker-²", "sage-worker-1-0",
     "sage-worker-" + "9" * 40, "other-launcher", "sage-launcher-0"],
)  # fmt: skip
def test_a_pod_with_a_name_that_the_job_does_not_give_is_ignored(name: str) -> None:
    """Whatever its labels and its owner say."""
    raw = a_pod(JOB, Role.WORKER)
    raw["metadata"]["name"] = name

    assert observed(JOB, raw) == Observed()


def test_an_address_in_a_spelling_that_only_the_api_server_takes_is_none() -> None:
    """Leading zeros are legal there."""
    pod = seen_pod(podIPs=[{"ip": "010.0.0.1"}], podIP="010.0.0.1")

    assert pod.ip is None
    assert pod.problem is not None


def a_busy_pod() -> Json:
    """A pod with all that is read of one."""
    conditions = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"},
        {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drain",
         "lastTransitionTime": "2026-11-21T11:58:00Z"},
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "True"},
    ]  # fmt: skip
    raw = a_pod(
        JOB, Role.LAUNCHER, "Failed", ip="10.0.0.1", deleting=True, conditions=conditions, reason="Evicted",
        message="full", startTime="2026-11-21T11:00:00Z",
        containers=[ended(code=3, message="no"), waiting("side", "ErrImagePull", "no tag")],
        init=[running("watcher-loop-worker"), {**waiting("old"), "lastState": ended()["state"]}],
    )  # fmt: skip
    raw["metadata"] |= {"deletionGracePeriodSeconds": 30, "managedFields": [{}], "generation": 3}
    raw["spec"]["activeDeadlineSeconds"] = 100
    return raw


ODD: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from(
        [0, -1, 2**63, 1.5, "", "x", "True", "10.0.0.300", "2026-11-21T11:59:00", "0001-01-01"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "state", "terminated", "ip", "type", "uid", "running"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=5,
)
READ = [path for path in paths(a_busy_pod()) if path and path not in {("kind",), ("metadata", "name")}]


@settings(max_examples=300)
@given(st.lists(st.tuples(st.sampled_from(READ), ODD), max_size=3))
def test_reading_a_pod_never_raises_and_its_reduced_form_says_the_same(
    changes: list[tuple[Path, Any]],
) -> None:
    """Who may write the status of a pod hurts at most their own job."""
    raw = a_busy_pod()
    for path, junk in sorted(changes, key=lambda change: -len(change[0])):
        raw = put(raw, path, junk)
    kept = reduced.pod(raw)

    assert reduced.pod(kept) == kept
    assert observed(JOB, kept) == observed(JOB, raw)


@settings(max_examples=60)
@given(st.randoms(use_true_random=False), st.sets(st.sampled_from(READ), max_size=6))
def test_a_pod_with_keys_missing_and_shuffled_is_read(order: Any, missing: set[Path]) -> None:
    """The API server leaves out what is empty."""

    def shuffled(value: Any, path: Path = ()) -> Any:
        if isinstance(value, list):
            return [shuffled(each, (*path, at)) for at, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        kept = [key for key in value if (*path, key) not in missing]
        order.shuffle(kept)
        return {key: shuffled(value[key], (*path, key)) for key in kept}

    raw = shuffled(a_busy_pod())

    assert observed(JOB, reduced.pod(raw)) == observed(JOB, raw)


def test_a_reduced_pod_holds_what_is_read_and_little_else() -> None:
    """Ten thousand pods stand in memory."""
    raw = a_busy_pod()
    raw["metadata"]["annotations"]["foreign"] = "x" * 100_000
    raw["status"]["message"] = "y" * 100_000
    raw["status"]["containerStatuses"] += [running(f"side-{index}") for index in range(100)]

    kept = reduced.pod(raw)

    assert set(kept["metadata"]) == {
        "name", "namespace", "uid", "resourceVersion", "labels", "annotations", "ownerReferences",
        "deletionTimestamp", "deletionGracePeriodSeconds",
    }  # fmt: skip
    assert "foreign" not in kept["metadata"]["annotations"]
    assert len(kept["status"]["message"]) == 4096
    assert len(kept["status"]["containerStatuses"]) == 64
    assert kept["status"]["containerStatuses"][0]["name"] == "main"
    assert len(str(kept)) < 20_000


def test_of_very_many_containers_the_main_one_and_those_that_run_are_kept() -> None:
    """Otherwise a pod whose sidecar runs would count as stopped."""
    raw = a_pod(
        JOB, Role.LAUNCHER, containers=[*(ended(f"s{n}") for n in range(80)), ended(), running("late")]
    )

    kept = [each["name"] for each in reduced.pod(raw)["status"]["containerStatuses"]]

    assert kept[-2:] == ["main", "late"]


def others(workers: int = 2) -> list[Json]:
    """What the job has beside its pods."""
    job = a_job(workers=workers)
    everyone = frozenset({"sage-launcher", "sage-partitioner", *names.workers("sage", workers)})
    addresses = Addresses("10.0.0.1", "10.0.0.2", tuple(f"10.0.1.{at % 250}" for at in range(workers)))
    return [
        config.config_map(job, addresses), config.report(job), network.service(job), network.policy(job),
        *access.accounts(job), *access.rights(job, everyone),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body", others(workers=1000), ids=lambda body: f"{body['kind']} {body['metadata']['name']}"
)
def test_a_reduced_object_can_still_be_compared_with_what_is_rendered(body: Json) -> None:
    """And foreign keys are gone."""
    stored = a_child(body, "uid-1")
    stored["metadata"] |= {"annotations": {"foreign": "x"}, "managedFields": [{}]}
    stored["metadata"]["labels"] = {**stored["metadata"]["labels"], "foreign": "x"}
    stored |= {"binaryData": {"big": "x"}, "secrets": [{"name": "x"}]}

    kept = reduced.other(stored)

    assert is_met(body, kept)
    assert reduced.other(kept) == kept
    assert "foreign" not in str(kept)
    assert not {"binaryData", "secrets"} & set(kept)


@pytest.mark.parametrize("body", others(), ids=lambda body: f"{body['kind']} {body['metadata']['name']}")
def test_a_changed_object_differs_in_its_reduced_form_too(body: Json) -> None:
    """A rule more, another port or a longer file is to be corrected."""
    for key, change in {
        "rules": [{"verbs": ["*"]}], "subjects": [], "roleRef": {}, "spec": {}, "data": {},
    }.items():  # fmt: skip
        if key in body:
            assert not is_met(body, reduced.other({**a_child(body, "uid-1"), key: change}))


def test_a_report_that_is_too_long_is_still_refused_when_it_is_reduced() -> None:
    """The job's pods may write a megabyte of it; one character more than is read is kept."""
    stored = {**a_child(config.report(JOB), "uid-1"), "data": {"progress.json": "x" * 10**6, "other": "y"}}

    kept = reduced.other(stored)

    assert len(str(kept)) < 20_000
    assert report.read(kept["data"]).problems == ("progress.json: expected at most 16384 bytes, got more",)


@settings(max_examples=80)
@given(st.integers(0, len(others()) - 1), st.lists(st.tuples(st.integers(0, 59), ODD), max_size=2))
def test_reducing_an_object_never_raises(which: int, changes: list[tuple[int, Any]]) -> None:
    """Whatever stands where."""
    raw = a_child(others()[which], "uid-1")
    for at, junk in changes:
        places = [path for path in paths(raw)[:60] if path]
        raw = put(raw, places[at % len(places)], junk)

    kept = reduced.other(raw)

    assert reduced.other(kept) == kept
