"""Laws of the state machine of attempts, over any sequence of pod events, edits, restarts and clock moves."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dgl_operator.api.v1alpha1 import MAX_REPLACED
from dgl_operator.domain import hold
from dgl_operator.runtime.kinds import Json, Kind
from dglrun.contract import names
from tests.support.jobs import a_pod_status, a_raw_job, ended, running, waiting
from tests.unit.operator.runtime.test_reconcile import Operator

EVICTED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "lastTransitionTime": "2026-11-21T11:00:00Z",
}
STATES: dict[str, Json] = {
    "begins": a_pod_status("Pending", containers=[waiting()], init=[running("kubectl-download")]),
    "runs": a_pod_status("Running", ip="10.0.0.9", ready=True),
    "succeeds": a_pod_status("Succeeded", ip="10.0.0.9"),
    "fails": a_pod_status("Failed", containers=[ended(code=3)]),
    "is rejected": a_pod_status("Failed", containers=[], reason="OutOfcpu", message="full"),
    "cannot be pulled": a_pod_status("Pending", containers=[waiting(reason="ErrImagePull", message="no")]),
    "is evicted": {**a_pod_status("Failed", containers=[ended(code=143)]), "conditions": [EVICTED]},
}
ORDINARY = ("begins", "runs", "succeeds")
LIMIT, ACTIVE, START = 2, 100_000, 600


def _has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _runs(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


class Attempts(RuleBasedStateMachine):
    """A job with few attempts, a hostile cluster, and an operator that is restarted now and then."""

    def __init__(self) -> None:
        super().__init__()
        policy = {"backoffLimit": LIMIT, "startDeadlineSeconds": START, "activeDeadlineSeconds": ACTIVE}
        self.operator = Operator(a_raw_job(runPolicy=policy))
        self.operator.cluster.is_graceful = True
        self.created: list[tuple[str, int]] = []
        self.attempt = 0
        self.phase = ""
        self._watch_creations()

    def _watch_creations(self) -> None:
        create = self.operator.cluster.create

        def noted(body: Json, **given: Any) -> Json:
            stored = create(body, **given)
            if body["kind"] == "Pod" and not given.get("rehearse"):
                number = int(body["metadata"]["labels"][names.LABEL_ATTEMPT])
                assert number == self.operator.status.get("attempt", 0)
                assert all(of == number for of in self.attempts_of_pods()), "two attempts at once"
                self.created.append((body["metadata"]["name"], number))
            return stored

        self.operator.cluster.create = noted  # type: ignore[method-assign]

    def pods(self) -> list[Json]:
        return [item for (kind, _, _), item in self.operator.cluster.objects.items() if kind is Kind.POD]

    def attempts_of_pods(self) -> list[int]:
        return [int(pod["metadata"]["labels"][names.LABEL_ATTEMPT]) for pod in self.pods()]

    @rule()
    def look(self) -> None:
        """As often as it likes: a look too many changes nothing."""
        self.operator.look()

    @precondition(lambda self: self.pods())
    @rule(data=st.data(), state=st.sampled_from(sorted(STATES)))
    def pod_event(self, data: st.DataObject, state: str) -> None:
        """Report what a kubelet may; what has ended stays so."""
        pod = data.draw(st.sampled_from(self.pods()))
        if not _has_ended(pod):
            self.operator.pod(pod["metadata"]["name"], STATES[state])
        self.operator.look()

    @rule()
    def progress(self) -> None:
        """Let the job get on: the partitioner succeeds, the workers run, then the launcher runs."""
        running_workers = [pod for pod in self.pods() if "-worker-" in pod["metadata"]["name"] and _runs(pod)]
        for pod in self.pods():
            name = pod["metadata"]["name"]
            is_early = name.endswith("-launcher") and not running_workers
            state = "succeeds" if name.endswith("-partitioner") else "begins" if is_early else "runs"
            if not _has_ended(pod):
                self.operator.pod(name, STATES[state])
        self.operator.look()

    @rule(replaces=st.booleans())
    def launcher_trains(self, replaces: bool) -> None:
        """Let it say that it trains, and whether it goes on when a lost worker is replaced."""
        for _ in range(4):
            self.progress()
        found = self.operator.cluster.objects.get((Kind.CONFIG_MAP, "default", "sage-report"))
        if found is not None:
            said = {"stage": "Training", **({"replaces": True} if replaces else {})}
            found["data"] = {"progress.json": json.dumps(said)}
        self.operator.look()

    @rule(how=st.sampled_from(["fails", "fails", "is evicted"]))
    def attempt_ends(self, how: str) -> None:
        """Take the job into its training and out of it: else few runs would come to a third attempt."""
        for _ in range(4):
            self.progress()
        for pod in self.pods():
            if pod["metadata"]["name"].endswith("-launcher"):
                self.operator.pod(pod["metadata"]["name"], STATES[how])
        self.operator.look()
        self.deletions_end()
        self.time_passes(361)

    @precondition(lambda self: self.pods())
    @rule(data=st.data(), is_seen=st.booleans())
    def pod_goes(self, data: st.DataObject, is_seen: bool) -> None:
        """Delete a pod by hand, with or without its grace period."""
        pod = data.draw(st.sampled_from(self.pods()))
        if is_seen:
            pod["metadata"]["deletionTimestamp"] = self.operator.cluster.time
            self.operator.cluster.add(pod)
        else:
            self.operator.cluster.remove(Kind.POD, "default", pod["metadata"]["name"])
        self.operator.look()

    @rule()
    def deletions_end(self) -> None:
        """Let the kubelets say that what is being deleted has ended."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.operator.cluster.remove(Kind.POD, "default", pod["metadata"]["name"])
        self.operator.look()

    @rule(seconds=st.sampled_from([1, 10, 61, 361, 700, 4000, -3600]))
    def time_passes(self, seconds: int) -> None:
        """The time of day may jump back, too."""
        self.operator.wait(seconds)
        self.operator.look()

    @rule(is_suspended=st.booleans())
    def suspend(self, is_suspended: bool) -> None:
        self.operator.edit(suspend=is_suspended)
        self.operator.look()

    @rule()
    def restart(self) -> None:
        """A new process knows what stands in the cluster."""
        self.operator.restart()

    @invariant()
    def attempts_are_bounded_and_never_move_back(self) -> None:
        status = self.operator.status
        restarts = status.get("restarts") or {}
        assert restarts.get("failures", 0) <= LIMIT
        assert restarts.get("disruptions", 0) + restarts.get("ignored", 0) <= hold.MAX_UNCOUNTED
        assert restarts.get("workers", 0) <= MAX_REPLACED
        made = sum(count for cause, count in restarts.items() if cause not in ("pods", "workers"))
        assert status.get("attempt", 0) == made
        assert status.get("attempt", 0) >= self.attempt
        self.attempt = status.get("attempt", 0)

    @invariant()
    def an_end_is_an_end(self) -> None:
        phase = self.operator.status.get("phase", "")
        assert self.phase not in ("Completed", "Failed") or phase == self.phase
        self.phase = phase

    @invariant()
    def a_status_agrees_with_itself(self) -> None:
        status = self.operator.status
        said = {each["type"]: each["status"] for each in status.get("conditions", [])}
        assert (said.get("Suspended") == "True") == (status.get("phase") == "Suspended") or (
            status.get("phase") in ("Completed", "Failed")
        )
        assert (status.get("phase") == "Failed") == (said.get("Failed") == "True")
        numbers = [each["number"] for each in status.get("attempts", [])]
        assert numbers == sorted(set(numbers))

    def teardown(self) -> None:
        """From wherever it is, an undisturbed job ends, or waits for a named thing."""
        for _ in range(300):
            self.deletions_end()
            outcome = self.operator.look()
            if outcome.recheck_after is None and not self.operator.cluster.writes:
                break
            self.operator.wait(max(1.0, outcome.recheck_after or 1.0))
        status = self.operator.status
        if status.get("phase") == "Suspended":
            assert self.pods() == []
            return
        assert status["phase"] in ("Completed", "Failed"), status
        assert status["message"]
        assert status["completionTime"]


Attempts.TestCase.settings = settings(max_examples=50, stateful_step_count=20, deadline=None)
TestAttempts = Attempts.TestCase
