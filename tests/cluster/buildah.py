"""Build images where no engine runs: buildah with a storage of its own below the cache."""

import contextlib
import fcntl
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import base, commands, images, runtime, steps, teardown
from tests.cluster.images import Image
from tests.cluster.layout import Layout
from tests.cluster.places import REPOSITORY, Places

HOST_CA = Path("/etc/ssl/certs/ca-certificates.crt")
BUILD_CA = "/run/build-ca.crt"


@dataclass(frozen=True)
class Buildah:
    """The engine of a host without an engine."""

    places: Places

    def content(self, tag: str) -> str | None:
        """Return the content hash that an image was built from, None when there is no such image."""
        code, out, _ = commands.attempt(*self.command("inspect", "--type", "image", tag))
        if code != 0:
            return None
        labels = json.loads(out)["OCIv1"].get("config", {}).get("Labels") or {}
        found = labels.get(images.CONTENT_LABEL)
        return str(found) if found else None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Let one build run at a time, after what a killed one left has been cleared away."""
        self.places.buildah.mkdir(parents=True, exist_ok=True)
        with (self.places.buildah / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if commands.run(*self.command("containers", "-q")).split():
                commands.run(*self.command("rm", "--all"))
            yield

    def base(self) -> str:
        """Make the base image unless it is there; return what identifies it."""
        wanted = base.content()
        if self.content(images.BASE) != wanted:
            with steps.step(f"make the base image {images.BASE} by debootstrap", long=True):
                self._make_base(wanted)
        return wanted

    def build(self, image: Image, content: str) -> None:
        """Build an image from its Dockerfile."""
        with tempfile.TemporaryDirectory() as aside:
            argv = self.command(*build_arguments(image, content, volumes(Path(aside)), pip_arguments()))
            commands.run(*argv, REPOSITORY)

    def deliver(self, name: str, tag: str, content: str) -> None:
        """Give an image to the node's container runtime, once for each content."""
        images_here = Layout(self.places.cache / "images")
        ref = f"{name}-{content}"
        if images_here.find(ref) is None:
            store = f"overlay@{self.places.buildah}/root+{self.places.buildah}/run"
            as_it_is = ("copy", "-q", "--dest-oci-accept-uncompressed-layers")  # compressing takes longer
            source, to = f"containers-storage:[{store}]{tag}", f"oci:{images_here.folder}:{ref}"
            commands.run("skopeo", *as_it_is, source, to)
            images_here.keep(ref)
        runtime.load_image(self.places, images_here, ref, tag)

    def _make_base(self, content: str) -> None:
        tree = base.tree(self.places)
        container = commands.run(*self.command("from", "scratch")).strip()
        try:
            commands.run(*self.command("add", "-q", container, tree, "/"))
            label = f"{images.CONTENT_LABEL}={content}"
            commands.run(*self.command("config", "--cmd", "bash", "--label", label, container))
            commands.run(*self.command("commit", "-q", container, images.BASE))
        finally:
            commands.run(*self.command("rm", container))

    def command(self, name: str, *argv: str | Path) -> list[str | Path]:
        """Return a buildah command that uses our storage only."""
        store = self.places.buildah
        where = ("--root", store / "root", "--runroot", store / "run", "--storage-driver", "overlay")
        return ["buildah", *where, name, *argv]


def release(places: Places) -> None:
    """Unmount what a killed build left; a build that runs has the lock, and is left alone."""
    lock = places.buildah / "lock"
    if not lock.exists():
        return
    with lock.open("w") as held, contextlib.suppress(BlockingIOError):
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        teardown.unmount(places.buildah)


def build_arguments(image: Image, content: str, mounts: Sequence[str], pip: Mapping[str, str]) -> list[str]:
    """Return the arguments of a build; the context comes last and is the caller's."""
    base = {} if image.parents else {"BASE_IMAGE": images.BASE}  # made here: no registry has to be reached
    args = {**base, **image.build_args(), **pip}
    return [
        *("bud", "--isolation", "chroot", "--pull-never", "--layers"),
        *("-f", str(REPOSITORY / image.dockerfile), "-t", image.tag),
        *(word for mount in mounts for word in ("-v", mount)),
        *(word for name, value in args.items() for word in ("--build-arg", f"{name}={value}")),
        *("--label", f"{images.CONTENT_LABEL}={content}"),
    ]


def pip_arguments() -> dict[str, str]:
    """Return how this host's pip reaches its packages, in words that hold inside a build."""
    names = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "PIP_DEFAULT_TIMEOUT")
    found = {name: os.environ[name] for name in names if os.environ.get(name)}
    return {**found, "PIP_CERT": BUILD_CA} if HOST_CA.exists() else found


def volumes(aside: Path) -> list[str]:
    """Return what a build sees of this host: its authorities, and how its apt reaches its packages."""
    apt = aside / "apt.conf"
    apt.write_text(apt_settings(commands.run("apt-config", "dump")))
    mounts = [f"{apt}:/etc/apt/apt.conf.d/99build-host:ro"]
    return [f"{HOST_CA}:{BUILD_CA}:ro", *mounts] if HOST_CA.exists() else mounts


def apt_settings(dump: str) -> str:
    """Return the settings of apt that decide how packages are reached, out of all of them."""
    wanted = re.compile(r"^Acquire::((https?|ftp)::|Check-|Retries|ForceIPv)")
    return "".join(f"{line}\n" for line in dump.splitlines() if wanted.match(line))
