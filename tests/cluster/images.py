"""The project's images: what they are built from, and whether a built one is still up to date.

Everything here reads files of the checkout and decides; building is the engine's business.
"""

import hashlib
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster import builds, steps
from tests.cluster.places import REPOSITORY, Places, project_version

PLACEHOLDER = "registry.example.org"
"""The registry in our manifests, by which our own node has the images.

A name reserved for documentation: an image that is missing there is never pulled from someone else.
"""
REGISTRY = f"{PLACEHOLDER}/dgloperator"
BASE = "docker.io/library/debian:bookworm-slim"
"""The base image of our own builds; the Dockerfiles name one by its digest."""
CONTENT_LABEL = "dgl-operator.content"
CACHES = {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
PARMETIS = "parmetis"
STAGED_KUBECTL = REPOSITORY / "build" / "kubectl"


@dataclass(frozen=True)
class Image:
    """An image of the project; the build context is always the repository root."""

    name: str
    dockerfile: str
    parents: Mapping[str, str] = field(default_factory=dict)
    """Build argument to the name of the image of ours that it takes."""
    needs_kubectl: bool = False
    args: Mapping[str, str] = field(default_factory=dict)
    variant: str = ""
    """What sets this image apart from the one of the same Dockerfile that is built by default."""

    @property
    def tag(self) -> str:
        """The full name that pods use."""
        plain = self.name.removesuffix(f"-{self.variant}")
        return f"{REGISTRY}/{plain}:v{project_version()}{f'-{self.variant}' if self.variant else ''}"

    def build_args(self) -> dict[str, str]:
        """Return every build argument, parents among them."""
        return {**self.args, **{arg: IMAGE[name].tag for arg, name in self.parents.items()}}


IMAGE = {
    image.name: image
    for image in (
        Image("operator", "images/operator/Dockerfile"),
        Image("watcher-loop", "images/watcher-loop/Dockerfile"),
        Image("kubectl-download", "images/kubectl-download/Dockerfile", needs_kubectl=True),
        Image("job", "images/job/Dockerfile"),
        Image("graphsage", "images/examples/graphsage/Dockerfile", {"JOB_IMAGE": "job"}),
        Image("job-modern", "images/job/Dockerfile", args={"STACK": "pypi"}, variant="modern"),
        Image(
            "graphsage-modern",
            "images/examples/graphsage/Dockerfile",
            {"JOB_IMAGE": "job-modern"},
            variant="modern",
        ),
        Image(
            "job-parmetis",
            "images/job/Dockerfile",
            args={"ACCEPT_PARMETIS_LICENSE": "yes"},
            variant=PARMETIS,
        ),
        Image(
            "graphsage-parmetis",
            "images/examples/graphsage/Dockerfile",
            {"JOB_IMAGE": "job-parmetis"},
            variant=PARMETIS,
        ),
    )
}


def default(environ: Mapping[str, str]) -> tuple[str, ...]:
    """What is built when no image is named: with ParMETIS only for whoever accepts its licence."""
    wanted = ("", PARMETIS) if environ.get("DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE") == "yes" else ("",)
    return tuple(name for name, image in IMAGE.items() if image.variant in wanted)


DEFAULT = default(os.environ)
"""What is built when no image is named."""


def ordered(names: Iterable[str]) -> list[Image]:
    """Return the named images, all but variants when none is named, each after its parents.

    Raises:
        StepError: there is no image of that name.
    """
    found: dict[str, Image] = {}

    def add(name: str) -> None:
        if name not in IMAGE:
            raise steps.StepError(f"no image is called {name!r}; there are {', '.join(IMAGE)}")
        for parent in IMAGE[name].parents.values():
            add(parent)
        found.setdefault(name, IMAGE[name])

    for name in list(names) or DEFAULT:
        add(name)
    return list(found.values())


def stage(wanted: Iterable[Image], places: Places) -> None:
    """Put what no checkout holds where the Dockerfiles expect it."""
    if any(image.needs_kubectl for image in wanted):
        builds.ensure(["kubectl"], places)
        fresh = builds.program("kubectl", places)
        if not STAGED_KUBECTL.exists() or STAGED_KUBECTL.read_bytes() != fresh.read_bytes():
            STAGED_KUBECTL.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(fresh, STAGED_KUBECTL)


def content(image: Image, base: str, root: Path = REPOSITORY) -> str:
    """Return a hash of all that decides what the image holds.

    Args:
        image: the image.
        base: what identifies the base image.
        root: the build context.
    """
    dockerfile = root / image.dockerfile
    if not dockerfile.exists():
        raise steps.StepError(f"{image.name}: there is no {image.dockerfile}")
    digest = hashlib.sha256(repr((base, sorted(image.build_args().items()))).encode())
    for parent in image.parents.values():
        digest.update(content(IMAGE[parent], base, root).encode())
    text = dockerfile.read_text()
    digest.update(text.encode())
    for source in copied(text):
        _add(digest.update, root, source)
    return digest.hexdigest()[:16]


def copied(dockerfile: str) -> list[str]:
    """Return the sources that a Dockerfile copies from the build context."""
    sources: list[str] = []
    for line in re.sub(r"\\\n", " ", dockerfile).splitlines():
        words = shlex.split(line, comments=True) if re.match(r"\s*(COPY|ADD)\s", line, re.IGNORECASE) else []
        if not any(word.startswith("--from=") for word in words):
            sources.extend([word for word in words[1:] if not word.startswith("--")][:-1])
    return sources


def _add(update: Callable[[bytes], None], root: Path, source: str) -> None:
    matches = (
        sorted(root.glob(source.removeprefix("./").rstrip("/"))) if source not in {".", "./"} else [root]
    )
    if not matches:
        raise steps.StepError(f"a Dockerfile copies {source}, which is not in the checkout")
    for match in matches:
        files = sorted(match.rglob("*")) if match.is_dir() else [match]
        for path in files:
            name = path.relative_to(root)
            if path.is_file() and not CACHES.intersection(name.parts):
                update(f"{name}\0{path.stat().st_mode & 0o111:o}\0".encode() + path.read_bytes())
