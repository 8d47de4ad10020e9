"""How far the wait is: the lines of the address file against what is known of the pods. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dglrun.contract.hostfile import Host
from dglrun.pod_waiter.config import WatchMode
from dglrun.pod_waiter.pod_state import PodState, WaitState

_NAMED = 5
"""So many pods are named in a line of the log, the others counted."""


@dataclass(frozen=True)
class WaitStatus:
    """The state of the wait.

    Attributes:
        mode: What is waited for.
        expected: How many pods there must be; None: as many as the file has, at least one.
        hosts: The file's lines.
        states: What is known, by pod name.
    """

    mode: WatchMode
    expected: int | None
    hosts: tuple[Host, ...] = ()
    states: Mapping[str, PodState] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the file has all its lines."""
        return len(self.hosts) > 0 and len(self.hosts) == (self.expected or len(self.hosts))

    @property
    def done(self) -> int:
        """How many pods are as they must be."""
        return sum(self._wanting(host) is None for host in self.hosts)

    @property
    def is_complete(self) -> bool:
        """Whether the wait is over."""
        return self.is_whole and self.done == len(self.hosts)

    @property
    def all_seen(self) -> bool:
        """Whether every expected pod was there at least once."""
        return self.is_whole and all(self._state(host).uid is not None for host in self.hosts)

    @property
    def lost(self) -> tuple[str, ...]:
        """One clause for each pod that is lost."""
        return tuple(
            f"pod {name} {state.reason}"
            for name, state in self.states.items()
            if state.wait is WaitState.LOST
        )

    @property
    def forbidden(self) -> Mapping[str, str]:
        """The pods that are waited for and that the account may not see, with the API server's words."""
        waited = {host.name: self._state(host) for host in self.hosts if self._wanting(host)}
        return {name: state.forbidden for name, state in waited.items() if state.forbidden}

    def progress(self) -> str:
        """`2 of 3 ready`, without the reasons, so that it changes only when something was gained."""
        if not self.is_whole:
            return f"waiting for the addresses: {len(self.hosts)} of {self.expected or 'the'} lines"
        return f"{self.done} of {len(self.hosts)} {self.mode.value}"

    def refusals(self) -> str:
        """Which pods the account may not see, at most five by name; of the first the API server's words."""
        names = list(self.forbidden)
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        return f"not allowed to see {', '.join(names[:_NAMED])}{more} yet: {self.forbidden[names[0]]}"

    def waiting(self) -> str:
        """Who is waited for and why, at most five by name."""
        if not self.is_whole:
            return self.progress()
        wanting = [f"{host.name} ({reason})" for host in self.hosts if (reason := self._wanting(host))]
        more = f" and {len(wanting) - _NAMED} more" if len(wanting) > _NAMED else ""
        return f"{self.progress()}, waiting for {', '.join(wanting[:_NAMED])}{more}"

    def _state(self, host: Host) -> PodState:
        return self.states.get(host.name, PodState())

    def _wanting(self, host: Host) -> str | None:
        """What is missing; in mode ready the line must also hold the pod's own address."""
        state = self._state(host)
        if state.wait is not WaitState.DONE:
            return f"403 from the API server: {state.forbidden}" if state.forbidden else state.reason
        if self.mode is WatchMode.READY and state.ip != host.ip:
            return f"has IP {state.ip}, the file still says {host.ip}"
        return None
