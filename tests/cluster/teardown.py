"""Take everything away that a cluster left, whether its daemons run, crashed or were killed.

The order matters: whoever would start something again ends first, containers end before their mounts
go, and addresses and rules go when nobody uses them.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

from tests.cluster import commands, daemons, host, policies, steps
from tests.cluster.configs import BRIDGE
from tests.cluster.places import Places

OURS = re.compile(r"(^:|(^-[AN]| -j| -g) )(KUBE|CNI)-")
"""A line of a saved packet filter that a proxy, a kubelet or a network plugin wrote."""

LAST = "containerd"
"""The daemon that ends after the containers."""


def clean(places: Places, *, keep_images: bool) -> None:
    """Return the host to what it was; with `keep_images` certificates and images stay for the next start."""
    end_processes(places)
    unmount(places.state)
    remove_network()
    remove_cgroups()
    host.restore(places)
    remove_files(places, keep_images=keep_images)


def leftovers(places: Places) -> bool:
    """Tell whether there is anything to clean beside kept images and certificates."""
    return bool(
        places.pids.exists()
        or daemons.strays(places)
        or mounts(places.state)
        or cgroups()
        or Path(f"/sys/class/net/{BRIDGE}").exists()
    )


def end_processes(places: Places) -> None:
    """End daemons, then containers, then shims, then the runtime."""
    recorded = daemons.recorded(places)
    runtime = recorded.pop(LAST, None)
    daemons.end(recorded.values(), grace=2)
    daemons.kill(_contained())
    daemons.kill(pid for pid in daemons.strays(places) if pid != runtime)
    daemons.end([runtime] if runtime else [], grace=5)
    daemons.kill(daemons.strays(places))


def _contained() -> list[int]:
    """Return the processes of all pods."""
    found: list[int] = []
    for path in cgroups():
        with contextlib.suppress(OSError):  # a group that is going right now has none
            found += [int(pid) for pid in (path / "cgroup.procs").read_text().split()]
    return found


def cgroups() -> list[Path]:
    """Return the kubelet's control groups, deepest first, of either version of the hierarchy."""
    root = Path("/sys/fs/cgroup")
    tops = [path for path in (root / "kubepods", *root.glob("*/kubepods")) if path.is_dir()]
    return [Path(folder) for top in tops for folder, _, _ in os.walk(top, topdown=False)]


def remove_cgroups() -> None:
    """Remove the kubelet's control groups; the kernel may need a moment after the last process."""

    def gone() -> bool:
        for path in cgroups():
            with contextlib.suppress(OSError):
                path.rmdir()
        return not cgroups()

    steps.until("the kernel to give up the control groups of the pods", gone, seconds=60)


def mounts(below: Path) -> list[str]:
    """Return what is mounted at a folder or below it, last mounted first."""
    return mounted(Path("/proc/self/mountinfo").read_text(), below)


def mounted(mountinfo: str, below: Path) -> list[str]:
    """Return the same of a given table of mounts, in which odd characters are written in octal."""
    points = [
        re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), line.split()[4])
        for line in mountinfo.splitlines()
    ]
    return [point for point in reversed(points) if point == str(below) or point.startswith(f"{below}/")]


def unmount(below: Path) -> None:
    """Unmount everything; what is still busy is detached and goes with its last user."""
    for _ in range(5):
        points = mounts(below)
        for point in points:
            code, _, _ = commands.attempt("umount", "--no-canonicalize", point)
            if code != 0:
                commands.attempt("umount", "--no-canonicalize", "--lazy", point)
        if not points:
            return
    raise steps.StepError(f"these stay mounted: {mounts(below)}")


def remove_network() -> None:
    """Remove the bridge with its ends of the pods' links, the rules of either address family, and sets."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        for end in Path(f"/sys/class/net/{BRIDGE}/brif").iterdir():
            commands.attempt("ip", "link", "delete", end.name)
        commands.run("ip", "link", "delete", BRIDGE)
    for family in ("iptables", "ip6tables"):
        _, saved, _ = commands.attempt(f"{family}-save")
        kept = without_ours(saved)
        if kept != saved:
            commands.run(f"{family}-restore", stdin=kept)
    policies.remove_sets()


def without_ours(saved: str) -> str:
    """Return a saved packet filter without the chains and rules of a node."""
    return "".join(line for line in saved.splitlines(keepends=True) if not OURS.search(line))


def remove_files(places: Places, *, keep_images: bool) -> None:
    """Remove the state, all of it or all but what the next start can use."""
    if not keep_images:
        shutil.rmtree(places.state, ignore_errors=True)
        if places.state.exists():
            raise steps.StepError(f"{places.state} cannot be removed")
        return
    kept = {places.pki, places.containerd, places.before}
    for path in places.state.iterdir() if places.state.exists() else ():
        if path not in kept:
            host.remove(path)
    for path in places.containerd.iterdir() if places.containerd.exists() else ():
        if path.name != "root":
            host.remove(path)
