"""The images that the cluster holds, and their sizes for docs/reference/figures.md."""

import pytest

from tests.e2e.figures import Figures
from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl, wait_for

pytestmark = pytest.mark.e2e

OURS = ("operator", "watcher-loop", "kubectl-download", "job", "graphsage")
MIB = 1024 * 1024
REPORTED = 360.0
"""Seconds within which a kubelet has reported what images its node holds (5 min by default)."""


def sizes(kubectl: Kubectl) -> dict[str, int] | None:
    """Bytes of each image of ours as the kubelets report them; None until all are reported."""
    held = [entry for node in kubectl.list("nodes") for entry in node["status"].get("images", [])]
    known = {name: entry["sizeBytes"] for entry in held for name in entry.get("names") or ()}
    found = {name: known.get(image(f"{name}:{VERSION}"), 0) for name in OURS}
    return found if all(found.values()) else None


def test_the_nodes_tell_the_size_of_each_image(kubectl: Kubectl, measured: Figures) -> None:
    """Written to the figures; an image of the same name that is not there would have failed its pods."""
    for name, size in wait_for("all images reported by a node", lambda: sizes(kubectl), REPORTED).items():
        measured.add(f"image-{name}", size / MIB, "MiB", f"image {name}, as its node reports it")
