"""The daemons of the node with their arguments. Pure: places and an address in, argument lists out."""

from pathlib import Path

from tests.cluster import builds
from tests.cluster.configs import API_PORT, DOMAIN, NODE_NAME, SERVICE_RANGE, Node
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places

ETCD = "http://127.0.0.1:2379"
ETCD_PEER = "http://127.0.0.1:2380"
GANG_API = "scheduling.k8s.io/v1alpha2"
AUDIT_MEGABYTES = 1000  # so that a test finds the whole run in one file


def daemons(places: Places, node: Node) -> dict[str, Daemon]:
    """Return every daemon by name, in the order in which they start."""
    made = (
        containerd(places),
        etcd(places),
        apiserver(places, node),
        controller_manager(places),
        scheduler(places),
        kubelet(places, node),
        proxy(places),
        coredns(places),
    )
    return {daemon.name: daemon for daemon in made}


def containerd(places: Places, config: str = "containerd.toml") -> Daemon:
    """Return the container runtime."""
    return _daemon("containerd", "containerd", places, f"--config={places.config / config}")


def etcd(places: Places) -> Daemon:
    """Return the database; it may lose data in a power failure, as nobody will miss them."""
    return _daemon(
        "etcd",
        "etcd",
        places,
        "--name=node1",
        f"--data-dir={places.state / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={ETCD}",
        f"--advertise-client-urls={ETCD}",
        f"--listen-peer-urls={ETCD_PEER}",
        f"--initial-advertise-peer-urls={ETCD_PEER}",
        f"--initial-cluster=node1={ETCD_PEER}",
    )


def apiserver(places: Places, node: Node) -> Daemon:
    """Return the API server, which writes down who asked for what."""
    pki = places.pki
    return _daemon(
        "apiserver",
        "kube-apiserver",
        places,
        f"--etcd-servers={ETCD}",
        f"--advertise-address={node.ip}",
        f"--secure-port={API_PORT}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        f"--client-ca-file={pki}/ca.crt",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        "--kubelet-preferred-address-types=InternalIP,Hostname",
        f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        f"--audit-policy-file={places.config}/audit.json",
        f"--audit-log-path={places.audit_log}",
        f"--audit-log-maxsize={AUDIT_MEGABYTES}",
        *_gates("GenericWorkload"),
        *(() if builds.older() else (f"--runtime-config={GANG_API}=true",)),
    )


def controller_manager(places: Places) -> Daemon:
    """Return the built-in controllers."""
    return _daemon(
        "controller-manager",
        "kube-controller-manager",
        places,
        *_client(places, "controller-manager"),
        f"--root-ca-file={places.pki}/ca.crt",
        f"--service-account-private-key-file={places.pki}/sa.key",
        "--use-service-account-credentials=true",
        f"--cluster-signing-cert-file={places.pki}/ca.crt",
        f"--cluster-signing-key-file={places.pki}/ca.key",
        *_gates("GenericWorkload"),
    )


def scheduler(places: Places) -> Daemon:
    """Return the scheduler."""
    gates = _gates("GenericWorkload", "GangScheduling")
    return _daemon("scheduler", "kube-scheduler", places, *_client(places, "scheduler"), *gates)


def kubelet(places: Places, node: Node) -> Daemon:
    """Return the kubelet."""
    return _daemon(
        "kubelet",
        "kubelet",
        places,
        f"--config={places.config}/kubelet.json",
        f"--kubeconfig={places.config}/kubelet.kubeconfig",
        f"--root-dir={places.state}/kubelet",
        f"--cert-dir={places.state}/kubelet-certs",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={node.ip}",
        "--v=2",
    )


def proxy(places: Places) -> Daemon:
    """Return the proxy that gives Services their addresses."""
    return _daemon("proxy", "kube-proxy", places, f"--config={places.config}/proxy.json")


def coredns(places: Places) -> Daemon:
    """Return the name server, a plain process: it needs no image."""
    return _daemon("coredns", "coredns", places, "-conf", f"{places.config}/Corefile")


def _gates(*names: str) -> tuple[str, ...]:
    """Return the flag of alpha features, none with an older control plane, which does not know them."""
    return () if builds.older() else (f"--feature-gates={','.join(f'{name}=true' for name in names)}",)


def _daemon(name: str, program: str, places: Places, *arguments: str | Path) -> Daemon:
    return Daemon(name, (str(builds.program(program, places)), *map(str, arguments)))


def _client(places: Places, user: str) -> tuple[str, ...]:
    """Return what the controllers and the scheduler share; one of each needs no election."""
    path = places.config / f"{user}.kubeconfig"
    kinds = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
    return (*(f"--{kind}={path}" for kind in kinds), "--leader-elect=false", "--bind-address=127.0.0.1")
