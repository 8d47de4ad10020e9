"""Install the Debian packages that a node needs, only when one is missing."""

import os
import shutil

from tests.cluster import commands, steps

NODE = (
    "buildah",
    "conntrack",
    "containernetworking-plugins",
    "debootstrap",
    "ethtool",
    "gcc",
    "iproute2",
    "ipset",
    "iptables",
    "kmod",
    "libc6-dev",
    "nftables",
    "openssl",
    "runc",
    "skopeo",
    "socat",
)


def missing(wanted: tuple[str, ...] = NODE) -> list[str]:
    """Return the packages that are not installed."""
    _, out, _ = commands.attempt("dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted)
    present = {line.split()[0] for line in out.splitlines() if line.endswith(" installed")}
    return [name for name in wanted if name not in present]


def install(wanted: tuple[str, ...] = NODE) -> None:
    """Install what is missing; a host that lacks nothing is not touched, and needs no network.

    Raises:
        StepError: this host is not a Debian, or this user not root.
    """
    if os.geteuid() != 0:
        raise steps.StepError(
            "a node of our own needs root; else start a Docker engine or name a cluster by KUBECONFIG"
        )
    if shutil.which("dpkg-query") is None:
        raise steps.StepError("the node needs a Debian host: there is no dpkg-query")
    names = missing(wanted)
    if not names:
        return
    patient = ("-o", "DPkg::Lock::Timeout=600", "-q")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with steps.step(f"install Debian packages: {' '.join(names)}"):
        commands.run("apt-get", *patient, "update", env=env)
        commands.run("apt-get", *patient, "install", "-y", "--no-install-recommends", *names, env=env)
