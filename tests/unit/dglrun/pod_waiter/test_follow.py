"""The followers between the API client and the wait."""

import threading
from collections.abc import Iterator

import pytest

from dglrun.kube.errors import Forbidden, Unavailable
from dglrun.kube.pods import Pod
from dglrun.kube.retry import Backoff
from dglrun.pod_waiter import follow
from dglrun.pod_waiter.follow import Followers
from dglrun.pod_waiter.pod_state import PodSnapshot
from tests.unit.dglrun.pod_waiter import builders

SECONDS = 60.0


def test_403_is_told_and_asked_again() -> None:
    """The operator creates the Role after the pods: a refusal is news, but not the end of the watch."""
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
    news = [followers.news.get(timeout=SECONDS) for _ in range(3)]

    assert isinstance(news[0].found, Forbidden)
    assert isinstance(news[1].found, PodSnapshot)
    assert news[1].found.is_ready
    assert isinstance(news[2].found, Unavailable)


def test_403_is_asked_again_for_as_long_as_the_wait_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadlines are those of the wait; a follower has none of its own."""
    monkeypatch.setattr(follow, "FORBIDDEN", Backoff(first=0.01, longest=0.01))

    answers = iter([*[Forbidden("not yet")] * 20, Unavailable("enough")])

    def following(_name: str) -> Iterator[Pod | None]:
        raise next(answers)
        yield None

    followers = Followers(following)
    followers.add("job-worker-0")
    news = [followers.news.get(timeout=SECONDS) for _ in range(21)]

    assert all(isinstance(each.found, Forbidden) for each in news[:20])
    assert isinstance(news[20].found, Unavailable)


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


def test_the_stacks_of_other_threads_stay_as_they_are() -> None:
    """A follower's is small; the setting is the whole process's."""
    threading.stack_size(0)  # what the kernel gives

    def following(_name: str) -> Iterator[Pod | None]:
        raise Unavailable("enough")
        yield None

    followers = Followers(following)
    followers.add("job-worker-0")
    followers.news.get(timeout=SECONDS)

    assert threading.stack_size() == 0
