"""The commands for a host with a Docker engine, which this test does not need."""

import json
from pathlib import Path

import pytest

from tests.cluster import builds, kind
from tests.cluster.images import IMAGE
from tests.cluster.places import Places

PLACES = Places(Path("/cache"), Path("/state"))


def test_commands_name_our_cluster_and_leave_the_users_kubeconfig() -> None:
    """Creating and deleting would otherwise edit ~/.kube/config."""
    create = kind.command(PLACES, "create", "cluster")
    load = kind.command(PLACES, "load", "docker-image", "x:1")
    listed = kind.command(PLACES, "get", "clusters")

    aside = ["--kubeconfig", "/state/kind.kubeconfig"]
    assert create[1:] == ["create", "cluster", "--name", "dgl-operator", *aside]
    assert load[1:] == ["load", "docker-image", "x:1", "--name", "dgl-operator"]
    assert listed[1:] == ["get", "clusters"]


def test_the_node_shares_its_audit_log_with_the_host() -> None:
    """The API server's arguments, its volumes and the node's mounts meet at the same paths."""
    config = json.loads(kind.config(Path("/state/config/audit.json"), Path("/state/audit/audit.log")))
    [node] = config["nodes"]
    api_server = json.loads(node["kubeadmConfigPatches"][0])["apiServer"]

    arguments = {entry["name"]: entry["value"] for entry in api_server["extraArgs"]}
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in node["extraMounts"]}
    volumes = {volume["hostPath"] for volume in api_server["extraVolumes"]}

    assert volumes == set(mounts)
    assert mounts[arguments["audit-policy-file"]] == "/state/config/audit.json"
    assert arguments["audit-log-path"] == "/var/log/kubernetes/audit.log"
    assert mounts["/var/log/kubernetes"] == "/state/audit"


def test_images_are_built_by_buildx_from_the_same_table() -> None:
    """The same Dockerfile, tag, arguments and label as without an engine."""
    argv = kind.build_command(IMAGE["graphsage"], "abc")

    assert argv[:4] == ["docker", "buildx", "build", "--load"]
    assert f"JOB_IMAGE={IMAGE['job'].tag}" in argv
    assert argv[-3:] == ["--label", "dgl-operator.content=abc", "."]


@pytest.mark.parametrize(("asked", "expected"), [("1", True), ("0", False)])
def test_the_environment_decides_before_any_engine_is_asked(
    monkeypatch: pytest.MonkeyPatch, asked: str, expected: bool
) -> None:
    """KIND=0 keeps a host with an engine on the own node."""
    monkeypatch.setenv("KIND", asked)
    kind.chosen.cache_clear()

    assert kind.chosen() is expected
    kind.chosen.cache_clear()


def test_the_pinned_kind_enforces_network_policies() -> None:
    """The network of its nodes does so since 0.24; the test of enforcement relies on it."""
    major, minor = builds.MODULE["kind"].version.removeprefix("v").split(".")[:2]

    assert (int(major), int(minor)) >= (0, 24)
