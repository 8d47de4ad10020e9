"""The Workload of a job, and what its admission adds to the pods."""

from typing import Any

from dgl_operator.api import kueue
from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import workload
from dgl_operator.render.merge import Json
from dgl_operator.render.workload import Placement, Priority
from dglrun.contract.names import Mode
from tests.support import golden
from tests.support.jobs import IMAGES, a_raw_job, a_template

WORKER = {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi", "nvidia.com/gpu": 1}}


def a_queued_job(labels: Json | None = None, **given: Any) -> DGLJob:
    raw = a_raw_job(**given)
    found = {"kueue.x-k8s.io/queue-name": "mine", **(labels or {})}
    return DGLJob.parse({**raw, "metadata": {**raw["metadata"], "labels": found}})


def rendered(job: DGLJob) -> Json:
    return workload.workload(job, IMAGES, Priority("kueue.x-k8s.io/workloadpriorityclass", "urgent", 7))


def test_the_workload_asks_for_what_the_pods_ask_for() -> None:
    """Pod sets with the operator's own containers; no command, no variable."""
    job = a_queued_job(workers=3, worker=a_template(resources=WORKER, env=[{"name": "TOKEN", "value": "x"}]))

    golden.check("render/workload", golden.as_yaml([rendered(job)]))


def test_each_mode_has_the_pod_sets_of_its_pods() -> None:
    """The gang are the workers: they come after the partitioner."""

    def sets(mode: Mode) -> dict[str, int]:
        return {each["name"]: each["count"] for each in rendered(a_queued_job(mode=mode))["spec"]["podSets"]}

    assert sets(Mode.DGL_API) == sets(Mode.PARMETIS) == {"launcher": 1, "partitioner": 1, "workers": 2}
    assert sets(Mode.DIST_PARMETIS) == {"launcher": 1, "workers": 2}
    assert sets(Mode.SKIP) == {"launcher": 1}


def test_the_class_of_the_label_comes_before_that_of_the_pods() -> None:
    """As it is for a Job."""
    launcher = a_template()
    launcher["spec"]["priorityClassName"] = "pods"

    labelled = a_queued_job({"kueue.x-k8s.io/priority-class": "urgent"}, launcher=launcher)

    assert kueue.priority_class(labelled) == ("kueue.x-k8s.io/workloadpriorityclass", "urgent")
    assert kueue.priority_class(a_queued_job(launcher=launcher)) == (
        "scheduling.k8s.io/priorityclass",
        "pods",
    )
    assert kueue.priority_class(a_queued_job()) == ("", "")


def test_pods_take_what_their_admission_gives() -> None:
    """The flavor's nodes win over the template's, the template's labels over those of a check."""
    flavor = {"spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [{"key": "spot"}]}}
    update = {"tolerations": [{"key": "spot"}, {"key": "b"}], "labels": {"x": "check", "y": "check"}}
    pod = {
        "metadata": {"labels": {"x": "own"}, "annotations": {}},
        "spec": {"nodeSelector": {"pool": "any", "disk": "ssd"}, "tolerations": [{"key": "own"}]},
    }

    placed = workload.placed(pod, workload.placement([flavor], [update]))

    assert placed["spec"] == {
        "nodeSelector": {"pool": "spot", "disk": "ssd"},
        "tolerations": [{"key": "own"}, {"key": "spot"}, {"key": "b"}],
    }
    assert placed["metadata"]["labels"] == {"x": "own", "y": "check"}
    assert workload.placed(pod, Placement({})) == pod
