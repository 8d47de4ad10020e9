"""The wait itself: read the file, follow its pods, end when they are as they must be."""

import time
from collections.abc import Callable
from dataclasses import replace
from queue import Empty

from dglrun.contract import exitcodes, names
from dglrun.contract.hostfile import Host, HostfileError, parse_hosts
from dglrun.kube.errors import ApiError, Forbidden
from dglrun.pod_waiter.config import WaiterConfig, WatchMode
from dglrun.pod_waiter.follow import Followers, News
from dglrun.pod_waiter.pod_state import PodState, after, refused
from dglrun.pod_waiter.wait_status import WaitStatus

POLL_SECONDS = 0.1
"""The kubelet renames a new version of the file into place; looking again is the portable way to see it."""
HEARTBEAT_SECONDS = 60.0
FORBIDDEN_SECONDS = 15.0
"""A Role that is created after its pods is there within seconds; what lasts longer is told."""


class WaitError(Exception):
    """The wait cannot end well.

    Attributes:
        code: Exit code of the process.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def wait(config: WaiterConfig, followers: Followers, say: Callable[[str], None]) -> None:
    """Return when every line of the file stands for a pod that is ready (or finished).

    Args:
        config: What is waited for.
        followers: Bring the news of the pods.
        say: Takes progress lines.

    Raises:
        WaitError: a pod is lost, a deadline passed, the file is malformed, or the API server was
            out of reach for too long.
    """
    start = time.monotonic()
    status = WaitStatus(config.mode, config.expected)
    speaker = _Speaker(say, start)
    while not status.is_complete:
        status = replace(status, hosts=_hosts(config))
        for host in status.hosts if status.is_whole else ():
            followers.add(host.name)
        status = _hear(status, followers)
        if status.lost:
            raise WaitError(exitcodes.LOST, "; ".join(status.lost))
        speaker.speak(status)
        _check_deadlines(config, status, time.monotonic() - start)


def _hosts(config: WaiterConfig) -> tuple[Host, ...]:
    """The file's lines as they are now, none while it is not there; or the pods that are named."""
    if config.pods and config.mode is WatchMode.FINISHED:
        return tuple(Host("", names.DGL_PORT, name) for name in config.pods)
    try:
        hosts = parse_hosts(config.file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return ()
    except (HostfileError, OSError, UnicodeDecodeError) as error:
        raise WaitError(exitcodes.DATA, f"{config.file}: {error}") from error
    if config.expected is not None and len(hosts) > config.expected:
        raise WaitError(
            exitcodes.DATA, f"{config.file}: expected {config.expected} lines, found {len(hosts)}"
        )
    return hosts


def _hear(status: WaitStatus, followers: Followers) -> WaitStatus:
    """Take all news there are; wait a moment when there are none."""
    states = dict(status.states)
    try:
        news = followers.news.get(timeout=POLL_SECONDS)
        while True:
            states[news.name] = _state(status, states, news)
            news = followers.news.get_nowait()
    except Empty:
        return replace(status, states=states)


def _state(status: WaitStatus, states: dict[str, PodState], news: News) -> PodState:
    known = states.get(news.name, PodState())
    if isinstance(news.found, Forbidden):
        return refused(known, str(news.found))
    if isinstance(news.found, ApiError):
        raise WaitError(exitcodes.UNAVAILABLE, f"cannot watch pod {news.name}: {news.found}")
    return after(known, news.found, status.mode)


def _check_deadlines(config: WaiterConfig, status: WaitStatus, seconds: float) -> None:
    if status.is_complete:
        return
    if config.timeout is not None and seconds > config.timeout:
        raise WaitError(exitcodes.TIMEOUT, f"not done after {config.timeout:.0f} s: {status.waiting()}")
    if config.appear_timeout is not None and seconds > config.appear_timeout and not status.all_seen:
        raise WaitError(
            exitcodes.TIMEOUT,
            f"not all pods appeared within {config.appear_timeout:.0f} s: {status.waiting()}",
        )


class _Speaker:
    """Says something when something changed, and once a minute who is waited for and what is forbidden."""

    def __init__(self, say: Callable[[str], None], now: float) -> None:
        self._say = say
        self._last = ""
        self._spoken = now
        self._tell_refusals_at: float | None = None

    def speak(self, status: WaitStatus) -> None:
        now = time.monotonic()
        if status.progress() != self._last:
            self._last, self._spoken = status.progress(), now
            self._say(self._last)
        elif now - self._spoken > HEARTBEAT_SECONDS:
            self._spoken = now
            self._say(status.waiting())
        self._speak_of_refusals(status, now)

    def _speak_of_refusals(self, status: WaitStatus, now: float) -> None:
        if not status.forbidden:
            self._tell_refusals_at = None
        elif self._tell_refusals_at is None:
            self._tell_refusals_at = now + FORBIDDEN_SECONDS
        elif now >= self._tell_refusals_at:
            self._tell_refusals_at = now + HEARTBEAT_SECONDS
            self._say(status.refusals())
