"""An API server that is slow, refuses, and does what it is asked while it says that it has not."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import unreliable, world
from tests.faults.unreliable import Fate
from tests.kills.ledger import Ledger
from tests.kills.run import may_be_made_again
from tests.kills.stories import STORIES, TEST_LIMIT, Course
from tests.support.api_client import ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.wait import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(TEST_LIMIT)]
SHARE = 0.2
"""Of all requests of the operator."""
EXPIRED = 5
"""Watches that the operator has to begin anew with a list."""


def test_answers_that_are_late_refused_or_untrue_change_no_end(
    api: ApiServer, kubeconfig: Path, tmp_path: Path
) -> None:
    """409, 410, 429, 500 and 503 to one request in five: nothing is lost, doubled or left."""
    fate = Fate(seed=7, share=SHARE, expired=EXPIRED)
    with (
        world.running(api, "unreliable") as (played, _nodes),
        unreliable.before(api, kubeconfig, tmp_path, fate) as through_proxy,
    ):
        ledger = Ledger(api, played.namespace)
        operator = OperatorProcess(through_proxy, played.namespace, tmp_path / "operator.log")
        try:
            operator.wait_ready()
            with ThreadPoolExecutor(len(STORIES)) as pool:
                courses = [
                    pool.submit(Course(api, played, f"{name}-0", story).run)
                    for name, story in STORIES.items()
                ]
                for course in courses:
                    course.result()
            wait_for("the end of all objects", lambda: not api.everything(played.namespace), 120)
            assert operator.is_running
        finally:
            operator.kill()
        ledger.check()

    assert ledger.made.twice(may_be_made_again) == []
    assert {"slow", "lost", "409", "429", "500", "503"} <= set(fate.counts), fate.counts
    assert fate.counts["410"] >= EXPIRED, fate.counts
