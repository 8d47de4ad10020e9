"""A cluster that the user brought along by KUBECONFIG: it is asked whether it answers, and left alone."""

import os
from collections.abc import Sequence
from pathlib import Path

from tests.cluster import builds, commands, images, steps
from tests.cluster.places import Places

REGISTRY = "DGL_OPERATOR_REGISTRY"


def given(places: Places) -> Path | None:
    """Return the kubeconfig of another cluster than ours, None when the user names none."""
    named = os.environ.get("KUBECONFIG", "")
    if not named or Path(named).resolve() == places.kubeconfig.resolve():
        return None
    return Path(named).absolute()


def registry() -> str:
    """Return where the nodes get the project's images, as for the chart's `images.registry`."""
    return (os.environ.get(REGISTRY) or images.PLACEHOLDER).rstrip("/")


def pulled(text: str) -> str:
    """Return a text with the project's images under the names by which the nodes get them."""
    return text.replace(images.REGISTRY, images.REGISTRY.replace(images.PLACEHOLDER, registry()))


def refuse_registry() -> None:
    """Refuse a registry for our own node, which has its images from here under the names in the manifests.

    Raises:
        StepError: one is named.
    """
    if registry() != images.PLACEHOLDER:
        raise steps.StepError(f"{REGISTRY}={registry()} is for a cluster that KUBECONFIG names")


def check(kubeconfig: Path, places: Places) -> None:
    """Make sure that the cluster answers.

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


def tell_images(names: Sequence[str]) -> None:
    """Say which images are the user's part, those of every test when none is named."""
    steps.note("its nodes must be able to pull these images, or hold them already:")
    for image in [images.IMAGE[name] for name in names or images.DEFAULT]:
        steps.note(f"  {pulled(image.tag)}")
