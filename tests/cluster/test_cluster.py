"""The tool on the real host: quick to start again, robust against crashes, gone without a trace.

These tests take the node of this host down and up again, so they run only when asked for (`-m cluster`).
They go from the first start to the last trace, in the order in which they stand.
"""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import (
    cluster,
    commands,
    configs,
    daemons,
    deliver,
    host,
    kind,
    kube,
    policies,
    runtime,
    smoke,
    steps,
    teardown,
)
from tests.cluster.places import Places

GIVEN = bool(os.environ.get("KUBECONFIG"))
"""Ours, too: whoever names it uses it for something else."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(os.geteuid() != 0, reason="the node needs root"),
    pytest.mark.skipif(GIVEN, reason="KUBECONFIG names a cluster: it is not taken down and up"),
    pytest.mark.skipif(not GIVEN and kind.chosen(), reason="an engine runs here: kind makes the cluster"),
]

NAMESPACE = "cluster-test"
Trace = dict[str, Any]


@pytest.fixture(scope="module")
def places() -> Places:
    """The places of this host: there is only one node on it."""
    return Places.here()


@pytest.fixture(scope="module")
def before(places: Places) -> Trace:
    """What the host looks like without a cluster."""
    cluster.down(places)
    return trace(places)


@pytest.fixture
def node(places: Places, before: Trace) -> Places:
    """A running cluster."""
    cluster.up(places)
    return places


@pytest.fixture
def namespace(node: Places) -> Iterator[str]:
    """A namespace with two Debian pods behind a headless Service."""
    image = deliver.load_base(node)
    kube.kubectl(node, "create", "namespace", NAMESPACE)
    kube.kubectl(node, "wait", "--timeout=120s", "--for=create", "serviceaccount/default", "-n", NAMESPACE)
    objects = [headless(), debian("one", image), debian("two", image)]
    kube.kubectl(
        node, "apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    )
    kube.kubectl(node, "wait", "--timeout=120s", "-n", NAMESPACE, "--for=condition=Ready", "pod", "--all")
    yield NAMESPACE
    kube.kubectl(node, "delete", "namespace", NAMESPACE)


def headless() -> Trace:
    """A Service that gives each pod a name."""
    spec = {"clusterIP": "None", "selector": {"app": "debian"}, "publishNotReadyAddresses": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "job", "namespace": NAMESPACE},
        "spec": spec,
    }


def debian(name: str, image: str) -> Trace:
    """A pod that says its name, waits, and has a mount that a crash leaves behind."""
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "echo hello from $HOSTNAME; exec sleep 3600"],
        "volumeMounts": [{"name": "memory", "mountPath": "/memory"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "debian"}},
        "spec": {
            "hostname": name,
            "subdomain": "job",
            "containers": [container],
            "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
            "terminationGracePeriodSeconds": 0,
        },
    }


def denial() -> Trace:
    """A policy that keeps everybody from the pods of the default namespace."""
    spec = {"podSelector": {}, "policyTypes": ["Ingress"]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "denial", "namespace": "default"},
        "spec": spec,
    }


def test_a_second_start_finds_everything_running(node: Places) -> None:
    """Nothing is started again: same processes, in a few seconds."""
    running = daemons.recorded(node)
    start = time.monotonic()

    cluster.up(node)

    assert daemons.recorded(node) == running
    assert time.monotonic() - start + smoke.run(node) < 30


def test_pods_find_each_other_by_name(node: Places, namespace: str) -> None:
    """A pod's name in the headless Service leads to its address, seen from the other pod."""
    address = kube.get(node, "pod", "two", "-n", namespace)["status"]["podIP"]
    name = f"two.job.{namespace}.svc.{configs.DOMAIN}"
    ask = ("exec", "-n", namespace, "one", "--", "getent", "hosts", name)

    steps.until(f"the name {name}", lambda: kube.succeeds(node, *ask), seconds=30)

    assert kube.kubectl(node, *ask).split() == [address, name]


def test_exec_copy_and_logs_reach_the_pod(node: Places, namespace: str, tmp_path: Path) -> None:
    """The three ways by which jobs and people work with pods, each with its payload."""
    sent, returned = tmp_path / "sent", tmp_path / "returned"
    sent.write_bytes(os.urandom(100_000))

    said = kube.kubectl(node, "exec", "-i", "-n", namespace, "one", "--", "cat", stdin="over stdin\n")
    kube.kubectl(node, "cp", sent, f"{namespace}/one:/tmp/file")
    kube.kubectl(node, "cp", f"{namespace}/one:/tmp/file", returned)
    log = kube.kubectl(node, "logs", "-n", namespace, "two")

    assert said == "over stdin\n"
    assert returned.read_bytes() == sent.read_bytes()
    assert log == "hello from two\n"


def test_the_audit_log_tells_who_used_exec(node: Places, namespace: str) -> None:
    """The log on which the proof rests that the operator never used exec records those who did."""
    kube.kubectl(node, "exec", "-n", namespace, "one", "--", "true")

    def recorded() -> bool:
        records = [json.loads(line) for line in node.audit_log.read_text().splitlines()]
        execs = [r for r in records if r.get("objectRef", {}).get("subresource") == "exec"]
        return any(r["user"]["username"] == "admin" for r in execs)

    steps.until("the exec in the audit log", recorded, seconds=60)


def test_after_a_crash_two_pods_are_ready_in_half_a_minute(node: Places) -> None:
    """Killed daemons leave pods, shims, mounts, a bridge and rules; the next start clears them away."""
    image = deliver.load_base(node)
    kube.kubectl(node, "create", "namespace", NAMESPACE)
    kube.kubectl(node, "wait", "--timeout=120s", "--for=create", "serviceaccount/default", "-n", NAMESPACE)
    kube.apply(node, debian("left", image))
    kube.kubectl(node, "wait", "--timeout=120s", "-n", NAMESPACE, "--for=condition=Ready", "pod/left")
    for pid in daemons.recorded(node).values():
        os.kill(pid, signal.SIGKILL)
    assert len(teardown.mounts(node.state)) > 3
    assert daemons.strays(node)
    start = time.monotonic()

    cluster.up(node)
    took = time.monotonic() - start
    containers = runtime.ctr(node, "containers", "ls", "-q")[1].split()
    took += smoke.run(node)

    print(f"after a crash two pods were Ready in {took:.1f} s")
    assert took < 30
    assert not kube.succeeds(node, "get", "namespace", NAMESPACE)
    assert runtime.has(node, image)
    assert containers == []


def test_a_start_that_was_killed_half_way_is_taken_up(node: Places) -> None:
    """A node without its API server and proxy is not taken for a running one."""
    for name in ("apiserver", "proxy"):
        os.kill(daemons.recorded(node)[name], signal.SIGKILL)

    cluster.up(node)

    assert len(daemons.recorded(node)) == 8
    assert smoke.run(node) < 30


@pytest.mark.parametrize("crashed", [False, True], ids=["running", "crashed"])
def test_down_leaves_no_trace(node: Places, before: Trace, crashed: bool) -> None:
    """Processes, mounts, links, rules, settings, control groups and folders are as they were.

    Policies are enforced meanwhile, which leaves sets of addresses in the kernel.
    """
    policies.start(node)
    pod = debian("debian", deliver.load_base(node))
    pod["metadata"]["namespace"] = "default"
    kube.apply(node, pod, smoke.pod("left"), denial())
    kube.kubectl(node, "wait", "--timeout=120s", "--for=condition=Ready", "pod", "--all")
    steps.until("sets of addresses", lambda: bool(policies.sets()), seconds=60)
    during = trace(node)
    if crashed:
        daemons.kill(daemons.recorded(node).values())

    cluster.down(node)

    after = trace(node)
    unseen = [kind for kind in before if during[kind] == before[kind]]
    assert set(unseen) <= {"settings", "tables"}, "the comparison would not notice these"
    assert after == before


def trace(places: Places) -> Trace:
    """All by which a cluster could be noticed."""
    arguments = [daemons.command_line(pid) for pid in daemons.all_pids()]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": sorted(argv for argv in arguments if str(places.state) in " ".join(argv)),
        # A build that runs meanwhile mounts its layers in a storage of its own.
        "mounts": sorted(line for line in mounts if str(places.buildah) not in line),
        "links": sorted(link["ifname"] for link in json.loads(commands.run("ip", "-j", "link"))),
        "rules": [rule for family in ("iptables", "ip6tables") for rule in rules(family)],
        "tables": host.tables(),
        "sets": policies.sets(),
        "settings": {
            name: host.setting(name).read_text() for name in host.SYSCTLS if host.setting(name).exists()
        },
        "control groups": teardown.cgroups(),
        "folders": [name for name in (*host.FOLDERS, str(places.state)) if Path(name).exists()],
    }


def rules(family: str) -> list[str]:
    """The chains and rules of an address family, without counters and remarks."""
    saved = commands.attempt(f"{family}-save")[1].splitlines()
    return [line.partition(" [")[0] for line in saved if not line.startswith("#")]
