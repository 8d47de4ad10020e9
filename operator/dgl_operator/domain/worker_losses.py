"""Workers that are lost while their launcher trains: which are replaced alone, and how they are counted.

The launcher has the parts and says in its report that it goes on with a new pod of the same name. A loss is
counted once, when it is first seen, in the same write that names the worker; until its replacement is Ready,
what becomes of that is the same loss.
"""

from datetime import timedelta

from dgl_operator.api.v1alpha1 import MAX_REPLACED, DGLJob
from dgl_operator.domain import failure, failure_policy
from dgl_operator.domain.attempts import Life
from dgl_operator.domain.observed import Observed, Pod
from dgl_operator.domain.report import Report
from dgl_operator.domain.verdict import wanted
from dglrun.contract.names import Role

CLOCKS_DIFFER = timedelta(seconds=60)
"""At most, of the API server, which dates pods in whole seconds, and the operator, which dates the loss."""


def lost_alone(job: DGLJob, seen: Observed, said: Report, life: Life) -> tuple[str, ...]:
    """Return the names of the workers that are lost and are made anew within the attempt.

    None are where the launcher does not live or does not go on without them, where a rule of the user's says
    what a loss costs, and after MAX_REPLACED.
    """
    launcher = seen.one(Role.LAUNCHER)
    if launcher is None or not said.replaces or not _lives(launcher):
        return ()
    pods = {pod.name: pod for pod in seen.of_role(Role.WORKER)}
    lost = tuple(name for name in wanted(job, Role.WORKER) if _is_lost(pods.get(name), life))
    fresh = [name for name in lost if name not in life.lost_workers]
    is_ruled = any(failure_policy.match(job, name, seen) for name in fresh)
    return () if is_ruled or life.restarts.workers + len(fresh) > MAX_REPLACED else lost


def noted(life: Life, seen: Observed, lost: tuple[str, ...]) -> Life:
    """Return the same with these losses counted, and without the workers that are back."""
    back = {pod.name for pod in seen.of_role(Role.WORKER) if pod.ready and not pod.deleting}
    fresh = [name for name in lost if name not in life.lost_workers]
    missing = tuple(sorted({*life.lost_workers, *fresh} - (back - {*lost})))
    return life.losing(missing, len(fresh))


def is_replacement(pod: Pod, life: Life) -> bool:
    """Whether a pod was made after the loss of its worker, so that it had no work yet.

    One that is younger than CLOCKS_DIFFER counts as such: it waits in vain for some seconds at most, while a
    replacement that is not recognised would be made anew without any wait, again and again.
    """
    since = life.current.waiting_since if life.current else None
    if pod.name not in life.lost_workers or since is None or pod.created is None:
        return False
    return pod.created >= since - CLOCKS_DIFFER


def _lives(launcher: Pod) -> bool:
    is_leaving = launcher.deleting or launcher.is_disrupted or launcher.stopped
    return launcher.main_started and launcher.main_end is None and not is_leaving


def _is_lost(worker: Pod | None, life: Life) -> bool:
    """Whether a worker is gone or going; one that its kubelet rejects had no work, and is a new one."""
    if worker is None:
        return True
    is_disruption = worker.deleting or worker.is_disrupted or worker.name in life.lost_workers
    return is_disruption and failure.is_replaceable(worker)
