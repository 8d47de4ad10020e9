"""The rendered configuration of the node."""

import base64
import json
import tomllib
from pathlib import Path

import pytest

from tests.cluster import builds, certs, configs, node
from tests.cluster.places import Places

PLACES = Places(Path("/cache"), Path("/state"))
NODE = configs.Node("192.0.2.7", 1400)


def test_containerd_keeps_everything_below_the_state() -> None:
    """What lies below the state folder is ours, and is how teardown knows it."""
    config = tomllib.loads(configs.containerd(PLACES))
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    runc = runtime["containerd"]["runtimes"]["runc"]["options"]

    own = [
        config["root"],
        config["state"],
        config["grpc"]["address"],
        runc["Root"],
        runtime["cni"]["conf_dir"],
    ]

    assert [path for path in own if not path.startswith("/state/")] == []
    assert runtime["netns_mounts_under_state_dir"] is True
    assert config["disabled_plugins"] == []


def test_house_keeping_differs_in_the_kubernetes_side_only() -> None:
    """The runtime that forgets old containers must not read them into memory."""
    usual = tomllib.loads(configs.containerd(PLACES))
    keeping = tomllib.loads(configs.containerd(PLACES, kubernetes=False))

    assert keeping.pop("disabled_plugins") == ["io.containerd.grpc.v1.cri"]
    usual.pop("disabled_plugins")
    assert keeping == usual


def test_every_json_file_parses() -> None:
    """JSON stands in for YAML: each file must be whole."""
    files = configs.files(PLACES, NODE)

    parsed = {path.name: json.loads(text) for path, text in files.items() if path.suffix not in {".toml", ""}}

    assert {"kubelet.json", "proxy.json", "audit.json", "dns.json", "10-bridge.conflist"} <= set(parsed)
    assert parsed["kubelet.json"]["clusterDNS"] == [configs.DNS_SERVICE_IP]
    assert parsed["10-bridge.conflist"]["plugins"][0]["mtu"] == 1400


def test_the_audit_log_has_exec_and_leaves_out_noise() -> None:
    """The last rule takes all that no earlier one leaves out; leases and events are left out."""
    rules = configs.audit()["rules"]

    assert isinstance(rules, list)
    assert rules[-1] == {"level": "Metadata"}
    left_out = [entry["resources"] for rule in rules[:-1] for entry in rule.get("resources", [])]
    assert sorted(left_out) == [["events"], ["events"], ["leases"]]


def test_dns_reaches_the_node_through_its_service() -> None:
    """Pods ask the Service's address; the slice leads to the process on the node."""
    service, endpoints = json.loads(json.dumps(configs.dns_service(NODE)))["items"]

    assert service["spec"]["clusterIP"] == configs.DNS_SERVICE_IP
    assert endpoints["endpoints"][0]["addresses"] == [NODE.ip]
    assert endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == service["metadata"]["name"]
    assert {port["port"] for port in endpoints["ports"]} == {configs.DNS_PORT}


def test_a_kubeconfig_can_be_copied(tmp_path: Path) -> None:
    """Certificates are inside, not beside."""
    for name in ("ca.crt", "admin.crt", "admin.key"):
        (tmp_path / name).write_text(name)

    config = json.loads(configs.kubeconfig("admin", NODE.ip, tmp_path))

    assert config["clusters"][0]["cluster"]["server"] == "https://192.0.2.7:6443"
    assert base64.b64decode(config["users"][0]["user"]["client-key-data"]) == b"admin.key"
    assert str(tmp_path) not in json.dumps(config)


def test_the_api_server_is_known_by_every_name_it_is_called_by() -> None:
    """From the host, from the node, from pods by address and by name."""
    names = {certificate.file: certificate.names for certificate in certs.wanted(NODE.ip)}["apiserver"]

    assert {"IP:127.0.0.1", "IP:192.0.2.7", f"IP:{configs.API_SERVICE_IP}"} <= set(names)
    assert {"DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local"} <= set(names)


def test_every_daemon_names_the_state_folder() -> None:
    """A daemon that no file tells of is recognised by a path of our state in its arguments."""
    daemons = node.daemons(PLACES, NODE)

    assert list(daemons)[:3] == ["containerd", "etcd", "apiserver"]
    assert [d.name for d in daemons.values() if not any("/state/" in word for word in d.argv[1:])] == []
    assert all(d.argv[0].startswith("/cache/tools/") for d in daemons.values())


def flags(name: str) -> list[str]:
    """Flags of alpha features and APIs that a daemon is started with."""
    argv = node.daemons(PLACES, NODE)[name].argv
    return [word for word in argv if word.startswith(("--feature-gates=", "--runtime-config="))]


def test_gang_scheduling_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller manager lets a group go when its pods are gone; the kubelet knows no groups."""
    monkeypatch.delenv(builds.CONTROL_PLANE, raising=False)

    assert flags("apiserver") == [
        "--feature-gates=GenericWorkload=true",
        "--runtime-config=scheduling.k8s.io/v1alpha2=true",
    ]
    assert flags("controller-manager") == ["--feature-gates=GenericWorkload=true"]
    assert flags("scheduler") == ["--feature-gates=GenericWorkload=true,GangScheduling=true"]
    assert flags("kubelet") == []


def test_an_older_control_plane_has_no_gate_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would not start; nor would the scheduler find groups in its API."""
    monkeypatch.setenv(builds.CONTROL_PLANE, "1.34")

    assert [flags(name) for name in ("apiserver", "controller-manager", "scheduler")] == [[], [], []]
