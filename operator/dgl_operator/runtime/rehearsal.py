"""Asks the API server whether it would take a pod that is needed hours later; for equal pods once."""

import json
import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Any

from dgl_operator.domain.observed import Problem
from dgl_operator.runtime.apply import Applier
from dgl_operator.runtime.clock import Clock
from dgl_operator.runtime.kinds import Json
from dglrun.contract import names

KEPT_SECONDS = 30.0
"""An answer holds for equal pods of other jobs so long: a policy or a quota may change at any time."""
_KEPT = 1000


class Rehearsal:
    """Rehearses pods and remembers those that were taken; a refusal is never remembered. Safe for threads."""

    def __init__(self, applier: Applier, clock: Clock) -> None:
        self._applier = applier
        self._clock = clock
        self._lock = threading.Lock()
        self._taken: OrderedDict[bytes, float] = OrderedDict()

    def __call__(self, pod: Json) -> Problem | None:
        """Rehearse a pod; returns why it would be refused.

        Raises:
            ClusterBusy: the API server could not answer.
        """
        key, now = _but_for_the_job(pod), self._clock.seconds()
        with self._lock:
            if now - self._taken.get(key, -KEPT_SECONDS) < KEPT_SECONDS:
                return None
        problem = self._applier.rehearse(pod)
        if problem is None:
            with self._lock:
                self._taken[key] = now
                self._taken.move_to_end(key)
                while len(self._taken) > _KEPT:
                    self._taken.popitem(last=False)
        return problem


def _but_for_the_job(pod: Json) -> bytes:
    """Return a hash of a pod in which its job's name and UID do not count."""
    metadata = pod["metadata"]
    plain = {**pod, "metadata": {**metadata, "ownerReferences": []}}
    text = json.dumps(_unnamed(plain, metadata["labels"][names.LABEL_JOB]), sort_keys=True)
    return sha256(text.encode()).digest()


def _unnamed(value: Any, job: str) -> Any:
    """Return the value with each text that is the job's name, or begins with it, as if it had none.

    Images stay: a policy may take one and refuse another that the job's name happens to begin.
    """
    match value:
        case dict():
            return {key: item if key == "image" else _unnamed(item, job) for key, item in value.items()}
        case list() | tuple():
            return [_unnamed(item, job) for item in value]
        case str() if value == job or value.startswith(f"{job}-"):
            return "<job>" + value[len(job) :]
    return value
