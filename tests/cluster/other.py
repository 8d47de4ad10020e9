"""A cluster that the user brought along by KUBECONFIG: it is asked whether it answers, and left alone."""

import os
from pathlib import Path

from tests.cluster import builds, commands, images, steps
from tests.cluster.places import Places


def given(places: Places) -> Path | None:
    """Return the kubeconfig of another cluster than ours, None when the user names none."""
    named = os.environ.get("KUBECONFIG", "")
    if not named or Path(named).absolute() == places.kubeconfig:
        return None
    return Path(named).absolute()


def check(kubeconfig: Path, places: Places) -> None:
    """Make sure that the cluster answers, and say what is the user's part.

    Raises:
        StepError: it does not answer.
    """
    builds.ensure(builds.CLIENTS, places)
    with steps.step(f"ask the cluster of KUBECONFIG={kubeconfig}"):
        commands.run(
            *(builds.program("kubectl", places), f"--kubeconfig={kubeconfig}"),
            *("--request-timeout=20s", "get", "--raw", "/readyz"),
        )
    steps.note("this cluster is yours: it is used as it is, and `down` does not touch it")
    steps.note("its nodes must be able to pull these images, or hold them already:")
    registry = os.environ.get("DGL_OPERATOR_REGISTRY") or "docker.io"
    for name in images.DEFAULT:
        steps.note(f"  {images.IMAGE[name].tag.replace('docker.io', registry, 1)}")
