"""Two small pods: the shortest proof that the node runs containers."""

import time

from tests.cluster import configs, kube, steps
from tests.cluster.places import Places

NAMES = ("smoke-1", "smoke-2")


def pod(name: str) -> dict[str, object]:
    """Return a pod of the one image that every node has."""
    container = {"name": "main", "image": configs.PAUSE, "imagePullPolicy": "Never"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0},
    }


def run(places: Places) -> float:
    """Start two pods, wait until they are Ready, delete them; return the seconds until Ready.

    Raises:
        StepError: they were not Ready in time; the message tells what the kubelet said.
    """
    _delete(places)
    start = time.monotonic()
    with steps.step("two pods Ready"):
        kube.apply(places, *map(pod, NAMES))
        try:
            steps.until("two pods to be Ready", lambda: _ready(places), seconds=60)
        except steps.StepError as failure:
            said = kube.kubectl(places, "describe", "pods", *NAMES)
            raise steps.StepError(f"{failure}\n{said}") from failure
    seconds = time.monotonic() - start
    _delete(places)
    return seconds


def _ready(places: Places) -> bool:
    return all(kube.is_true(kube.get(places, "pod", name), "Ready") for name in NAMES)


def _delete(places: Places) -> None:
    kube.kubectl(places, "delete", "pods", "--ignore-not-found", "--now", *NAMES)
