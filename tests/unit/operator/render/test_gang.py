"""The group of the workers in both APIs, and how workers name it: golden files and promises."""

import pytest

from dgl_operator.api.gang import GangApi
from dgl_operator.render import desired, gang
from dglrun.contract.names import Role
from tests.support import golden
from tests.support.jobs import IMAGES, a_job

POLICY = {"minAvailable": 3, "priorityClass": "high"}
FULL = {**POLICY, "minResources": {"cpu": 12, "memory": "96Gi"}, "scheduleTimeoutSeconds": 60}
JOBS = {
    GangApi.KUBERNETES: a_job(workers=4, runPolicy={"schedulingPolicy": POLICY}),
    GangApi.COSCHEDULING: a_job(workers=4, runPolicy={"schedulingPolicy": FULL}),
}


@pytest.mark.parametrize("api", list(GangApi))
def test_a_gang_renders_as_its_golden_file_says(api: GangApi) -> None:
    """The group and one of its members."""
    job = JOBS[api]

    group = gang.pod_group(job, api)
    (worker,) = desired.first_pods(job, frozenset({Role.WORKER}), IMAGES, api)

    golden.check(f"render/gang-{api.name.lower()}", golden.as_yaml([group, worker]))


@pytest.mark.parametrize("api", list(GangApi))
def test_all_workers_are_the_gang_unless_the_job_says_fewer(api: GangApi) -> None:
    """Kubeflow's default counts the launcher, which cannot wait for workers that come after it."""
    job = a_job(workers=7, runPolicy={"schedulingPolicy": {}})

    spec = gang.pod_group(job, api)["spec"]

    assert spec in ({"schedulingPolicy": {"gang": {"minCount": 7}}}, {"minMember": 7})


@pytest.mark.parametrize("api", list(GangApi))
def test_launcher_and_partitioner_are_no_members(api: GangApi) -> None:
    """Workers come after the partition that these two make."""
    job, roles = JOBS[api], frozenset(Role)

    alone = list(desired.pods(job, roles, IMAGES))
    together = list(desired.pods(job, roles, IMAGES, api=api))

    differ = [pod["metadata"]["name"] for pod, other in zip(alone, together, strict=True) if pod != other]
    assert differ == [f"sage-worker-{index}" for index in range(4)]


def test_a_job_without_a_policy_has_no_group() -> None:
    """Whoever asks for one has made a mistake."""
    with pytest.raises(LookupError):
        gang.pod_group(a_job(), GangApi.KUBERNETES)
