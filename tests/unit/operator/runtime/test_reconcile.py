"""One look at a job against an API server in memory: what is created, written once, and left alone."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render.settings import Images, Rendering
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.cluster import ClusterBusy, Conflict, Refused
from dgl_operator.runtime.kinds import CHILDREN, Json, Key, Kind
from dgl_operator.runtime.metrics import Metrics
from dgl_operator.runtime.queue import Outcome
from dgl_operator.runtime.reconcile import Reconciler
from dgl_operator.runtime.store import Store
from dglrun.contract import names
from dglrun.contract.names import Mode
from tests.support.jobs import NOON, a_pod_status, a_raw_job, ended, running, waiting
from tests.support.memory_cluster import MemoryCluster, over_quota

KEY = Key("default", "sage")
SOON = 60.0
"""A look that is due later is one of a clock: a deadline, say."""


@dataclass
class PlayedLoad:
    """How busy an operator is, as the test says, and which jobs wait for a quiet moment."""

    busy: bool = False
    until_quiet: list[Key] = field(default_factory=list)

    def is_busy(self, key: Key) -> bool:
        return self.busy

    def wait_for_quiet(self, key: Key) -> None:
        self.until_quiet.append(key)


class Operator:
    """A reconciler with its cluster; `see` brings the store what a watch would bring."""

    def __init__(
        self,
        *jobs: Json,
        modes: frozenset[Mode] = frozenset(Mode),
        has_network_policy: bool = True,
        has_kueue: bool = False,
    ) -> None:
        self.cluster = MemoryCluster()
        self.modes, self.has_network_policy, self.has_kueue = modes, has_network_policy, has_kueue
        self.time = NOON
        for job in jobs or (a_raw_job(),):
            self.cluster.add(job)
        self.restart()

    def restart(self) -> None:
        """Begin with an empty memory."""
        self.store, self.metrics = Store(hears_kueue=self.has_kueue), Metrics()
        rendering = Rendering(Images("watcher:v1", "kubectl:v1"), self.has_network_policy, self.has_kueue)
        self.seconds = 0.0
        clock = Clock(lambda: self.time, lambda: self.seconds)
        self.load = PlayedLoad()
        self.reconcile = Reconciler(
            self.cluster, self.store, rendering, self.metrics, self.modes, clock, self.load
        )
        self.see()

    def see(self) -> None:
        queues = (Kind.WORKLOAD,) if self.has_kueue else ()
        for kind in (Kind.JOB, *CHILDREN, *queues):
            (page,) = self.cluster.pages(kind, None)
            for item in page.items:
                self.store.put(kind, item)
            uids = [item["metadata"]["uid"] for item in page.items]
            self.store.drop_missing(kind, uids, page.version, lambda _key: True)

    def unsee(self, pod: Json) -> None:
        """Let the store lack a pod that is there, as a late watch does."""
        self.store.drop(Kind.POD, pod)
        self.store._families[KEY].deletions.discard(pod["metadata"]["uid"])

    def look(self, key: Key = KEY) -> Outcome:
        """See all, reconcile once, and return the outcome; the journal has that look's writes alone."""
        self.see()
        self.cluster.writes.clear()
        self.cluster.reads.clear()
        return self.reconcile(key)

    def settle(self, key: Key = KEY) -> None:
        """Look until nothing is written and nothing is put off for less than a minute."""
        for _ in range(8):
            outcome = self.look(key)
            self.seconds += 1.0
            is_soon = outcome.recheck_after is not None and outcome.recheck_after < SOON
            if not self.cluster.writes and not is_soon:
                return
        raise AssertionError(f"still writing: {self.cluster.writes}")

    def settle_for(self, seconds: float) -> None:
        """Let time pass in steps as the operator asks for them, and settle."""
        end = self.time + timedelta(seconds=seconds)
        while self.time < end:
            left = (end - self.time).total_seconds()
            self.wait(min(left, self.look().recheck_after or left) or 1.0)
        self.settle()

    def wait(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.time += timedelta(seconds=seconds)
        self.seconds += seconds
        self.cluster.time = self.time.isoformat().replace("+00:00", "Z")

    def edit(self, **run_policy: object) -> None:
        """Change the job's run policy as a user does."""
        job = self.cluster.objects[Kind.JOB, "default", "sage"]
        spec = {**job["spec"], "runPolicy": {**job["spec"].get("runPolicy", {}), **run_policy}}
        generation = job["metadata"]["generation"] + 1
        self.cluster.add({**job, "metadata": {**job["metadata"], "generation": generation}, "spec": spec})

    def pod(self, name: str, status: Json) -> None:
        self.cluster.set_pod_status("default", name, status)

    @property
    def status(self) -> Json:
        return self.status_of(KEY)

    def status_of(self, key: Key) -> Json:
        found: Json = self.cluster.objects[Kind.JOB, key.namespace, key.name].get("status", {})
        return found

    def names(self, kind: Kind) -> set[str]:
        return {name for of, _, name in self.cluster.objects if of is kind}

    def config(self) -> dict[str, str]:
        data: dict[str, str] = self.cluster.objects[Kind.CONFIG_MAP, "default", "sage-config"]["data"]
        return data

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.cluster.events]


LAUNCHER_WAITS = a_pod_status(
    "Pending", ip="10.0.0.1", containers=[waiting()], init=[running("watcher-loop-partitioner")]
)
PARTITIONER_DONE = a_pod_status("Succeeded", ip="10.0.0.2")


def worker_status(index: int, *, ready: bool = True) -> Json:
    return a_pod_status("Running", ip=f"10.0.0.{10 + index}", ready=ready)


def partitioned(operator: Operator) -> None:
    """Play a job up to the creation of its workers."""
    operator.settle()
    operator.pod("sage-launcher", LAUNCHER_WAITS)
    operator.pod("sage-partitioner", PARTITIONER_DONE)
    operator.settle()


def training(operator: Operator, workers: int = 2) -> None:
    """Play a job into its training."""
    partitioned(operator)
    for index in range(workers):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.settle()
    operator.pod("sage-launcher", a_pod_status("Running", ip="10.0.0.1"))
    operator.settle()


def test_one_look_creates_all_that_a_new_job_needs() -> None:
    """Nothing is postponed to a next look."""
    operator = Operator()

    operator.look()

    assert operator.names(Kind.CONFIG_MAP) == {"sage-config", "sage-report"}
    assert operator.names(Kind.SERVICE) == {"sage"}
    for kind in (Kind.SERVICE_ACCOUNT, Kind.ROLE, Kind.ROLE_BINDING, Kind.POD):
        assert operator.names(kind) == {"sage-launcher", "sage-partitioner"}
    assert operator.status["phase"] == "Pending"
    assert operator.reasons() == ["Accepted"]


def test_a_skip_job_has_its_launcher_and_the_right_to_report() -> None:
    """No ConfigMap with addresses, no Service, no right to look at pods."""
    operator = Operator(a_raw_job(mode=Mode.SKIP))

    operator.settle()

    assert operator.names(Kind.POD) == {"sage-launcher"}
    assert operator.names(Kind.CONFIG_MAP) == {"sage-report"}
    assert operator.names(Kind.SERVICE) == set()
    rules = operator.cluster.objects[Kind.ROLE, "default", "sage-launcher"]["rules"]
    assert [rule["resources"] for rule in rules] == [["configmaps"]]


@pytest.mark.parametrize("mode", list(Mode))
def test_a_second_look_without_change_writes_and_reads_nothing(mode: Mode) -> None:
    """Not a status either, and nothing that a watch already brought."""
    operator = Operator(a_raw_job(mode=mode))
    operator.settle()

    operator.look()

    assert (operator.cluster.writes, operator.cluster.reads) == ([], [])


def test_a_restarted_operator_writes_nothing_in_any_phase() -> None:
    """What it must know stands in the cluster."""
    operator = Operator()
    steps: list[Callable[[], None]] = [
        operator.settle,
        lambda: operator.pod("sage-launcher", LAUNCHER_WAITS),
        lambda: operator.pod("sage-partitioner", a_pod_status("Running", ip="10.0.0.2")),
        lambda: operator.pod("sage-partitioner", PARTITIONER_DONE),
        lambda: operator.pod("sage-worker-0", worker_status(0, ready=False)),
        lambda: operator.pod("sage-worker-1", worker_status(1)),
        lambda: operator.pod("sage-launcher", a_pod_status("Running", ip="10.0.0.1")),
        lambda: operator.pod("sage-launcher", a_pod_status("Succeeded", ip="10.0.0.1")),
    ]
    phases = []
    for step in steps:
        step()
        operator.settle()
        operator.restart()

        operator.look()

        assert operator.cluster.writes == [], operator.status["phase"]
        phases.append(operator.status["phase"])
    assert phases == [
        "Pending",
        "Starting",
        "Partitioning",
        "Partitioned",
        "Partitioned",
        "Partitioned",
        "Training",
        "Completed",
    ]


def test_the_hostfile_is_published_whole_or_not_at_all() -> None:
    """One worker without an address keeps it empty."""
    operator = Operator(a_raw_job(workers=12))
    partitioned(operator)

    for index in range(11):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.settle()
    almost = operator.config()
    operator.pod("sage-worker-11", worker_status(11))
    operator.settle()
    whole = operator.config()

    assert (almost["hostfile"], almost["ipconfig"]) == ("", "")
    assert [line.split() for line in whole["hostfile"].splitlines()] == [
        [f"10.0.0.{10 + index}", "30050", f"sage-worker-{index}", "slots=1"] for index in range(12)
    ]
    assert len(whole["ipconfig"].splitlines()) == 12


def test_a_waiting_launcher_is_told_of_a_changed_config_map_by_its_annotation() -> None:
    """The ConfigMap first: the kubelet then finds the new one when it syncs."""
    operator = Operator()
    partitioned(operator)
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index))

    outcome = operator.look()
    first = list(operator.cluster.writes)
    operator.seconds += 0.5
    early = operator.look()
    between = list(operator.cluster.writes)
    operator.seconds += 0.5
    operator.look()

    assert first[:2] == ["apply ConfigMap sage-config", "mark Pod sage-launcher"]
    assert (outcome.recheck_after, between, early.recheck_after) == (1.0, [], 0.5)
    assert operator.cluster.writes == ["mark Pod sage-launcher"]
    operator.settle()


def test_a_launcher_that_runs_is_not_touched_any_more() -> None:
    """An annotation would be a write for nothing."""
    operator = Operator()
    training(operator)
    operator.pod("sage-worker-1", a_pod_status("Running", ip="10.0.0.99", ready=True))

    operator.look()

    assert "mark Pod sage-launcher" not in operator.cluster.writes


def test_the_milestones_are_written_before_anything_is_deleted() -> None:
    """An operator that dies in between must not make pods anew."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))

    operator.look()

    first, *others = operator.cluster.writes
    assert first == "status DGLJob sage"
    assert {"delete Pod sage-worker-0", "delete Pod sage-worker-1"} <= set(others)
    assert {write.partition(" ")[0] for write in others} == {"delete"}


def test_the_end_of_a_job_rests_on_a_fresh_read() -> None:
    """A watch may be late; the pod that it shows as missing may be there."""
    operator = Operator()
    training(operator)
    lost = operator.cluster.objects[Kind.POD, "default", "sage-worker-1"]
    operator.unsee(lost)
    operator.cluster.writes.clear()

    operator.reconcile(KEY)

    assert operator.status["phase"] == "Training"


def test_a_lost_worker_is_not_made_anew_within_its_attempt() -> None:
    """All pods go before the next one begins, and its name is the cause."""
    operator = Operator()
    training(operator)
    operator.cluster.remove(Kind.POD, "default", "sage-worker-1")

    operator.look()

    assert (operator.status["phase"], operator.status["attempt"]) == ("Pending", 1)
    assert "PodLost: pod sage-worker-1 is gone" in operator.status["message"]
    assert operator.names(Kind.POD) == set()


def test_counters_after_the_clean_up_equal_the_cluster() -> None:
    """Deleted workers are not counted as running for ever."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))

    operator.settle()

    assert operator.status["replicaStatuses"]["Worker"]["running"] == 0
    assert operator.status["replicaStatuses"]["Worker"]["ready"] == "0/2"
    assert operator.status["replicaStatuses"]["Launcher"]["succeeded"] == 1


def test_a_finished_job_never_moves() -> None:
    """Whatever becomes of its pods."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    operator.settle()
    operator.pod("sage-launcher", a_pod_status("Failed", containers=[ended(code=1)]))

    operator.settle()

    assert operator.status["phase"] == "Completed"
    assert operator.reasons().count("Completed") == 1


def test_a_deleted_config_map_returns() -> None:
    """All children are watched."""
    operator = Operator()
    partitioned(operator)
    before = operator.config()
    operator.cluster.remove(Kind.CONFIG_MAP, "default", "sage-config")

    operator.settle()

    assert operator.config() == before


def test_an_edited_role_is_put_right() -> None:
    """The job's rights are the operator's to say."""
    operator = Operator()
    operator.settle()
    role = operator.cluster.objects[Kind.ROLE, "default", "sage-launcher"]
    good = role["rules"]
    role["rules"] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]

    operator.settle()

    assert operator.cluster.objects[Kind.ROLE, "default", "sage-launcher"]["rules"] == good


def test_the_pods_own_words_in_the_report_are_no_drift() -> None:
    """The operator renders the report without data and never takes them away."""
    operator = Operator()
    operator.settle()
    operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]["data"] = {
        "progress.json": '{"stage": "Partitioning", "percent": 40}'
    }

    operator.look()

    assert operator.cluster.writes == ["status DGLJob sage"]
    assert operator.status["progress"] == {"stage": "Partitioning", "message": "", "percent": 40}


def test_progress_is_copied_every_few_seconds_at_most() -> None:
    """A chatty job does not flood the API server."""
    operator = Operator()
    operator.settle()
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    report["data"] = {"progress.json": '{"stage": "Training", "percent": 1}'}
    operator.look()
    report["data"] = {"progress.json": '{"stage": "Training", "percent": 2}'}

    outcome = operator.look()

    assert operator.cluster.writes == []
    assert outcome.recheck_after is not None
    assert 0 < outcome.recheck_after <= 3


def test_a_malformed_report_is_told_of_once() -> None:
    """And harms nothing else."""
    operator = Operator()
    operator.settle()
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    report["data"] = {"progress.json": "{", "partition.json": '{"numParts": 2}'}

    operator.settle()
    operator.settle()

    assert operator.reasons().count("Malformed") == 1
    assert operator.status["partition"] == {"numParts": 2}


FOREIGN: list[tuple[Kind, Json]] = [
    (
        Kind.POD,
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sage-launcher", "namespace": "default"}},
    ),
    (
        Kind.CONFIG_MAP,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "sage-config", "namespace": "default"},
        },
    ),
    (
        Kind.ROLE,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {
                "name": "sage-launcher",
                "namespace": "default",
                "labels": {names.LABEL_JOB: "sage"},
                "ownerReferences": [{"kind": "Other", "name": "x", "uid": "other", "controller": True}],
            },
        },
    ),
]


@pytest.mark.parametrize(("kind", "body"), FOREIGN)
def test_an_object_of_another_owner_is_reported_and_never_taken(kind: Kind, body: Json) -> None:
    """Not even when it carries our label."""
    operator = Operator()
    foreign = operator.cluster.add(body)

    outcome = operator.look()

    assert outcome.retry
    assert operator.cluster.objects[kind, "default", body["metadata"]["name"]] == foreign
    blocked = next(each for each in operator.status["conditions"] if each["type"] == "Blocked")
    assert (blocked["status"], blocked["reason"]) == ("True", "ObjectConflict")
    assert body["metadata"]["name"] in blocked["message"]


def test_the_job_goes_on_when_the_foreign_object_is_gone() -> None:
    """A predecessor's pods vanish on their own."""
    operator = Operator()
    operator.cluster.add(FOREIGN[0][1])
    operator.look()
    operator.cluster.remove(Kind.POD, "default", "sage-launcher")

    operator.settle()

    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}
    assert "BlockedResolved" in operator.reasons()


def test_a_pod_that_was_created_but_not_seen_yet_is_taken_for_ours() -> None:
    """The watch is later than the write; no conflict with oneself."""
    operator = Operator()
    operator.settle()
    operator.unsee(operator.cluster.objects[Kind.POD, "default", "sage-launcher"])
    operator.cluster.writes.clear()

    operator.reconcile(KEY)

    assert operator.cluster.writes == []


def test_a_spent_quota_shows_in_the_condition_with_the_servers_words() -> None:
    """Creation errors are not swallowed."""
    operator = Operator()
    operator.cluster.admit = over_quota("Pod")

    outcome = operator.look()

    assert outcome.retry
    assert operator.status["phase"] == "Pending"
    assert operator.status["message"] == (
        'QuotaExceeded: Pod sage-worker-0: pods "sage-worker-0" is forbidden: exceeded quota: small'
    )
    assert "QuotaExceeded" in operator.reasons()


def test_a_quota_that_many_write_at_once_is_asked_again() -> None:
    """The API server answers 409 for its counter, which says nothing about the job."""
    operator = Operator()
    allowed = operator.cluster.admit

    def conflict(body: Json) -> None:
        if body["kind"] == "Pod":
            raise Conflict(409, "Conflict", "Operation cannot be fulfilled on resourcequotas: try again")

    operator.cluster.admit = conflict
    outcome = operator.look()
    operator.cluster.admit = allowed
    operator.settle()

    assert outcome.retry
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}
    assert (operator.status["phase"], operator.reasons()) == ("Pending", ["Accepted"])


DENIALS = [
    Refused(400, "", 'admission webhook "team.example" denied the request: label team is missing'),
    Refused(
        422,
        "Invalid",
        "pods \"sage-launcher\" is forbidden: ValidatingAdmissionPolicy 'team' with binding 'team' denied "
        "request: label team is missing",
    ),
    Refused(403, "Forbidden", 'violates PodSecurity "restricted:latest"'),
]


@pytest.mark.parametrize("denial", DENIALS, ids=["webhook", "policy", "pod security"])
def test_a_policy_that_denies_blocks_the_job_and_does_not_end_it(denial: Refused) -> None:
    """An administrator may change it; that is not the template's fault."""
    operator = Operator()

    def admit(body: Json) -> None:
        if body["kind"] == "Pod":
            raise denial

    operator.cluster.admit = admit
    outcome = operator.look()
    blocked = next(each for each in operator.status["conditions"] if each["type"] == "Blocked")
    operator.cluster.admit = lambda _body: None
    operator.settle()

    assert outcome.retry
    assert blocked["status"] == "True"
    assert operator.status["phase"] == "Pending"
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_what_a_job_reports_never_keeps_its_end_from_being_written() -> None:
    """A server that refuses the report's values still takes the phase."""
    operator = Operator()
    training(operator)
    take = operator.cluster.write_status

    def strict(job: Json, status: Json) -> Json:
        if "progress" in status:
            raise Refused(422, "Invalid", "status.progress.time: Invalid value")
        return take(job, status)

    operator.cluster.write_status = strict  # type: ignore[assignment,method-assign]
    report = operator.cluster.objects[Kind.CONFIG_MAP, "default", "sage-report"]
    operator.cluster.add({**report, "data": {"progress.json": '{"stage": "Training"}'}})
    operator.pod("sage-launcher", a_pod_status("Succeeded", ip="10.0.0.1"))
    operator.look()

    assert operator.status["phase"] == "Completed"


def test_a_label_taken_off_our_config_map_is_put_back() -> None:
    """A watch by label reports it as deleted; its changes must not be lost from then on."""
    operator = Operator()
    operator.settle()
    place = (Kind.CONFIG_MAP, "default", "sage-config")
    bare = copy.deepcopy(operator.cluster.objects[place])
    operator.store.drop(Kind.CONFIG_MAP, bare)
    del bare["metadata"]["labels"][names.LABEL_JOB]
    operator.cluster.objects[place] = bare

    operator.reconcile(KEY)
    operator.settle()

    assert operator.cluster.objects[place]["metadata"]["labels"][names.LABEL_JOB] == "sage"
    assert ("ConfigMap", "sage-config") in operator.store.seen(KEY).observed.objects


def test_a_refused_annotation_does_not_stop_the_job() -> None:
    """The kubelet refreshes the ConfigMap by itself, later."""
    operator = Operator()
    partitioned(operator)

    def refuse(*_given: object) -> None:
        raise Refused(403, "Forbidden", "pods is forbidden")

    operator.cluster.mark = refuse  # type: ignore[assignment,method-assign]
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.look()

    assert next(e for e in operator.status["conditions"] if e["type"] == "WorkersReady")["status"] == "True"
    operator.pod("sage-launcher", a_pod_status("Running", ip="10.0.0.1"))
    operator.look()
    assert operator.status["phase"] == "Training"


def test_a_refused_read_is_shown_as_a_hindrance_until_it_is_granted() -> None:
    """A right that was withdrawn stops the job visibly and for as long as it lasts."""
    operator = Operator()
    partitioned(operator)
    allowed = operator.cluster.get

    def refuse(*_given: object) -> None:
        raise Refused(403, "Forbidden", "dgljobs is forbidden")

    operator.pod("sage-launcher", a_pod_status("Succeeded", ip="10.0.0.1"))
    operator.cluster.get = refuse  # type: ignore[assignment,method-assign]
    outcome = operator.look()
    blocked = next(each for each in operator.status["conditions"] if each["type"] == "Blocked")

    assert outcome.retry
    assert (blocked["status"], blocked["reason"]) == ("True", "Forbidden")
    operator.cluster.get = allowed  # type: ignore[method-assign]
    operator.look()
    blocked = next(each for each in operator.status["conditions"] if each["type"] == "Blocked")
    assert (operator.status["phase"], blocked["status"]) == ("Completed", "False")


def test_a_refused_status_is_tried_again_and_counted() -> None:
    """Where nothing can be told, the look ends all the same and the next one comes."""
    operator = Operator()

    def refuse(*_given: object) -> None:
        raise Refused(403, "Forbidden", "dgljobs/status is forbidden")

    operator.cluster.write_status = refuse  # type: ignore[assignment,method-assign]

    assert operator.look().retry
    assert b"dgl_operator_reconcile_errors_total 1.0" in operator.metrics.text()


def test_the_time_of_the_last_change_is_told() -> None:
    """And a look without a change does not count."""
    operator = Operator()
    operator.settle()

    assert operator.status["lastReconcileTime"] == "2026-11-21T12:00:00Z"


def test_a_worker_that_is_no_pod_fails_the_job_before_the_partitioning() -> None:
    """The API server is asked by a dry run."""
    operator = Operator()

    def admit(body: Json) -> None:
        if body["metadata"]["name"] == "sage-worker-0":
            raise Refused(422, "Invalid", "spec.containers[0].resources: Invalid value")

    operator.cluster.admit = admit

    operator.look()

    assert operator.names(Kind.POD) == set()
    assert operator.status["message"].startswith("InvalidSpec: Pod sage-worker-0: spec.containers[0]")


BROKEN: list[tuple[str, Callable[[Json], object]]] = [
    ("no launcher", lambda spec: spec["dglReplicaSpecs"].pop("Launcher")),
    ("no worker", lambda spec: spec["dglReplicaSpecs"].pop("Worker")),
    (
        "no containers",
        lambda spec: spec["dglReplicaSpecs"]["Worker"]["template"]["spec"].update(containers=[]),
    ),
    ("no template", lambda spec: spec["dglReplicaSpecs"]["Launcher"].pop("template")),
    ("a mistyped mode", lambda spec: spec.update(partitionMode="METIS")),
    ("two launchers", lambda spec: spec["dglReplicaSpecs"]["Launcher"].update(replicas=2)),
    ("text for a pod", lambda spec: spec["dglReplicaSpecs"]["Worker"]["template"].update(spec="pod")),
]


@pytest.mark.parametrize(("_what", "spoil"), BROKEN, ids=[what for what, _ in BROKEN])
def test_an_invalid_job_fails_and_the_valid_one_beside_it_goes_on(
    _what: str, spoil: Callable[[Json], object]
) -> None:
    """One bad job never disturbs another."""
    bad = a_raw_job("bad", uid="bad-uid")
    spoil(bad["spec"])
    operator = Operator(bad, a_raw_job())

    operator.settle(Key("default", "bad"))
    operator.settle()

    status = operator.status_of(Key("default", "bad"))
    assert status["phase"] == "Failed"
    assert status["completionTime"] == "2026-11-21T12:00:00Z"
    assert {each["reason"] for each in status["conditions"]} == {"InvalidSpec"}
    assert operator.names(Kind.POD) == {"sage-launcher", "sage-partitioner"}


def test_an_unsupported_mode_fails_at_once_with_its_own_reason() -> None:
    """Until the back ends are in the image."""
    operator = Operator(a_raw_job(mode=Mode.PARMETIS), modes=frozenset({Mode.DGL_API, Mode.SKIP}))

    operator.settle()

    assert operator.status["phase"] == "Failed"
    assert operator.status["message"].startswith(
        "PartitionModeUnsupported: spec.partitionMode: expected one of"
    )
    assert operator.names(Kind.POD) == set()


def test_a_running_job_outlives_a_stricter_operator() -> None:
    """Rules are for new jobs."""
    operator = Operator(a_raw_job(mode=Mode.PARMETIS))
    operator.settle()
    operator.modes = frozenset({Mode.DGL_API})
    operator.restart()

    operator.settle()

    assert operator.status["phase"] == "Pending"


def test_a_job_that_is_being_deleted_is_left_alone() -> None:
    """The garbage collector does the rest."""
    operator = Operator()
    operator.settle()
    operator.cluster.objects[Kind.JOB, *KEY]["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    operator.cluster.remove(Kind.POD, "default", "sage-launcher")

    operator.look()

    assert operator.cluster.writes == []


def test_a_job_that_is_gone_is_no_error() -> None:
    """Its pods' last events still call for it."""
    operator = Operator()
    operator.settle()
    operator.cluster.remove(Kind.JOB, *KEY)

    assert operator.look() == Outcome()
    assert operator.cluster.writes == []


def test_a_job_deleted_unseen_does_not_fail_for_its_pods() -> None:
    """The fresh read before the end finds no job any more."""
    operator = Operator()
    training(operator)
    operator.cluster.remove(Kind.JOB, *KEY)
    gone = operator.cluster.remove(Kind.POD, "default", "sage-worker-0")
    operator.store.drop(Kind.POD, gone)
    operator.cluster.writes.clear()

    operator.reconcile(KEY)

    assert operator.cluster.writes == []


@pytest.mark.parametrize("is_read_first", [True, False])
def test_what_is_remembered_of_a_job_goes_with_it(is_read_first: bool) -> None:
    """Whether a watch tells that it is gone or a fresh read, after which the watch's news are none."""
    operator = Operator()
    partitioned(operator)
    for index in range(2):
        operator.pod(f"sage-worker-{index}", worker_status(index))
    operator.look()  # the launcher's annotation has its first half
    looks = operator.reconcile
    remembered = [looks._writer._written, looks._creations._attempts, looks._sync._annotated]
    before = [list(each) for each in remembered]  # type: ignore[call-overload]

    operator.cluster.remove(Kind.JOB, *KEY)
    if is_read_first:
        gone = operator.cluster.remove(Kind.POD, "default", "sage-worker-0")
        operator.store.drop(Kind.POD, gone)
        operator.reconcile(KEY)
    else:
        operator.look()

    assert before == [[KEY], [KEY], [KEY]]
    assert remembered == [{}, {}, {}]


def test_a_status_is_not_written_onto_a_successor_of_the_same_name() -> None:
    """The watch may still show the deleted job; its end is not the next one's."""
    operator = Operator()
    training(operator)
    operator.cluster.remove(Kind.JOB, *KEY)
    operator.cluster.add(a_raw_job(uid="the-next"))
    operator.pod("sage-worker-0", a_pod_status("Running", ip="10.0.0.10", ready=False))
    pod = operator.cluster.objects[Kind.POD, "default", "sage-worker-0"]
    operator.store.put(Kind.POD, pod)

    outcome = operator.reconcile(KEY)

    assert outcome.retry
    assert operator.status == {}


def test_a_server_that_is_down_is_the_queues_business() -> None:
    """Nothing is decided without it."""
    operator = Operator()
    operator.cluster.is_down = True

    with pytest.raises(ClusterBusy):
        operator.reconcile(KEY)


def test_metrics_count_each_transition_once() -> None:
    """Also over many looks."""
    operator = Operator()
    training(operator)
    operator.pod("sage-launcher", a_pod_status("Succeeded"))
    operator.settle()
    operator.settle()

    text = operator.metrics.text().decode()

    assert "dgl_operator_jobs_created_total 1.0" in text
    assert "dgl_operator_jobs_succeeded_total 1.0" in text


def test_events_name_the_job_and_fit() -> None:
    """The API server refuses messages above 1024 characters."""
    operator = Operator()
    partitioned(operator)
    operator.pod("sage-launcher", a_pod_status("Failed", containers=[ended(code=9, message="x" * 4000)]))

    operator.settle()

    event = operator.cluster.events[-1]
    assert (event["type"], event["reason"]) == ("Warning", "TrainingFailed")
    assert event["involvedObject"]["uid"] == "job-uid"
    assert len(event["message"]) == 1024


def test_the_job_model_is_the_one_that_is_stored() -> None:
    """The builders speak the API's language."""
    assert DGLJob.parse(a_raw_job()).metadata["name"] == "sage"
