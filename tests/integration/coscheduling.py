"""Gang scheduling by coscheduling of scheduler-plugins: the tests of Kubernetes' own, with its scheduler.

`make coscheduling` runs it, the gate does not: the scheduler takes minutes to build.
"""

from collections.abc import Iterator

import pytest

from dgl_operator.runtime.kinds import Kind
from tests.integration.test_gang import (  # noqa: F401 - tests and the fixture of their node
    Gangs,
    node,
    test_a_replaced_worker_and_a_new_attempt_join_the_same_gang,
    test_without_a_policy_a_part_of_the_workers_takes_the_room,
    test_workers_get_their_nodes_together_or_not_at_all,
)
from tests.support import coscheduling
from tests.support.api_client import ApiServer

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def scheduler(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the running scheduler."""
    with coscheduling.running(api, tmp_path_factory.mktemp("coscheduling")) as log:
        yield coscheduling.SCHEDULER
        print(log.read_text()[-8000:])


@pytest.fixture
def gangs(scheduler: str) -> Gangs:
    """Coscheduling, also where the cluster has Kubernetes' own: that knows no such time."""
    return Gangs(Kind.COSCHEDULING_POD_GROUP, {"scheduleTimeoutSeconds": 20}, scheduler)
