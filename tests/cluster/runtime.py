"""What the tool asks of the container runtime: forget old containers, take images in."""

import contextlib
import re
import subprocess
from pathlib import Path

from tests.cluster import builds, commands, daemons, node, steps
from tests.cluster.daemons import Daemon
from tests.cluster.layout import Descriptor, Layout
from tests.cluster.places import Places


def wait(places: Places, daemon: Daemon) -> None:
    """Wait until the runtime answers.

    Raises:
        StepError: it ended, or did not answer in time.
    """
    steps.until(
        "containerd to answer",
        lambda: places.socket.exists() and ctr(places, "version")[0] == 0,
        seconds=60,
        check=lambda: daemons.check([daemon], places),
        pause=0.05,
    )


def ctr(places: Places, *argv: str | Path) -> tuple[int, str, str]:
    """Run the runtime's client in the namespace of Kubernetes."""
    return commands.attempt(*_client(places), *argv)


def _client(places: Places) -> tuple[str | Path, ...]:
    return (builds.program("ctr", places), "--address", places.socket, "--namespace", "k8s.io")


def forget_containers(places: Places) -> None:
    """Remove records of containers whose processes are gone, but keep the images.

    The runtime would restore them as pods, and the kubelet would work through them one by one. It is
    started for this without its Kubernetes side, which keeps a copy of the records in memory.
    """
    root = places.containerd / "root"
    for old in root.glob("io.containerd.runtime.v2.task"), root.glob("io.containerd.*cri*"):
        for path in old:
            if "images" not in path.name:
                commands.run("rm", "-rf", path)
    if not (root / "io.containerd.metadata.v1.bolt").exists():
        return
    keeper = node.containerd(places, "housekeeping.toml")
    daemons.start(keeper, places)
    try:
        wait(places, keeper)
        for kind, remove in (("containers", ("rm",)), ("sandboxes", ("rm", "--force"))):
            _remove_all(places, kind, remove)
    finally:
        running = daemons.recorded(places)
        daemons.end([running[name] for name in (keeper.name,) if name in running], grace=10)


def _remove_all(places: Places, kind: str, remove: tuple[str, ...]) -> None:
    _, out, _ = ctr(places, kind, "ls", "-q") if kind == "containers" else ctr(places, kind, "ls")
    rows = out.splitlines() if kind == "containers" else out.splitlines()[1:]
    names = [row.split()[0] for row in rows if row.strip()]
    if names:
        ctr(places, kind, *remove, *names)


def load(places: Places, archive: Path, name: str) -> bool:
    """Import an image archive unless the runtime has this very content; tell whether it did.

    Raises:
        StepError: the runtime refused it, or knows it by another name.
    """
    mark = places.containerd / "root" / f"imported-{re.sub(r'[^a-z0-9.]+', '-', name)}"
    stat = archive.stat()
    content = f"{archive} {stat.st_size} {stat.st_mtime_ns}\n"
    if mark.exists() and mark.read_text() == content and has(places, name):
        return False
    code, out, err = ctr(places, "images", "import", archive)
    if code != 0 or not has(places, name):
        raise steps.StepError(f"containerd does not take {archive} as {name}:\n{out}{err}")
    mark.write_text(content)
    return True


def load_image(places: Places, images: Layout, ref: str, name: str) -> None:
    """Import an image out of a layout unless the runtime has this very one.

    Raises:
        StepError: the runtime refused it.
    """
    descriptor = images.find(ref)
    if descriptor is None:
        raise steps.StepError(f"{images.folder} holds no {ref}")
    if target(places, name) == descriptor["digest"]:
        return
    present = ctr(places, "content", "ls", "-q")[1].split()
    code, said = _import(places, images, descriptor, name, present)
    if code != 0:  # what was present may have been collected as garbage meanwhile
        code, said = _import(places, images, descriptor, name, [])
    if code != 0 or target(places, name) != descriptor["digest"]:
        raise steps.StepError(f"containerd does not take {name}:\n{said}")


def _import(
    places: Places, images: Layout, descriptor: Descriptor, name: str, present: list[str]
) -> tuple[int, str]:
    argv = [*map(str, _client(places)), "images", "import", "-"]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            images.write(descriptor, name, present, process.stdin)
            process.stdin.close()
        said = process.stderr.read().decode(errors="replace")
    return process.returncode, said


def target(places: Places, name: str) -> str | None:
    """Return the digest of what an image's name leads to, None when the runtime knows no such name."""
    for line in ctr(places, "images", "ls", f"name=={name}")[1].splitlines()[1:]:
        return line.split()[2]
    return None


def has(places: Places, name: str) -> bool:
    """Tell whether the runtime knows an image by this name."""
    _, out, _ = ctr(places, "images", "ls", "-q")
    return name in out.splitlines()
