"""The followers between the API client and the wait."""

from collections.abc import Iterator

import pytest

from dglrun.kube.errors import Forbidden, Unavailable
from dglrun.kube.pods import Pod
from dglrun.pod_waiter import follow
from dglrun.pod_waiter.follow import Followers
from dglrun.pod_waiter.pod_state import Look
from tests.unit.dglrun.pod_waiter import builders

SECONDS = 20.0


def test_a_role_that_is_not_known_yet_is_waited_for() -> None:
    """Right after its creation a binding may be unknown to an API server: 403 is tried again."""
    answers: Iterator[Forbidden | Pod] = iter(
        [Forbidden("not yet"), builders.a_pod(builders.ready("10.0.0.1"))]
    )

    def following(_name: str) -> Iterator[Pod | None]:
        answer = next(answers)
        if isinstance(answer, Forbidden):
            raise answer
        yield answer
        raise Unavailable("enough")

    followers = Followers(following)
    followers.add("job-worker-0")
    news = [followers.news.get(timeout=SECONDS) for _ in range(2)]

    assert isinstance(news[0].look, Look)
    assert news[0].look.is_ready
    assert isinstance(news[1].look, Unavailable)


def test_a_role_that_stays_away_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the grace the refusal itself is the news."""
    monkeypatch.setattr(follow, "GRACE_SECONDS", 0.1)

    def following(name: str) -> Iterator[Pod | None]:
        raise Forbidden(f"pods {name} is forbidden")
        yield None

    followers = Followers(following)
    followers.add("job-worker-0")
    news = followers.news.get(timeout=SECONDS)

    assert isinstance(news.look, Forbidden)


def test_a_pod_is_followed_once() -> None:
    """The file is read ten times a second; one watch for each pod is enough."""
    started: list[str] = []

    def following(name: str) -> Iterator[Pod | None]:
        started.append(name)
        yield None
        raise Unavailable("enough")

    followers = Followers(following)
    for _ in range(3):
        followers.add("job-worker-0")
    for _ in range(2):
        followers.news.get(timeout=SECONDS)

    assert started == ["job-worker-0"]
