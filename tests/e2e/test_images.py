"""The images that our node holds, and their sizes for docs/reference/figures.md."""

import os

import pytest

from tests.e2e.figures import Figures
from tests.e2e.jobs import VERSION, image
from tests.e2e.kubectl import Kubectl
from tests.support.wait import wait_for

pytestmark = pytest.mark.e2e

OURS = ("operator", "watcher-loop", "kubectl-download", "job", "graphsage")
MIB = 1024 * 1024
REPORTED = 90.0
"""Seconds within which a kubelet has reported a new image."""


def sizes(kubectl: Kubectl) -> dict[str, int] | None:
    """Bytes of each image of ours as the kubelet reports them; None until all are reported."""
    held = [entry for node in kubectl.list("nodes") for entry in node["status"].get("images", [])]
    known = {name: entry["sizeBytes"] for entry in held for name in entry.get("names") or ()}
    found = {name: known.get(image(f"{name}:{VERSION}"), 0) for name in OURS}
    return found if all(found.values()) else None


def test_the_node_tells_the_size_of_each_image(operator: Kubectl, measured: Figures) -> None:
    """Uncompressed on our node; nodes that pull them count otherwise, and tell of their 50 largest only."""
    if not os.environ.get("DGL_OPERATOR_AUDIT_LOG"):  # tells our cluster from those of others
        pytest.skip("sizes are measured on our own node")
    for name, size in wait_for(f"sizes of {OURS}", lambda: sizes(operator), REPORTED).items():
        measured.add(f"image-{name}", size / MIB, "MiB", f"image {name}, uncompressed")
