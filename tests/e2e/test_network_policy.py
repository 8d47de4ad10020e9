"""The NetworkPolicy of a job, enforced: strangers reach no port of its pods, its own pods reach all."""

import json
import uuid
from collections.abc import Iterator

import pytest

from dglrun.contract import names
from tests.e2e.conftest import Submit, account_ready
from tests.e2e.enforcement import enforced
from tests.e2e.jobs import VERSION, Job, image, tiny
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.test_failures import wait_for_log
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

PORT = 8099
"""Where a program answers that is none of dglrun, DGL or torch."""
HELLO = "hello from a pod of the job"
GO = "/tmp/go"
STRANGER = "stranger"

LISTEN = f"""
import contextlib, socket
server = socket.create_server(("", {PORT}))
while True:
    peer, _ = server.accept()
    with contextlib.suppress(OSError), peer:
        peer.sendall(b"{HELLO}")
"""
CONNECT = """
import contextlib, socket, sys
def connect(host, port):
    try:
        with socket.create_connection((host, int(port)), 3) as connection:
            heard = b""
            connection.settimeout(5)
            with contextlib.suppress(TimeoutError):
                heard = connection.recv(99)
    except OSError as error:
        return "closed"
    return f"open {heard.decode(errors='replace')}".strip()
for place in sys.argv[1:]:
    print(connect(*place.split(":")))
"""
CLOSED = "closed"
SILENT = "open"


@pytest.fixture(scope="module", autouse=True)
def _policies_are_enforced() -> Iterator[None]:
    with enforced():
        yield


@pytest.fixture
def friends(operator: Kubectl) -> Iterator[Kubectl]:
    """Another namespace, that of a team which a job may admit."""
    kubectl = Kubectl(f"e2e-friends-{uuid.uuid4().hex[:8]}")
    labelled = {"name": kubectl.namespace, "labels": {"team": "friends"}}
    operator.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": labelled})
    account_ready(kubectl)
    yield kubectl
    kubectl.run("delete", "namespace", kubectl.namespace, "--wait=false")


def stranger() -> Object:
    """A pod that belongs to no job."""
    main = {
        "name": "main",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": STRANGER},
        "spec": {"containers": [main], "terminationGracePeriodSeconds": 0},
    }


def guarded() -> Object:
    """A job that trains until it is told to end; its workers are Ready when the kubelet reaches PORT."""
    body = tiny("guarded", "--do", "hang", "--until", GO)
    listener = {
        "name": "listener",
        "image": image(f"job:{VERSION}"),
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", LISTEN],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    body["spec"]["dglReplicaSpecs"]["Worker"]["template"]["spec"]["containers"].append(listener)
    return body


def listen_on_launcher(job: Job) -> None:
    """Have something answer there, too, until the launcher ends."""
    background = 'setsid python3 -c "$1" </dev/null >/dev/null 2>&1 &'
    job.kubectl.exec(job.launcher, "sh", "-c", background, "sh", LISTEN, container="main")


def address(job: Job, pod: str, port: int) -> str:
    """The address of a pod of the job, with a port."""
    return f"{(job.kubectl.get('pod', pod) or {})['status']['podIP']}:{port}"


def connect(kubectl: Kubectl, pod: str, *to: str) -> list[str]:
    """Connect from a pod: CLOSED, SILENT, or what the other side says within a second; for each address."""
    return kubectl.exec(pod, "python3", "-c", CONNECT, *to, container="main").splitlines()


def edit(job: Job, change: Object) -> None:
    """Change the job's spec.networkPolicy."""
    body = json.dumps({"spec": {"networkPolicy": change}})
    job.kubectl.run("patch", "dgljob", job.name, "--type=merge", "-p", body)


def test_only_whom_the_job_admits_connects_to_its_pods(submit: Submit, friends: Kubectl) -> None:
    """Edited in mid-training: closed by default, open without a policy, then open as its rule says."""
    job = submit(guarded())
    mine = job.kubectl
    for kubectl in (mine, friends):
        kubectl.apply(stranger())
        kubectl.run("wait", "--for=condition=Ready", f"pod/{STRANGER}", "--timeout=120s")
    wait_for_log(job, "rank 1 does hang")
    listen_on_launcher(job)
    listener, launcher, server = (
        address(job, job.worker(0), PORT),
        address(job, job.launcher, PORT),
        address(job, job.worker(0), names.DGL_PORT),
    )
    named = f"{job.worker(0)}.{job.name}:{PORT}"
    heard = f"open {HELLO}"

    wait_for("the launcher", lambda: connect(mine, job.worker(1), launcher) == [heard] or None, 30)
    assert connect(mine, job.worker(1), listener, named, server) == [heard, heard, SILENT]
    assert connect(mine, job.launcher, listener, named, server) == [heard, heard, SILENT]
    for others in (mine, friends):
        assert connect(others, STRANGER, listener, launcher, server) == [CLOSED] * 3

    edit(job, {"enabled": False})

    wait_for("a stranger", lambda: connect(mine, STRANGER, listener) == [heard] or None, 60)
    for others in (mine, friends):
        assert connect(others, STRANGER, listener, launcher, server) == [heard, heard, SILENT]

    peers = [{"namespaceSelector": {"matchLabels": {"team": "friends"}}}]
    edit(job, {"enabled": True, "ingress": [{"from": peers, "ports": [{"port": PORT}]}]})

    wait_for("the policy", lambda: connect(mine, STRANGER, listener) == [CLOSED] or None, 60)
    wait_for("the friends", lambda: connect(friends, STRANGER, listener) == [heard] or None, 60)
    assert connect(friends, STRANGER, launcher, server) == [heard, CLOSED]
    assert connect(mine, STRANGER, launcher, server) == [CLOSED, CLOSED]

    for worker in (0, 1):
        mine.exec(job.worker(worker), "touch", GO, container="main")
    job.wait_phase("Completed", seconds=120)
    assert "model.pt" in mine.logs(job.launcher, "main")
