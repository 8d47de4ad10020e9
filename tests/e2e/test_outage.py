"""The control plane goes away under jobs of which each is in another phase."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from tests.cluster import daemons, kube
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places
from tests.e2e.conftest import Submit
from tests.e2e.jobs import Job, example, main_container, set_flag, tiny
from tests.e2e.kubectl import Kubectl, Object
from tests.support.wait import wait_for

ASKED = os.environ.get("DGL_OPERATOR_OUTAGE_SECONDS", "")
OUTAGE = float(ASKED or 45)
"""Seconds without an API server; `make outage MINUTES=10` sets it."""
LEASE = 10
"""Seconds without a heartbeat after which workers stop; the outage is longer."""
HELD_SECONDS = 240 if ASKED else 120
"""After which all jobs are where they are to be, on a node that starts nine of them."""
HELD = "held until the API server is away"

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900 + OUTAGE)]


@contextmanager
def without_api_server() -> Iterator[None]:
    """Kill the API server of our own node; start it again, as its node's kubelet would."""
    places = Places.here()
    if not (pid := daemons.recorded(places).get("apiserver")):
        pytest.skip("needs the one-node cluster: its API server is killed")
    daemon = Daemon("apiserver", daemons.command_line(pid))
    daemons.kill([pid])
    try:
        yield
    finally:
        daemons.start(daemon, places)
        wait_for("the API server", lambda: kube.succeeds(places, "get", "--raw", "/readyz"), 120)
        kubectl = Kubectl(f"after-outage-{uuid.uuid4().hex[:8]}")
        kubectl.run("create", "namespace", kubectl.namespace)
        # Its watches are up to a minute late: later tests would wait for it in vain.
        wait_for("the controllers", lambda: kubectl.get("serviceaccount", "default"), 180)
        kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def log(job: Job, pod: str, container: str = "main") -> str:
    """The log of a container as the node has it, without the API server's help."""
    folders = f"{job.kubectl.namespace}_{pod}_*/{container}/*.log"
    return "".join(path.read_text() for path in (Places.here().state / "podlogs").glob(folders))


def partitioning() -> Object:
    """Partitioned, delivered and dispatched with nobody to ask."""
    body = tiny("partitioning")
    main_container(body, "Worker")["env"] = [{"name": "TINY_PARTITION_HELD", "value": "1"}]
    return body


def waiting() -> Object:
    """Its workers become ready meanwhile; the launcher's init container waits for them."""
    body = tiny("waiting")
    worker = main_container(body, "Worker")
    held = {**worker, "name": "held", "command": ["python3", "/scripts/api_away.py", "true"]}
    body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["initContainers"] = [held]
    return body


def dispatching() -> Object:
    """Its launcher begins meanwhile."""
    return _with_command(tiny("dispatching"), "python3", "/scripts/api_away.py")


def agents() -> Object:
    """Its launcher has the parts dispatched and would start the agents."""
    return _with_command(tiny("agents"), "sh", "/scripts/late_agents.sh")


def mpi() -> Object:
    """Its launcher begins meanwhile, and has MPI ranks to start."""
    body = example("dist-parmetis-homogeneous", "mpi")
    set_flag(body, "--num-epochs", "1")
    main_container(body, "Launcher")["volumeMounts"] = [{"name": "scripts", "mountPath": "/scripts"}]
    pod = body["spec"]["dglReplicaSpecs"]["Launcher"]["template"]["spec"]
    pod["volumes"] = [{"name": "scripts", "configMap": {"name": "scripts"}}]
    return _with_command(body, "python3", "/scripts/api_away.py")


def training() -> Object:
    """It trains before, meanwhile and afterwards."""
    flags = ("--num-epochs", "1", "--lease", str(LEASE))
    return tiny("training", "--do", "hang", "--seconds", str(OUTAGE + HELD_SECONDS), flags=flags)


def collecting() -> Object:
    """Its training ends meanwhile, and its output is home before the API server is back."""
    return tiny("collecting", "--do", "hang", "--until", "api-away")


def first_hop() -> Object:
    """It pulls a partition from the partitioner to the launcher."""
    return _with_holes("first-hop", 10)


def second_hop() -> Object:
    """Its workers pull their parts from the launcher."""
    return _with_holes("second-hop", 4)


def _with_holes(name: str, size: int) -> Object:
    body = tiny(name)
    main_container(body, "Worker")["env"] = [{"name": "TINY_PARTITION_HOLES", "value": str(size)}]
    return body


def _with_command(body: Object, *command: str) -> Object:
    launcher = main_container(body, "Launcher")
    launcher["command"], launcher["args"] = [*command], ["dglrun", *launcher["args"]]
    return body


@dataclass(frozen=True)
class Phase:
    """A phase in which the API server goes away.

    Attributes:
        job: Makes a job that is held in it, or stays in it for the whole outage.
        pod: The pod that says so, without the name of the job.
        container: Its container.
        says: What it says.
        is_transfer: Whether files are on their way; such a job begins when all others are held.
        meanwhile: What the pod says while the API server is away.
    """

    job: Callable[[], Object]
    pod: str = "launcher"
    container: str = "main"
    says: str = HELD
    is_transfer: bool = False
    meanwhile: str = ""


ON_ITS_WAY = "pods have their files, "
"""In the sender's account of each ten seconds."""
PHASES = {
    "partitioning": Phase(partitioning, "partitioner"),
    "waiting": Phase(waiting, "worker-0", "held"),
    "dispatching": Phase(dispatching),
    "agents": Phase(agents),
    "mpi": Phase(mpi),
    "training": Phase(training, says="rank 1 does hang"),
    "collecting": Phase(collecting, says="rank 1 does hang", meanwhile="collected "),
    "first hop": Phase(first_hop, "partitioner", says=ON_ITS_WAY, is_transfer=True, meanwhile="sent "),
    "second hop": Phase(second_hop, says=ON_ITS_WAY, is_transfer=True, meanwhile="sent "),
}
GATE = ("partitioning", "agents", "mpi", "collecting")
"""Where nobody asks for more: each job costs the node some seconds."""
CHOSEN = os.environ.get("DGL_OPERATOR_OUTAGE_PHASES", "").split() or (PHASES if ASKED else GATE)


def test_jobs_in_every_phase_outlive_the_api_server(submit: Submit, operator: Kubectl) -> None:
    """Each goes on where it was and trains to the end, its model comes home; the operator never restarts."""
    restarts = _restarts(operator)
    jobs: dict[str, Job] = {}
    for is_transfer in (False, True):
        chosen = [name for name in CHOSEN if PHASES[name].is_transfer == is_transfer]
        jobs.update({name: submit(PHASES[name].job()) for name in chosen})
        for name in chosen:
            phase, job = PHASES[name], jobs[name]
            wait_for(f"{name}: {phase.says}", partial(_says, job, phase, phase.says), 400)
    for name, job in jobs.items():
        assert not PHASES[name].meanwhile or not _says(job, PHASES[name], PHASES[name].meanwhile), name

    with without_api_server():
        end = time.monotonic() + OUTAGE
        wait_for("the end of the outage", lambda: time.monotonic() > end, OUTAGE + 10)
        for name, job in jobs.items():
            said = PHASES[name].meanwhile
            wait_for(f"{name}: {said}", partial(_is_logged, job, PHASES[name], said), 400)
    back = time.monotonic()

    for name, job in jobs.items():
        job.wait_phase("Completed", seconds=300)
        print(f"{name}: Completed {time.monotonic() - back:.0f} s after the API server was back")
        assert "model.pt" in job.kubectl.logs(job.launcher, "main")
    assert _restarts(operator) == restarts


def _says(job: Job, phase: Phase, text: str) -> bool:
    assert job.phase() != "Failed", job.story()
    return _is_logged(job, phase, text)


def _is_logged(job: Job, phase: Phase, text: str) -> bool:
    return text in log(job, f"{job.name}-{phase.pod}", phase.container)


def _restarts(operator: Kubectl) -> list[tuple[str, int]]:
    """The operator's pods, and how often each container was started again."""
    pods = operator.list("pods", "-l", "app=dgl-operator")
    return [
        (pod["metadata"]["uid"], status["restartCount"])
        for pod in pods
        for status in pod["status"]["containerStatuses"]
    ]
