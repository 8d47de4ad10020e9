"""`make demo`: from a fresh machine to a trained model, showing each step.

Cluster and images (unless KUBECONFIG names a cluster that has them), the operator by its chart, the
DGL-API example; then the phases and the logs of the job until the final accuracy. Exit 0 only when the
job is Completed.
"""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

from tests.cluster import other
from tests.cluster.places import Places
from tests.e2e import install
from tests.e2e.jobs import FINAL, Job, example
from tests.e2e.kubectl import Kubectl, Refused, binary
from tests.support.wait import wait_for

NAMESPACE = "dgl-demo"
SECONDS = 1200
ACCURACY = re.compile(r"Test accuracy: .*")


def main() -> int:
    """Run the demo; returns the exit code."""
    start = time.monotonic()
    own = other.given(Places.here()) is None
    tool("up")
    tool("load")
    if own:
        os.environ["KUBECONFIG"] = tool("kubeconfig", capture=True).strip()
    say("installing the operator by helm/dgl-operator")
    install.operator()
    job = submit()
    follow(job)
    code = conclude(job, time.monotonic() - start)
    if own:
        say("take the cluster down: make cluster-down")
    return code


def say(text: str) -> None:
    """A line of the demo's own."""
    print(f"demo: {text}", flush=True)


def tool(*argv: str, capture: bool = False) -> str:
    """Run a command of the cluster tool; its failure ends the demo with its code."""
    out = subprocess.PIPE if capture else None
    done = subprocess.run([sys.executable, "-m", "tests.cluster", *argv], check=False, text=True, stdout=out)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return done.stdout or ""


def submit() -> Job:
    """Apply the example anew in its own namespace."""
    kubectl = Kubectl(NAMESPACE)
    body = example("dgl-api")
    name = body["metadata"]["name"]
    if kubectl.get("namespace", NAMESPACE) is None:
        kubectl.run("create", "namespace", NAMESPACE)
    wait_for("default ServiceAccount", lambda: kubectl.get("serviceaccount", "default"), 30)
    kubectl.run("delete", "dgljob", name, "--ignore-not-found", "--cascade=foreground")
    say(f"kubectl apply -n {NAMESPACE} -f manifests/examples/dgl-api.yaml")
    kubectl.apply(body)
    return Job(kubectl, name)


def follow(job: Job) -> None:
    """Print `kubectl get dgljob -w` and the logs of partitioner and launcher until the job has ended."""
    kubectl = [binary("kubectl"), "-n", NAMESPACE]
    watch = subprocess.Popen([*kubectl, "get", "dgljob", job.name, "-w"])
    followers = [
        threading.Thread(target=follow_pod, args=(kubectl, pod, job), daemon=True)
        for pod in (f"{job.name}-partitioner", job.launcher)
    ]
    for thread in followers:
        thread.start()
    try:
        wait_for("the end of the job", lambda: job.phase() in FINAL or None, SECONDS)
        for thread in followers:
            thread.join(timeout=15)
    finally:
        watch.terminate()


def follow_pod(kubectl: Iterable[str], pod: str, job: Job) -> None:
    """Follow a pod's log from its start to its end; a pod that never comes is no error here."""

    def started() -> bool | None:
        body = job.kubectl.get("pod", pod) or {}
        states = body.get("status", {}).get("containerStatuses", [])
        return True if any("waiting" not in state["state"] for state in states) else None

    try:
        wait_for(f"{pod} started", started, SECONDS)
        subprocess.run([*kubectl, "logs", "-f", pod], check=False)
    except (TimeoutError, Refused) as gone:
        say(str(gone))


def conclude(job: Job, seconds: float) -> int:
    """Say how it ended."""
    if job.phase() != "Completed":
        say(f"the job is {job.phase()} after {seconds:.0f} s")
        print(job.story())
        return 1
    accuracy = ACCURACY.search(job.kubectl.logs(job.launcher))
    say(f"Completed, {accuracy[0] if accuracy else 'no accuracy in the log'}; {seconds:.0f} s in all")
    say(f"look around: export KUBECONFIG={os.environ['KUBECONFIG']}")
    return 0 if accuracy else 1


if __name__ == "__main__":
    sys.exit(main())
