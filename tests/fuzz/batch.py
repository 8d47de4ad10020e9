"""One batch of cases on the API server: submit, wait for statuses, act, wait again, judge, clean up."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import quote

from dgl_operator.runtime.kinds import CHILDREN, Kind
from dglrun.contract import names
from tests.fuzz.acts import MERGE, Act
from tests.fuzz.cases import Case, Expect, Place, Submission
from tests.fuzz.children import INNOCENT, UID_OF_INNOCENT, UID_OF_JOB
from tests.fuzz.findings import Finding
from tests.fuzz.raw_api import Answer, Json, RawApi, Row
from tests.fuzz.tally import Tally

T = TypeVar("T")
R = TypeVar("R")
SENDERS = 6
ACTORS = 16
IN_ORDER = 10
"""So many objects of a case are sent in their order; only a flood has more."""
STATUS_SECONDS = 45.0
"""Every accepted job has a status so long after the last one that got one: an operator on a slow machine gets
on, and a job that is left out stays without."""
END_SECONDS = 30.0
"""Likewise of jobs that have to come to their end."""
LONGEST_SECONDS = 240.0
"""Nothing is waited for any longer, however slowly it gets on."""
ACT_SECONDS = 5.0
"""So long an act waits for its object."""
GONE_SECONDS = 120.0
HEARD_SECONDS = 2.0
"""What happened to a job is known to the operator so long after: no status need tell of it."""
FINAL = ("Completed", "Failed")
Made = tuple[Kind, str, str]
Innocent = Callable[[], tuple[str, str]]


class Batch:
    """Cases that are on the API server at the same time.

    Attributes:
        jobs: Accepted jobs by namespace and name, with their case.
    """

    def __init__(
        self,
        api: RawApi,
        cases: Iterable[Case],
        places: Mapping[Place, str],
        innocent: Innocent,
        tally: Tally,
        patience: float = 1.0,
    ) -> None:
        self.cases = tuple(cases)
        self.jobs: dict[tuple[str, str], Case] = {}
        self._api = api
        self._places = places
        self._innocent = innocent
        self._tally = tally
        self._patience = patience
        self._made: list[Made] = []

    def submit(self) -> None:
        """Send all objects, those of one case in their order."""
        _all(self._submit, self.cases, SENDERS)

    def await_statuses(self, is_alive: Callable[[], bool]) -> list[Finding]:
        """Wait until every accepted job has a status; returns those that have none in time."""
        lacking = self._await(
            lambda place, row: bool(row.phase) or _has_status(self._api.status(place, row.name)),
            STATUS_SECONDS,
            is_alive,
        )
        return [
            Finding(
                "a job has no status",
                f"{place}/{name}: none {STATUS_SECONDS * self._patience:.0f} s after the last that got one",
                case,
            )
            for (place, name), case in lacking.items()
            if case.expect is not Expect.NOTHING
        ]

    def act(self) -> None:
        """Do what happens to the jobs that are not refused by the operator."""
        rows = {place: self._api.rows(place) for place in self._places.values()}

        def is_alive(case: Case) -> bool:
            row = rows[self._places[case.place]].get(case.job)
            return bool(case.acts) and row is not None and row.phase not in FINAL

        _all(self._act, [case for case in self.cases if is_alive(case)], ACTORS)
        time.sleep(HEARD_SECONDS)

    def await_ends(self, is_alive: Callable[[], bool]) -> list[Finding]:
        """Wait for the jobs of which more is expected than a status; returns those that do not get there."""

        def is_there(place: str, row: Row) -> bool:
            status = self._api.status(place, row.name)
            expect = self.jobs[place, row.name].expect
            return status is None or _has_ended(status) or _is_blocked(status, expect)

        more = {key: case for key, case in self.jobs.items() if case.expect in (Expect.END, Expect.BLOCKED)}
        lacking = self._await(is_there, END_SECONDS, is_alive, more)
        return [
            Finding(
                f"a job has not {case.expect.value}", f"{place}/{name}: {self._api.status(place, name)}", case
            )
            for (place, name), case in lacking.items()
        ]

    def statuses(self) -> dict[tuple[str, str], Json | None]:
        """Status of each accepted job, None for one that is gone; counted by reason."""
        found = dict(
            zip(self.jobs, _all(lambda key: self._api.status(*key), self.jobs, SENDERS), strict=True)
        )
        for key, status in found.items():
            self._tally.status(self.jobs[key].kind, reason_of(status))
        return found

    def clean_up(self) -> None:
        """Delete everything and wait until nothing is left of it; orphans do not go by themselves."""
        _all(self._delete, self._made, SENDERS)
        self._delete_children()
        began = time.monotonic()
        while left := self._left():
            if time.monotonic() - began > GONE_SECONDS:
                print(f"still there after {GONE_SECONDS:.0f} s: {sorted(map(str, left))[:5]}", flush=True)
                return
            _all(self._free, left, SENDERS)
            time.sleep(0.3)

    def _submit(self, case: Case) -> None:
        """Send a case's objects one after the other; what comes after the first few of very many at once."""
        self._tally.case(case.kind)
        uid = ""
        for each in case.submissions[:IN_ORDER]:
            uid = self._submit_one(case, each, uid) or uid
        _all(lambda each: self._submit_one(case, each, uid), case.submissions[IN_ORDER:], SENDERS)

    def _submit_one(self, case: Case, each: Submission, uid: str) -> str:
        """Send an object; returns the UID of a case's first job, empty for others."""
        place = self._places[case.place]
        answer = self._api.request("POST", each.kind.path(place), self._filled(each.body, uid))
        self._tally.submission(case.kind, None if answer.is_accepted else answer.refusal)
        if not answer.is_accepted:
            return ""
        name = each.name or _name(answer)
        self._made.append((each.kind, place, name))
        if each.kind is not Kind.JOB:
            return ""
        self.jobs[place, name] = case
        return uid or _uid(answer)

    def _filled(self, body: bytes, uid: str) -> bytes:
        if b"@" not in body or len(body) > 100_000:
            return body
        name, innocent = self._innocent()
        for mark, value in ((UID_OF_JOB, uid), (UID_OF_INNOCENT, innocent), (INNOCENT, name)):
            body = body.replace(mark.encode(), value.encode())
        return body

    def _act(self, case: Case) -> None:
        """Do all acts in their order; once an object did not come in time the others are not waited for."""
        patience = ACT_SECONDS * self._patience
        for act in case.acts:
            answer = self._retried(self._places[case.place], case.job, act, patience)
            self._tally.act(case.kind, None if answer.is_accepted else answer.refusal)
            if answer.status == 404:
                patience = 0.0

    def _retried(self, place: str, job: str, act: Act, seconds: float) -> Answer:
        """Do an act; its object may come a moment later, and conflicts pass."""
        path = act.kind.path(place, act.name.format(job=job))
        path += f"/{act.subresource}" if act.subresource else ""
        deadline = time.monotonic() + seconds
        while True:
            answer = self._api.request(act.method, path, self._filled(act.body, ""), act.content_type)
            if answer.status not in (404, 409) or time.monotonic() > deadline:
                return answer
            time.sleep(0.1)

    def _await(
        self,
        is_met: Callable[[str, Row], bool],
        seconds: float,
        is_alive: Callable[[], bool],
        among: Mapping[tuple[str, str], Case] | None = None,
    ) -> dict[tuple[str, str], Case]:
        """Wait until all are met, or none more for so many seconds; returns those that are not."""
        lacking = dict(self.jobs if among is None else among)
        last = time.monotonic() + LONGEST_SECONDS * self._patience
        deadline = time.monotonic() + seconds * self._patience
        while lacking and time.monotonic() < min(deadline, last) and is_alive():
            before = len(lacking)
            rows = {place: self._api.rows(place) for place in {place for place, _ in lacking}}
            for place, name in list(lacking):
                row = rows[place].get(name)
                if row is None or row.phase in FINAL or is_met(place, row):
                    del lacking[place, name]
            if len(lacking) < before:
                deadline = time.monotonic() + seconds * self._patience
            time.sleep(0.2)
        return lacking if is_alive() else {}

    def _delete(self, made: Made) -> None:
        kind, place, name = made
        options = b'{"propagationPolicy":"Background","gracePeriodSeconds":0}'
        self._api.request("DELETE", kind.path(place, name), options)

    def _free(self, made: Made) -> None:
        """Delete what is still there; a finalizer may hold a job."""
        kind, place, name = made
        if kind is Kind.JOB:
            self._api.request("PATCH", kind.path(place, name), b'{"metadata":{"finalizers":null}}', MERGE)
        self._delete(made)

    def _delete_children(self) -> None:
        """Delete what carries the jobs' label in a few requests: the garbage collector sends 20 a second."""
        for place in self._places.values():
            mine = ",".join(name for where, name in self.jobs if where == place)
            selector = quote(f"{names.LABEL_JOB} in ({mine})")
            for kind in CHILDREN if mine else ():
                query = f"labelSelector={selector}&propagationPolicy=Background&gracePeriodSeconds=0"
                self._api.request("DELETE", f"{kind.path(place)}?{query}")

    def _left(self) -> set[Made]:
        """What is still there of the batch's jobs and of their children."""
        mine = {(place, name) for place, name in self.jobs}
        children = tuple(f"{name}-" for _, name in self.jobs)
        return {
            (kind, place, name)
            for kind in (Kind.JOB, *CHILDREN)
            for place in self._places.values()
            for name in self._api.names(kind, place)
            if (place, name) in mine or name.startswith(children)
        }


def reason_of(status: Json | None) -> str:
    """Phase and the reason that stands in the condition which explains it."""
    if status is None:
        return "gone"
    phase = str(status.get("phase") or "no phase")
    for kind in ("Stalled", "Blocked", "Failed"):
        for condition in status.get("conditions") or ():
            if condition.get("type") == kind and condition.get("status") == "True":
                return f"{phase} {kind}: {str(condition.get('reason'))[:40]}"
    return phase


def _has_ended(status: Json) -> bool:
    return status.get("phase") in FINAL or _holds(status, "Stalled")


def _is_blocked(status: Json, expect: Expect) -> bool:
    return expect is Expect.BLOCKED and _holds(status, "Blocked")


def _holds(status: Json, kind: str) -> bool:
    return any(
        each.get("type") == kind and each.get("status") == "True" for each in status.get("conditions") or ()
    )


def _has_status(status: Json | None) -> bool:
    return status is None or bool(status.get("phase") or status.get("conditions"))


def _name(answer: Answer) -> str:
    return _text(answer, b'"name":"')


def _uid(answer: Answer) -> str:
    return _text(answer, b'"uid":"')


def _text(answer: Answer, key: bytes) -> str:
    """The first text of a key: metadata comes before anything that a user wrote."""
    return answer.text.partition(key)[2].partition(b'"')[0].decode()


def _all(work: Callable[[T], R], items: Iterable[T], threads: int) -> list[R]:
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))
