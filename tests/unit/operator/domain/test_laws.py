"""Laws that hold for every job: names, owners, determinism, final phases."""

import re
from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import DGLJob, Phase, Progress
from dgl_operator.domain import decide, status, verdict
from dgl_operator.domain.observed import Observed
from dgl_operator.domain.report import Report
from dgl_operator.render import desired
from dgl_operator.render.config import Addresses
from dgl_operator.render.settings import Rendering
from dglrun.contract import names
from dglrun.contract.names import Mode, Role
from tests.support.jobs import (
    IMAGES,
    NOON,
    Json,
    a_job,
    a_pod,
    a_status,
    a_template,
    ended,
    observed,
    running,
    waiting,
)

DNS = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")

job_names = st.from_regex(r"[a-z]([-a-z0-9]{0,49}[a-z0-9])?", fullmatch=True)
resources = st.sampled_from(
    [{}, {"limits": {"memory": "3Gi"}}, {"limits": {"memory": "1500M", "amd.com/gpu": 1}}]
)


@st.composite
def jobs(draw: st.DrawFn) -> DGLJob:
    """Valid jobs of all modes."""
    return a_job(
        draw(job_names),
        mode=draw(st.sampled_from(Mode)),
        workers=draw(st.sampled_from([1, 2, 11, 1000])),
        worker=a_template(resources=draw(resources)),
        slotsPerWorker=draw(st.integers(1, 8)),
        cleanPodPolicy=draw(st.sampled_from(["Running", "All", "None"])),
    )


def rendered(job: DGLJob) -> list[dict[str, Any]]:
    roles = frozenset(role for role in Role if verdict.wanted(job, role))
    workers = len(verdict.wanted(job, Role.WORKER))
    objects = desired.objects(job, Addresses("10.0.0.1", None, ("10.0.0.2",) * workers))
    pods = tuple(desired.pods(job, roles, IMAGES))
    policies = desired.policies(job, Rendering(IMAGES))
    return [*objects, *policies, *pods, *desired.rights(job, names_of(pods))]


def names_of(pods: Iterable[Json]) -> frozenset[str]:
    return frozenset(pod["metadata"]["name"] for pod in pods)


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_every_rendered_object_is_named_labelled_and_owned(job: DGLJob) -> None:
    """DNS-safe names and label values of at most 63 characters, the job label, the job as controller."""
    for body in rendered(job):
        metadata = body["metadata"]
        assert DNS.fullmatch(metadata["name"])
        assert len(metadata["name"]) <= 63
        assert all(len(value) <= 63 and LABEL.fullmatch(value) for value in metadata["labels"].values())
        assert metadata["labels"][names.LABEL_JOB] == job.metadata["name"]
        assert metadata["ownerReferences"][0]["uid"] == job.metadata["uid"]
        assert metadata["ownerReferences"][0]["controller"]


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_rendering_is_deterministic(job: DGLJob) -> None:
    """The same job gives the same objects, and each name only once."""
    first, second = rendered(job), rendered(job)

    assert first == second
    assert len({(body["kind"], body["metadata"]["name"]) for body in first}) == len(first)


@settings(max_examples=25, deadline=None)
@given(jobs())
def test_what_decide_wants_is_what_is_rendered(job: DGLJob) -> None:
    """Domain and rendering are blind to each other and agree on the pods' names."""
    pods = {body["metadata"]["name"] for body in rendered(job) if body["kind"] == "Pod"}

    assert pods == {name for role in Role for name in verdict.wanted(job, role)}


@settings(max_examples=40, deadline=None)
@given(jobs(), st.data())
def test_no_right_names_a_pod_that_is_not_the_jobs_own(job: DGLJob, data: st.DataObject) -> None:
    """Whichever pods are there; with all of them there is everything that has to be deleted at the end."""
    roles = frozenset(role for role in Role if verdict.wanted(job, role))
    everyone = sorted(names_of(desired.pods(job, roles, IMAGES)))
    own = data.draw(st.sets(st.sampled_from(everyone)) | st.just(set(everyone)))

    granted = desired.rights(job, frozenset(own))

    rules = [rule for body in granted if body["kind"] == "Role" for rule in body["rules"]]
    on_pods = [rule for rule in rules if rule["resources"] != ["configmaps"]]
    assert all(rule["resourceNames"] and own.issuperset(rule["resourceNames"]) for rule in on_pods)
    given_names = {(body["kind"], body["metadata"]["name"]) for body in granted}
    assert given_names <= set(desired.rights_names(job))
    assert own != set(everyone) or given_names == set(desired.rights_names(job))


pod_states: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [
        {"phase": "Pending", "containers": []},
        {"phase": "Pending", "containers": [waiting()], "init": [running("kubectl-download")]},
        {"phase": "Running", "ready": True},
        {"phase": "Running", "containers": [ended(), running("side")]},
        {"phase": "Running", "deleting": True},
        {"phase": "Succeeded", "deleting": "2026-11-21T11:59:00Z"},
        {"phase": "Succeeded"},
        {"phase": "Failed", "containers": [ended(code=1)]},
        {"phase": "Failed", "containers": [], "reason": "Evicted", "message": "full"},
    ]
)


@st.composite
def sights(draw: st.DrawFn, job: DGLJob) -> Observed:
    """Any pods of the job in any state."""
    pods = []
    for role in Role:
        for index, _ in enumerate(verdict.wanted(job, role)):
            if draw(st.booleans()):
                pods.append(a_pod(job, role, index=index, ip=f"10.0.0.{index}", **draw(pod_states)))
    return observed(job, *pods)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_phases_never_move_back_and_final_ones_never_move(data: st.DataObject) -> None:
    """Over any sequence of sights, with the status written after each."""
    raw: dict[str, Any] = {}
    mode = data.draw(st.sampled_from(Mode))
    order = list(Phase)
    before = Phase.PENDING
    finals: set[Phase] = set()
    for _ in range(data.draw(st.integers(1, 6))):
        job = a_job(mode=mode, status=raw)
        seen = data.draw(sights(job))
        said = Report(Progress(stage="Completed") if data.draw(st.booleans()) else None)
        decision = decide.decide(job, seen, said, NOON)
        new = status.next_status(job.status, 1, decision, status.count(job, seen), Report(), NOON)

        assert new.phase is not None
        is_next = new.attempt > job.status.attempt
        assert is_next or new.phase is Phase.FAILED or order.index(new.phase) >= order.index(before)
        assert not decision.stop or job.status.phase in (Phase.COMPLETED, Phase.FAILED)
        finals |= {new.phase} if new.phase.is_final else set()
        assert len(finals) <= 1
        assert job.status.phase is None or not job.status.phase.is_final or new.phase is job.status.phase
        before, raw = new.phase, new.wire()


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_milestones_once_reached_are_kept_while_the_attempt_lasts(data: st.DataObject) -> None:
    """Whatever becomes of the pods; the next attempt has reached nothing."""
    job = a_job(status=a_status("Partitioned", verdict.PARTITIONED, verdict.LAUNCHER_STARTED))
    seen = data.draw(sights(job))

    decision = decide.decide(job, seen, Report(), NOON)
    new = status.next_status(job.status, 1, decision, {}, Report(), NOON)

    is_same = new.attempt == job.status.attempt
    assert verdict.reached(new, verdict.PARTITIONED) is is_same
    assert verdict.reached(new, verdict.LAUNCHER_STARTED) is is_same
