"""What happens to a job while its operator is killed, and what must be true of it at its end."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from dgl_operator.api.v1alpha1 import Phase
from dgl_operator.runtime.cluster import NotFound
from dgl_operator.runtime.kinds import Json, Kind
from tests.faults import kubelet
from tests.faults.matrix import on_played_nodes
from tests.faults.world import Hold, World
from tests.support.api_client import ApiServer
from tests.support.jobs import a_template, ended
from tests.support.played_job import PlayedJob, a_played_job, reported
from tests.support.wait import wait_for

PATIENCE = 600.0
"""An operator that lives for a second at a time needs many lives for a job."""
TEST_LIMIT = 2400
"""Seconds that pytest gives a test of stories: it has waited so long twice when it reports what is stuck."""
_MERGE = "application/merge-patch+json"


@dataclass(frozen=True)
class Story:
    """One course of a job.

    Attributes:
        held: The phase in which something happens to it.
        act: What.
        end: Its final phase, None for a job that is deleted on its way.
        reason: Of its failure, or of the end of its first attempt.
        restarts: What `status.restarts` must be, without pods replaced within an attempt.
        policy: Its `runPolicy`.
    """

    held: Phase
    act: "Callable[[Course], None]"
    end: Phase | None = Phase.COMPLETED
    reason: str = ""
    restarts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    policy: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))


class Course:
    """One job of a story on the cluster."""

    def __init__(self, api: ApiServer, world: World, name: str, story: Story) -> None:
        self.api, self.world, self.story = api, world, story
        self._hold = Hold(until=story.held)
        world.hold(name, self._hold)
        self.job = PlayedJob(api, world.namespace, a_job(name, story))

    def run(self) -> None:
        """Play the story to its end, and delete the job whatever came of it: nothing of it may be left.

        Raises:
            AssertionError: the job's end is another than that of the story.
            TimeoutError: it has not come.
        """
        try:
            self._play()
        finally:
            with suppress(NotFound):  # a story may have deleted it
                self.job.delete()

    def _play(self) -> None:
        self.job.await_phase(self.story.held.value, PATIENCE)
        self.story.act(self)
        if self.story.end is None:
            return
        status = self.job.await_phase(self.story.end.value, PATIENCE)
        self._judge(status)

    def _judge(self, status: Json) -> None:
        counted = {k: n for k, n in (status.get("restarts") or {}).items() if n and k != "pods"}
        assert counted == dict(self.story.restarts), f"restarts: {counted}"
        records = [each["number"] for each in status["attempts"]]
        due = list(range(1 + sum(self.story.restarts.values())))
        assert (records, status.get("attempt", 0)) == (due, due[-1]), f"attempts: {records}"
        told = status["attempts"][0]["reason"]
        assert told == (self.story.reason or "LauncherSucceeded"), f"reason: {told}"

    def go_on(self, attempt: int = 0) -> None:
        """Let the attempts up to this one get to their end."""
        self._hold = replace(self._hold, until=Phase.COMPLETED, attempt=attempt)
        self.world.hold(self.job.name, self._hold)

    def fail(self, suffix: str) -> None:
        """Let the main container of a pod of this moment fail."""
        pod = self.pod(suffix)
        status = reported("Failed", ip=pod["status"]["podIP"], containers=[ended(code=7, at=kubelet.now())])
        self.world.report(pod, status)

    def pod(self, suffix: str) -> Json:
        """The pod, when its node has nothing more to do with it."""
        name = f"{self.job.name}-{suffix}"
        return wait_for(name, lambda: self.world.settled(self.job.name, name), PATIENCE)

    def edit(self, **policy: object) -> None:
        """Change the job's run policy as a user does."""
        path = Kind.JOB.path(self.job.namespace, self.job.name)
        self.api.call("PATCH", path, {"spec": {"runPolicy": policy}}, _MERGE)


def a_job(name: str, story: Story) -> Json:
    """The job of a story."""
    return on_played_nodes(a_played_job(name, partitioner=a_template(), runPolicy=dict(story.policy)))


def _nothing(course: Course) -> None:
    course.go_on()


def _launcher_fails(course: Course) -> None:
    course.fail("launcher")


def _partitioner_fails(course: Course) -> None:
    course.fail("partitioner")


def _worker_goes(course: Course) -> None:
    course.job.delete_pod("worker-1")


def _suspended(course: Course) -> None:
    course.edit(suspend=True)
    course.job.await_phase("Suspended", PATIENCE)
    course.edit(suspend=False)


def _deleted(course: Course) -> None:
    course.job.delete()


def _starter_goes(course: Course) -> None:
    """The launcher had no work: it is made anew within the attempt."""
    old = course.pod("launcher")["metadata"]["uid"]
    course.job.delete_pod("launcher")
    wait_for("another launcher", lambda: _is_another(course, old), PATIENCE)
    course.go_on()


def _is_another(course: Course, uid: str) -> bool:
    found = course.api.get(Kind.POD, course.job.namespace, f"{course.job.name}-launcher")
    return found is not None and found["metadata"]["uid"] != uid


STORIES: Mapping[str, Story] = {
    "undisturbed": Story(Phase.STARTING, _nothing),
    "retried": Story(
        Phase.TRAINING,
        _launcher_fails,
        reason="TrainingFailed",
        restarts={"failures": 1},
        policy={"backoffLimit": 1},
    ),
    "failed": Story(Phase.TRAINING, _launcher_fails, Phase.FAILED, "TrainingFailed"),
    "not-partitioned": Story(Phase.PARTITIONING, _partitioner_fails, Phase.FAILED, "PartitionFailed"),
    "worker-lost": Story(Phase.TRAINING, _worker_goes, reason="PodLost", restarts={"disruptions": 1}),
    "replaced": Story(Phase.STARTING, _starter_goes),
    "suspended": Story(Phase.PARTITIONING, _suspended, reason="JobSuspended", restarts={"suspensions": 1}),
    "deleted": Story(Phase.PARTITIONED, _deleted, end=None),
}
REPLACING = ("replaced",)
"""Stories in which a pod of one name is made twice within an attempt, since it had no work."""


def drawn(rng: random.Random) -> str:
    """The name of a story."""
    return rng.choice(sorted(STORIES))
