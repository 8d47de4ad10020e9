"""What the host looks like, what a node changes on it, and the way back."""

import json
import shutil
from pathlib import Path

from tests.cluster import commands
from tests.cluster.configs import BRIDGE, Node
from tests.cluster.places import Places

SYSCTLS = {
    "net.ipv4.ip_forward": "1",
    "net.bridge.bridge-nf-call-iptables": "1",
    "net.ipv4.conf.all.route_localnet": "",
    "vm.overcommit_memory": "",
    "vm.panic_on_oom": "",
    "kernel.panic": "",
    "kernel.panic_on_oops": "",
    "kernel.keys.root_maxkeys": "",
    "kernel.keys.root_maxbytes": "",
}
"""Kernel settings that a node sets: by us to this value, or by a daemon of the node where it is empty."""

FOLDERS = (
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/mount",
    "/run/nri",
    "/run/xtables.lock",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)
"""Paths outside the state folder that daemons make whatever they are told."""

MODULES = ("overlay", "br_netfilter", "nf_conntrack")
"""Kernel parts to load where they are modules; where they are built in, nothing is to be loaded."""


def node() -> Node:
    """Return the address that other machines would reach this host by."""
    routes = json.loads(commands.run("ip", "-j", "-4", "route", "show", "default"))
    device = ("dev", str(routes[0]["dev"])) if routes else ()
    shown = json.loads(commands.run("ip", "-j", "-4", "addr", "show", "scope", "global", *device))
    for link in shown:
        for address in link.get("addr_info", []):
            if link["ifname"] != BRIDGE:
                return Node(str(address["local"]), int(link["mtu"]))
    return Node("127.0.0.1", 1500)


def remember(places: Places) -> None:
    """Write down what `restore` needs, once: after a crash the host already looks like a node."""
    if places.before.exists():
        return
    before = {
        "sysctls": {name: setting(name).read_text().strip() for name in SYSCTLS if setting(name).exists()},
        "folders": [name for name in FOLDERS if Path(name).exists()],
        "tables": tables(),
    }
    places.before.parent.mkdir(parents=True, exist_ok=True)
    places.before.write_text(json.dumps(before, indent=2) + "\n")


def prepare() -> None:
    """Let the kernel forward packets, and have the packet filter see those of the bridge."""
    for module in MODULES:
        commands.attempt("modprobe", "-q", module)
    for name, value in SYSCTLS.items():
        if value and setting(name).exists():
            setting(name).write_text(value)


def restore(places: Places) -> None:
    """Undo what `prepare` and the daemons did to settings, folders and empty tables of the packet filter."""
    if not places.before.exists():
        return
    before = json.loads(places.before.read_text())
    for name, value in before["sysctls"].items():
        if setting(name).exists() and setting(name).read_text().strip() != value:
            setting(name).write_text(value)
    for name in FOLDERS:
        if name not in before["folders"]:
            remove(Path(name))
    for table in tables():
        if table not in before["tables"] and _is_empty(table):
            commands.attempt("nft", "delete", "table", *table.split())


def tables() -> list[str]:
    """Return the tables of the packet filter as "family name"."""
    _, out, _ = commands.attempt("nft", "list", "tables")
    return [line.removeprefix("table ") for line in out.splitlines()]


def _is_empty(table: str) -> bool:
    _, out, _ = commands.attempt("nft", "-j", "list", "table", *table.split())
    return not any("rule" in entry for entry in json.loads(out or "{}").get("nftables", [{"rule": {}}]))


def setting(name: str) -> Path:
    """Return the file of a kernel setting."""
    return Path("/proc/sys") / name.replace(".", "/")


def remove(path: Path) -> None:
    """Remove a file or a folder with all in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
