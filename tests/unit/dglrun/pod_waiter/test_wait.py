"""The wait with an API server that refuses to show the pods at first."""

import threading
from pathlib import Path
from queue import SimpleQueue

import pytest

from dglrun.kube.errors import Forbidden
from dglrun.pod_waiter import wait
from dglrun.pod_waiter.config import Config, WatchMode
from dglrun.pod_waiter.follow import Followers, News
from dglrun.pod_waiter.pod_state import PodSnapshot
from tests.unit.dglrun.pod_waiter import builders

SECONDS = 20.0


def test_403_without_any_deadline_is_waited_out_and_told_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line after 15 s and then each minute names the pods and the API server's words; none before."""
    monkeypatch.setattr(wait, "FORBIDDEN_SECONDS", 0.2)
    monkeypatch.setattr(wait, "HEARTBEAT_SECONDS", 0.3)
    hosts = builders.workers(7)
    builders.publish(tmp_path / "hostfile", hosts)
    config = Config("graphs", tmp_path / "hostfile", WatchMode.READY, 7, None, None)
    followers = Followers(lambda _name: iter(()))
    monkeypatch.setattr(followers, "add", lambda _name: None)
    said: SimpleQueue[str] = SimpleQueue()
    waiting = threading.Thread(target=wait.wait, args=(config, followers, said.put), daemon=True)
    for host in hosts:
        followers.news.put(News(host.name, Forbidden(f'pods "{host.name}" is forbidden')))

    waiting.start()
    told = [line for line in (said.get(timeout=SECONDS) for _ in range(6)) if line.startswith("not allowed")]
    for host in hosts:
        followers.news.put(News(host.name, PodSnapshot.at(builders.a_pod(builders.ready(host.ip)))))
    waiting.join(SECONDS)

    assert not waiting.is_alive()
    named = ", ".join(host.name for host in hosts[:5])
    assert len(told) >= 2
    assert set(told) == {f'not allowed to see {named} and 2 more yet: pods "job-worker-0" is forbidden'}


def test_the_end_of_named_pods_is_awaited_without_the_file(tmp_path: Path) -> None:
    """The kubelet brings a changed partfile up to a minute later, and its address is not needed."""
    config = Config("graphs", tmp_path / "none", WatchMode.FINISHED, 1, None, None, ("job-partitioner",))
    finished = PodSnapshot.at(builders.a_pod({"phase": "Succeeded"}))
    followers = Followers(lambda _name: iter(()))
    followers.news.put(News("job-partitioner", finished))
    said: SimpleQueue[str] = SimpleQueue()

    wait.wait(config, followers, said.put)

    assert said.get(timeout=SECONDS) == "1 of 1 finished"
