"""Bring the node up, quickly when it is up already, and from whatever a crash left."""

import fcntl
import json
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import (
    buildah,
    builds,
    certs,
    configs,
    daemons,
    host,
    kind,
    kube,
    node,
    packages,
    pause,
    runtime,
    steps,
    teardown,
)
from tests.cluster.configs import Node
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places


def up(places: Places) -> None:
    """Make sure that the cluster runs and answers; what works already stays as it is."""
    with locked(places):
        if kind.chosen():
            kind.up(places)
            return
        packages.install()
        builds.ensure((*builds.NODE, *builds.older(), *builds.CLIENTS), places)
        here = host.node()
        wanted = node.daemons(places, here)
        if _runs(places, here, wanted):
            steps.note("the node runs already")
        else:
            _clean_up_first(places)
            _start(places, here, wanted)
        _wait_until_useful(places, wanted)


def down(places: Places) -> None:
    """Take the cluster away and leave no trace of it but the cache."""
    with locked(places):
        if kind.chosen():
            kind.down(places)
            return
        with steps.step("take the node down"):
            teardown.clean(places, keep_images=False)
            buildah.release(places)


@contextmanager
def locked(places: Places) -> Iterator[None]:
    """Let one process at a time change the cluster."""
    places.cache.mkdir(parents=True, exist_ok=True)
    with places.lock.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _runs(places: Places, here: Node, wanted: dict[str, Daemon]) -> bool:
    """Tell whether exactly the wanted daemons run with exactly the wanted configuration."""
    if not all(daemons.alive(daemon, places) for daemon in wanted.values()):
        return False
    rendered = configs.files(places, here)
    return all(path.exists() and path.read_text() == text for path, text in rendered.items())


def _clean_up_first(places: Places) -> None:
    if teardown.leftovers(places):
        with steps.step("clean up what an earlier cluster left"):
            teardown.clean(places, keep_images=True)


def _start(places: Places, here: Node, wanted: dict[str, Daemon]) -> None:
    """Start everything in order. A daemon that needs the API server starts when that answers."""
    with steps.step("prepare the host, certificates and configuration"):
        host.remember(places)
        host.prepare()
        _write_files(places, here)
    with steps.step("start containerd and etcd"):
        runtime.forget_containers(places)
        _launch(places, wanted, "containerd", "etcd")
        runtime.wait(places, wanted["containerd"])
    with steps.step("start the API server"):
        _launch(places, wanted, "apiserver")
        _wait_for_api(places, wanted)
    with steps.step("start the controllers, the scheduler, the kubelet, the proxy and CoreDNS"):
        _launch(places, wanted, "controller-manager", "scheduler", "proxy", "coredns")
        runtime.load(places, pause.archive(places), configs.PAUSE)
        _launch(places, wanted, "kubelet")


def _write_files(places: Places, here: Node) -> None:
    """Write keys when there are none for this address, and every configuration file."""
    mark = places.pki / "address"
    if not mark.exists() or mark.read_text() != here.ip:
        certs.make(places.pki, here.ip)
        mark.write_text(here.ip)
    for path, text in configs.files(places, here).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for user in configs.KUBECONFIGS:
        path = places.config / f"{user}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(configs.kubeconfig(user, here.ip, places.pki))


def _launch(places: Places, wanted: dict[str, Daemon], *names: str) -> None:
    for name in names:
        daemons.start(wanted[name], places)


def _wait_for_api(places: Places, wanted: dict[str, Daemon]) -> None:
    first = [wanted["etcd"], wanted["apiserver"]]
    steps.until(
        "the API server to be ready",
        lambda: kube.succeeds(places, "get", "--raw", "/readyz"),
        seconds=120,
        check=lambda: daemons.check(first, places),
    )


def _wait_until_useful(places: Places, wanted: dict[str, Daemon]) -> None:
    """Wait for all that a pod relies on: a node, an account, names."""

    def check() -> None:
        daemons.check(wanted.values(), places)

    with steps.step("wait for the API server, the node, the default account and CoreDNS"):
        _wait_for_api(places, wanted)
        kube.kubectl(places, "apply", "--server-side", "-f", places.config / "dns.json")
        steps.until(
            "the node to be Ready",
            lambda: kube.is_true(kube.get(places, "node", configs.NODE_NAME), "Ready"),
            seconds=90,
            check=check,
        )
        steps.until(
            "the default ServiceAccount",
            lambda: kube.succeeds(places, "get", "serviceaccount", "default"),
            seconds=90,
            check=check,
        )
        steps.until(
            "CoreDNS to know the kubernetes Service through the Service address",
            lambda: resolves(f"kubernetes.default.svc.{configs.DOMAIN}", configs.API_SERVICE_IP),
            seconds=60,
            check=check,
        )


def resolves(name: str, address: str, server: str = configs.DNS_SERVICE_IP) -> bool:
    """Ask a name server for a name's address by a plain UDP query.

    The answer's content counts: on a host whose gateway accepts any connection, mere success proves nothing.
    """
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    query = struct.pack(">HHHHHH", 0x0D61, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">HH", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.settimeout(1)
        try:
            channel.sendto(query, (server, 53))
            answer = channel.recv(4096)
        except OSError:
            return False
    return answer[:2] == query[:2] and socket.inet_aton(address) in answer


def status(places: Places) -> dict[str, object]:
    """Return what runs, as a value that prints as JSON."""
    running = daemons.recorded(places)
    return {
        "state": str(places.state),
        "kubeconfig": str(places.kubeconfig) if places.kubeconfig.exists() else None,
        "daemons": running,
        "ready": places.kubeconfig.exists() and kube.succeeds(places, "get", "--raw", "/readyz"),
    }


def print_status(places: Places) -> None:
    """Print the status, and pods where the API server answers."""
    seen = status(places)
    print(json.dumps(seen, indent=2))
    if seen["ready"]:
        print(kube.kubectl(places, "get", "pods", "--all-namespaces", "-o", "wide"), end="")
