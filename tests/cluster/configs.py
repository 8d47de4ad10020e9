"""Render the configuration of every daemon. Pure: values in, text out.

JSON serves wherever YAML is read, so that no library is needed.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.places import Places

NODE_NAME = "node1"
DOMAIN = "cluster.local"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
DNS_SERVICE_IP = "10.96.0.10"
POD_RANGE = "10.244.0.0/24"
BRIDGE = "dglop0"
API_PORT = 6443
DNS_PORT = 10053
PAUSE = "localhost/pause:own"
KUBECONFIGS = ("admin", "controller-manager", "scheduler", "proxy", "kubelet", "coredns")


@dataclass(frozen=True)
class Node:
    """The address of the node and the largest packet that its link carries."""

    ip: str
    mtu: int


def files(places: Places, node: Node) -> dict[Path, str]:
    """Return every configuration file that does not hold a key."""
    return {
        places.config / "containerd.toml": containerd(places),
        places.config / "housekeeping.toml": containerd(places, kubernetes=False),
        places.config / "kubelet.json": _json(kubelet(places)),
        places.config / "proxy.json": _json(proxy(places)),
        places.config / "audit.json": _json(audit()),
        places.config / "Corefile": corefile(places),
        places.config / "dns.json": _json(dns_service(node)),
        places.cni / "10-bridge.conflist": _json(bridge(places, node)),
        places.cni / "99-loopback.conf": _json({"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}),
    }


def containerd(places: Places, *, kubernetes: bool = True) -> str:
    """Return the runtime's configuration.

    Everything that can lie below the state folder does, network namespaces too: what is there is ours.
    Without `kubernetes` the runtime starts for house-keeping: nothing reads old sandboxes into memory.
    """
    own = places.containerd
    disabled = "[]" if kubernetes else '["io.containerd.grpc.v1.cri"]'
    return f"""\
version = 3
root = "{own}/root"
state = "{own}/run"
disabled_plugins = {disabled}
[grpc]
  address = "{places.socket}"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
        SystemdCgroup = false
        BinaryName = "runc"
        Root = "{own}/runc"
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
    conf_dir = "{places.cni}"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.internal.v1.opt"]
  path = "{own}/opt"
"""


def bridge(places: Places, node: Node) -> dict[str, object]:
    """Return the pod network: one bridge, addresses from a folder of the state."""
    return {
        "cniVersion": "1.0.0",
        "name": "dgl-operator",
        "plugins": [
            {
                "type": "bridge",
                "bridge": BRIDGE,
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "mtu": node.mtu,
                "ipam": {
                    "type": "host-local",
                    "dataDir": str(places.state / "ipam"),
                    "ranges": [[{"subnet": POD_RANGE}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(places: Places) -> dict[str, object]:
    """Return the kubelet's configuration, lenient about swap, cgroup v1 and small disks."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True, "cacheTTL": "10s"},
            "x509": {"clientCAFile": str(places.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(places.pki / "kubelet-server.crt"),
        "tlsPrivateKeyFile": str(places.pki / "kubelet-server.key"),
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "failCgroupV1": False,
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": f"unix://{places.socket}",
        "clusterDomain": DOMAIN,
        "clusterDNS": [DNS_SERVICE_IP],
        "resolvConf": "/etc/resolv.conf",
        "podLogsDir": str(places.state / "podlogs"),
        "volumePluginDir": str(places.state / "volplugins"),
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1Gi",
            "imagefs.available": "1Gi",
        },
        "imageGCHighThresholdPercent": 100,
        "registerNode": True,
    }


def proxy(places: Places) -> dict[str, object]:
    """Return kube-proxy's configuration; it must not touch the limits of connection tracking."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": NODE_NAME,
        "clusterCIDR": POD_RANGE,
        "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "clientConnection": {"kubeconfig": str(places.config / "proxy.kubeconfig")},
    }


def audit() -> dict[str, object]:
    """Return the audit policy: who asked for what, without bodies, leases, events and probes."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/version"]},
            {
                "level": "None",
                "resources": [
                    {"group": "coordination.k8s.io", "resources": ["leases"]},
                    {"group": "", "resources": ["events"]},
                    {"group": "events.k8s.io", "resources": ["events"]},
                ],
            },
            {"level": "Metadata"},
        ],
    }


def corefile(places: Places) -> str:
    """Return the name server's configuration; unknown names are forgotten after a second."""
    return f"""\
.:{DNS_PORT} {{
    errors
    health 127.0.0.1:{DNS_PORT + 1}
    ready 127.0.0.1:{DNS_PORT + 2}
    kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {places.config / "coredns.kubeconfig"}
        ttl 5
    }}
    cache {{
        success 9984 5
        denial 9984 1
    }}
    forward . /etc/resolv.conf
}}
"""


def dns_service(node: Node) -> dict[str, object]:
    """Return the Service through which pods reach the name server, a process of the node."""
    meta: dict[str, object] = {"name": "kube-dns", "namespace": "kube-system"}
    owned: dict[str, object] = {**meta, "labels": {"kubernetes.io/service-name": "kube-dns"}}
    ports: list[dict[str, object]] = [{"name": f"dns-{p.lower()}", "protocol": p} for p in ("UDP", "TCP")]
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": meta,
                "spec": {
                    "clusterIP": DNS_SERVICE_IP,
                    "ports": [{**port, "port": 53, "targetPort": DNS_PORT} for port in ports],
                },
            },
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": owned,
                "addressType": "IPv4",
                "ports": [{**port, "port": DNS_PORT} for port in ports],
                "endpoints": [{"addresses": [node.ip], "conditions": {"ready": True}}],
            },
        ],
    }


def kubeconfig(user: str, ip: str, pki: Path) -> str:
    """Return a kubeconfig that holds its certificates, so that it can be copied anywhere."""

    def encoded(name: str) -> str:
        return base64.b64encode((pki / name).read_bytes()).decode()

    cluster = {"server": f"https://{ip}:{API_PORT}", "certificate-authority-data": encoded("ca.crt")}
    client = {
        "client-certificate-data": encoded(f"{user}.crt"),
        "client-key-data": encoded(f"{user}.key"),
    }
    name = "dgl-operator"
    return _json(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": client}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
            "current-context": name,
        }
    )


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
