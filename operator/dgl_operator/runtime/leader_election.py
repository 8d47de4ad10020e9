"""Which of several operators acts: the one that holds a Lease (coordination.k8s.io/v1), as in client-go.

A candidate takes the Lease when nobody holds it, or when its record has not changed for as long as the
record promises, by this process's own steady clock: clocks of different nodes are never compared. The leader
renews it, and stops acting when it could not for `renew_deadline`, which is shorter. What it still has under
way then is fenced by what fences any two writers: fixed names and versions of objects (docs/adr/0012).
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Protocol

from dgl_operator.runtime.cluster import ClusterBusy, Refused
from dgl_operator.runtime.kinds import Json, Kind

log = logging.getLogger(__name__)


class Leases(Protocol):
    """What an election needs of an API server; see `Cluster`."""

    def get(self, kind: Kind, namespace: str, name: str) -> Json | None:
        """Read one object, None when it does not exist."""

    def create(self, body: Json, *, rehearse: bool = False, strict: bool = True) -> Json:
        """Create an object and return it as stored."""

    def replace(self, body: Json) -> Json:
        """Replace an object of the version that the body names, and return it as stored."""


@dataclass(frozen=True)
class Election:
    """Where and how operators elect their leader.

    Attributes:
        namespace: Of the Lease.
        name: Of the Lease.
        lease: Seconds without a renewal after which others may take it.
        renew_deadline: Seconds without a renewal after which the leader stops acting.
        retry: Seconds between two tries.
    """

    namespace: str
    name: str
    lease: float = 10.0
    renew_deadline: float = 7.0
    retry: float = 2.0

    @property
    def call_seconds(self) -> float:
        """Time-out of one request: a leader whose requests hang still stops before others begin."""
        return self.lease - self.renew_deadline


@dataclass(frozen=True)
class Sighting:
    """A record of the Lease and when it was first seen as it is, by the steady clock."""

    spec: Json
    at: float

    def updated(self, spec: Json, now: float) -> "Sighting":
        """The sighting after another look."""
        return self if spec == self.spec else Sighting(spec, now)


class Step(Enum):
    """What a candidate does next."""

    TAKE = "take"
    RENEW = "renew"
    WAIT = "wait"


def next_step(seen: Sighting | None, me: str, now: float, default_lease: float) -> Step:
    """Decide.

    Args:
        seen: The record, None while there is no Lease.
        me: This candidate's identity.
        now: Steady clock.
        default_lease: Seconds, for a record that names none.
    """
    holder = seen.spec.get("holderIdentity") if seen else None
    if seen is None or not holder:
        return Step.TAKE
    if holder == me:
        return Step.RENEW
    promised = seen.spec.get("leaseDurationSeconds") or default_lease
    return Step.TAKE if now - seen.at > promised else Step.WAIT


class LeaderElection:
    """One candidate.

    Args:
        leases: The API server, with time-outs of `election.call_seconds` and without retries.
        election: Where and how.
        me: Identity, another one for each process.
        lost: Called in the election's thread when leadership is lost; must end all acting.
        clock: A steady clock, in seconds.
    """

    def __init__(
        self,
        leases: Leases,
        election: Election,
        me: str,
        lost: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._leases, self._election, self._me, self._lost = leases, election, me, lost
        self._clock = clock
        self._seen: Sighting | None = None
        self._stored: Json | None = None
        self._renewed = 0.0
        self._told = ""
        self._leads, self._stopped = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="leader election", daemon=True)
        self._watchdog = threading.Thread(target=self._watch, name="leader deadline", daemon=True)

    def __str__(self) -> str:
        """The Lease, for log lines."""
        return f"lease {self._election.namespace}/{self._election.name}"

    def start(self) -> None:
        """Become a candidate."""
        self._thread.start()
        self._watchdog.start()

    def stop(self, releases: bool = True) -> None:
        """End; call it last.

        Args:
            releases: Whether to give the Lease up, so that another one need not wait for its end. Only who
                has nothing under way any more may.
        """
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(self._election.call_seconds)
        was_leader = self._leads.is_set()
        self._leads.clear()
        if was_leader and releases and not self._thread.is_alive():
            self._release()

    @property
    def name(self) -> str:
        """Of the Lease."""
        return self._election.name

    @property
    def is_leader(self) -> bool:
        """Whether this process may act."""
        return self._leads.is_set()

    @property
    def is_alive(self) -> bool:
        """Whether the election goes on."""
        return self._thread.is_alive()

    def wait_to_lead(self, seconds: float) -> bool:
        """Wait for leadership for so long at most; returns whether it has come."""
        return self._leads.wait(seconds)

    def look(self) -> None:
        """Take one look: hold, take or leave the Lease, and notice that it is lost."""
        try:
            self._turn(self._clock())
        except (ClusterBusy, Refused) as error:
            self._tell(f"cannot be read or written: {error}")
        except Exception:  # a bug, loud; a leader that cannot renew stops below
            log.exception("%s: the election failed", self)
        self.check_deadline()

    def check_deadline(self) -> float:
        """Lose leadership that has not been renewed in time; returns the seconds that are left."""
        left = self._renewed + self._election.renew_deadline - self._clock()
        if self._leads.is_set() and left < 0:
            self._lose(f"not renewed for {self._election.renew_deadline:g} s")
        return left if self._leads.is_set() else self._election.renew_deadline

    def _watch(self) -> None:
        """In a thread of its own: a look may hang in its requests for longer than the deadline."""
        left = self._election.renew_deadline
        while not self._stopped.wait(max(left, 0.0) + 0.01):
            left = self.check_deadline()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self.look()
            self._stopped.wait(self._election.retry)

    def _turn(self, now: float) -> None:
        found = self._leases.get(Kind.LEASE, *self._place)
        self._stored = found
        spec = dict((found or {}).get("spec") or {})
        self._seen = None if found is None else (self._seen or Sighting(spec, now)).updated(spec, now)
        step = next_step(self._seen, self._me, now, self._election.lease)
        if step is Step.WAIT:
            if self._leads.is_set():  # this process was frozen meanwhile
                self._lose(f"taken by {spec.get('holderIdentity')}")
            else:
                self._tell(f"held by {spec.get('holderIdentity')}; standing by")
            return
        self._stored = self._write(self._record(spec, step))
        self._seen = Sighting(dict(self._stored["spec"]), now)
        self._renewed = now
        if not self._leads.is_set() and not self._stopped.is_set():
            self._tell("taken; leading")
            self._leads.set()

    def _lose(self, why: str) -> None:
        with self._lock:  # a look and the watchdog may both notice it
            if not self._leads.is_set():
                return
            self._leads.clear()
        log.error("%s: %s; leadership is lost", self, why)
        self._stopped.set()
        self._lost()

    def _record(self, spec: Json, step: Step) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        changes = int(spec.get("leaseTransitions") or 0)
        kept = {"acquireTime": spec.get("acquireTime") or now, "leaseTransitions": changes}
        taken = {"acquireTime": now, "leaseTransitions": changes + bool(spec)}
        return {
            "holderIdentity": self._me,
            "leaseDurationSeconds": max(1, round(self._election.lease)),
            "renewTime": now,
            **(kept if step is Step.RENEW else taken),
        }

    def _write(self, spec: Json) -> Json:
        if self._stored is not None:
            return self._leases.replace({**_kind(), "metadata": self._stored["metadata"], "spec": spec})
        namespace, name = self._place
        return self._leases.create(
            {**_kind(), "metadata": {"namespace": namespace, "name": name}, "spec": spec}
        )

    def _release(self) -> None:
        spec = (self._stored or {}).get("spec") or {}
        try:
            self._write({**spec, "holderIdentity": "", "leaseDurationSeconds": 1})
        except (ClusterBusy, Refused) as error:  # others wait until it has run out
            log.warning("%s: not given up: %s", self, error)

    def _tell(self, what: str) -> None:
        if what != self._told:
            log.info("%s: %s", self, what)
            self._told = what

    @property
    def _place(self) -> tuple[str, str]:
        return self._election.namespace, self._election.name


def _kind() -> Json:
    return {"apiVersion": Kind.LEASE.api_version, "kind": Kind.LEASE.value[0]}
