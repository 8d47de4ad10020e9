"""Build what is out of date and give it to the cluster, by whichever engine this host has."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tests.cluster import daemons, images, kind, packages, steps
from tests.cluster.buildah import Buildah
from tests.cluster.images import Image
from tests.cluster.places import Places


class Engine(Protocol):
    """What builds images and gives them to a cluster."""

    def content(self, tag: str) -> str | None:
        """Return what an image was built from, None when there is none."""

    def ready(self) -> AbstractContextManager[None]:
        """Return what is held while images are built and given away."""

    def base(self) -> str:
        """Return what identifies the base image, made if need be."""

    def build(self, image: Image, content: str) -> None:
        """Build an image."""

    def deliver(self, name: str, tag: str, content: str) -> None:
        """Give an image to the cluster."""


def engine(places: Places) -> Engine:
    """Return the Docker engine where one answers, else buildah."""
    return kind.Docker(places) if kind.chosen() else Buildah(places)


def cluster_runs(places: Places) -> bool:
    """Tell whether there is a cluster of ours that takes images."""
    return kind.exists(places) if kind.chosen() else "containerd" in daemons.recorded(places)


def build(names: Sequence[str], places: Places, *, load: bool) -> None:
    """Build the named images, all when none is named, and load them if asked.

    Raises:
        StepError: there is no cluster of ours to load them into.
    """
    if load and not cluster_runs(places):
        raise steps.StepError("no cluster runs that images could be loaded into: start it by `up`")
    if not kind.chosen():
        packages.install()
    maker = engine(places)
    wanted = images.ordered(names)
    images.stage(wanted, places)
    with maker.ready():
        base = maker.base()
        for image in wanted:
            _bring(image, maker, base, load=load and image.name in (names or images.DEFAULT))


def _bring(image: Image, maker: Engine, base: str, *, load: bool) -> None:
    content = images.content(image, base)
    if maker.content(image.tag) == content:
        steps.note(f"{image.tag} is up to date")
    else:
        with steps.step(f"build {image.tag}", long=True):
            maker.build(image, content)
    if load:
        with steps.step(f"load {image.tag}"):
            maker.deliver(image.name, image.tag, content)


def load_base(places: Places) -> str:
    """Load the base image, a small Debian, for pods that need a shell; return its name."""
    maker = engine(places)
    with maker.ready():
        maker.deliver("base", images.BASE, maker.base())
    return images.BASE
