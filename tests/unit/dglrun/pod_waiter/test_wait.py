"""The wait itself, with news that the tests bring."""

import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from dglrun.contract.hostfile import Host
from dglrun.kube.errors import Forbidden
from dglrun.pod_waiter import wait
from dglrun.pod_waiter.config import WaiterConfig, WatchMode
from dglrun.pod_waiter.follow import Followers, News
from dglrun.pod_waiter.pod_state import PodSnapshot
from tests.unit.dglrun.pod_waiter import builders

SECONDS = 60.0


class BroughtNews(Followers):
    """Follows nobody: a test puts the news there."""

    def __init__(self) -> None:
        super().__init__(lambda _name: iter(()))

    def add(self, name: str) -> None:
        """Watch nothing."""


def a_config(
    folder: Path,
    hosts: tuple[Host, ...],
    mode: WatchMode = WatchMode.READY,
    timeout: float | None = None,
    appear_timeout: float | None = None,
) -> WaiterConfig:
    """A wait for these hosts, whose file is whole."""
    builders.publish(folder / "hostfile", hosts)
    return WaiterConfig("graphs", folder / "hostfile", mode, len(hosts), timeout, appear_timeout)


def put(followers: Followers, host: Host, status: dict[str, Any]) -> None:
    """Bring the news of a pod."""
    followers.news.put(News(host.name, PodSnapshot.at(builders.a_pod(status))))


def test_403_without_any_deadline_is_waited_out_and_told_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line after 15 s and then each minute names the pods and the API server's words; none before."""
    monkeypatch.setattr(wait, "FORBIDDEN_SECONDS", 0.2)
    monkeypatch.setattr(wait, "HEARTBEAT_SECONDS", 0.3)
    hosts = builders.workers(7)
    config, followers = a_config(tmp_path, hosts), BroughtNews()
    said: SimpleQueue[str] = SimpleQueue()
    waiting = threading.Thread(target=wait.wait, args=(config, followers, said.put), daemon=True)
    for host in hosts:
        followers.news.put(News(host.name, Forbidden(f'pods "{host.name}" is forbidden')))

    waiting.start()
    told = [line for line in (said.get(timeout=SECONDS) for _ in range(6)) if line.startswith("not allowed")]
    for host in hosts:
        put(followers, host, builders.ready(host.ip))
    waiting.join(SECONDS)

    assert not waiting.is_alive()
    named = ", ".join(host.name for host in hosts[:5])
    assert len(told) >= 2
    assert set(told) == {f'not allowed to see {named} and 2 more yet: pods "job-worker-0" is forbidden'}


def test_the_end_of_named_pods_is_awaited_without_the_file(tmp_path: Path) -> None:
    """The kubelet brings a changed partfile up to a minute later, and its address is not needed."""
    config = WaiterConfig(
        "graphs", tmp_path / "none", WatchMode.FINISHED, 1, None, None, ("job-partitioner",)
    )
    finished = PodSnapshot.at(builders.a_pod({"phase": "Succeeded"}))
    followers = BroughtNews()
    followers.news.put(News("job-partitioner", finished))
    said: SimpleQueue[str] = SimpleQueue()

    wait.wait(config, followers, said.put)

    assert said.get(timeout=SECONDS) == "1 of 1 finished"


@pytest.mark.parametrize("mode", list(WatchMode))
def test_the_deadline_names_who_was_waited_for(tmp_path: Path, mode: WatchMode) -> None:
    """124 with the pods that were missing and why."""
    hosts, followers = builders.workers(7), BroughtNews()
    for host in hosts:
        put(followers, host, builders.unready(host.ip))

    with pytest.raises(wait.WaitError) as failure:
        wait.wait(a_config(tmp_path, hosts, mode, timeout=1.0), followers, lambda _line: None)

    assert failure.value.code == 124
    waited = f"not done after 1 s: 0 of 7 {mode.value}, waiting for job-worker-0 (Running, not Ready)"
    assert str(failure.value).startswith(waited)
    assert str(failure.value).endswith("and 2 more")


@pytest.mark.parametrize(("timeout", "appear_timeout"), [(0.5, None), (None, 0.5)])
def test_403_that_stays_ends_at_the_deadline_of_the_wait(
    tmp_path: Path, timeout: float | None, appear_timeout: float | None
) -> None:
    """124 with the pod and the API server's own words; a pod that nobody may see has not appeared."""
    hosts, followers = builders.workers(1), BroughtNews()
    config = a_config(tmp_path, hosts, timeout=timeout, appear_timeout=appear_timeout)
    followers.news.put(News(hosts[0].name, Forbidden('GET /pods: 403 pods "job-worker-0" is forbidden')))

    with pytest.raises(wait.WaitError) as failure:
        wait.wait(config, followers, lambda _line: None)

    assert failure.value.code == 124
    words = '403 from the API server: GET /pods: 403 pods "job-worker-0" is forbidden'
    assert f"waiting for job-worker-0 ({words})" in str(failure.value)


def test_living_pods_are_waited_for_without_a_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of appearance does not touch pods that are there but slow."""
    monkeypatch.setattr(wait, "HEARTBEAT_SECONDS", 0.2)
    hosts, followers = builders.workers(1), BroughtNews()
    put(followers, hosts[0], builders.unready(hosts[0].ip))

    def say(line: str) -> None:
        if "waiting for" in line:  # this is said well after the deadline
            put(followers, hosts[0], builders.ready(hosts[0].ip))

    wait.wait(a_config(tmp_path, hosts, appear_timeout=0.1), followers, say)
