"""The chart on a real cluster: install, upgrade with a changed schema under a running job, uninstall."""

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.other import pulled
from tests.e2e.jobs import REGISTRY, image
from tests.e2e.kubectl import Kubectl, Object, Refused, binary, call
from tests.support.api_client import CRD, ApiServer
from tests.support.job_cases import ROOT, a_job
from tests.support.wait import wait_for

pytestmark = pytest.mark.integration

RELEASE = "chart-under-test"
OPERATOR = f"{RELEASE}-dgl-operator"
CHART = ROOT / "helm" / "dgl-operator"
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def helm(*argv: str) -> str:
    """Run helm and return its stdout."""
    return call(binary("helm"), *argv, timeout=240)


def install(chart: Path, namespace: str, *values: str) -> None:
    """Install or upgrade the release for the jobs of its own namespace and wait until it is ready."""
    registry = f"images.registry={REGISTRY}"
    sets = [word for value in ("scope=namespace", registry, *values) for word in ("--set", value)]
    helm(
        *("upgrade", "--install", RELEASE, str(chart), "--namespace", namespace),
        *("--take-ownership", "--force-conflicts", "--wait", "--timeout", "3m", *sets),
    )


def uninstall(namespace: str) -> None:
    """Remove the release."""
    helm("uninstall", RELEASE, "--namespace", namespace, "--wait", "--ignore-not-found")


@pytest.fixture
def kubectl(api: ApiServer) -> Iterator[Kubectl]:
    """A namespace that admits restricted pods only; release and schema are put right after the test."""
    name = "it-chart"
    api.make_namespace(name, RESTRICTED)
    yield Kubectl(name)
    uninstall(name)
    Kubectl(name).run("delete", "namespace", name)
    restore_crd(api)


def restore_crd(api: ApiServer) -> None:
    """Put the schema of this checkout back; an apply would leave what helm's field manager added."""
    wanted = yaml.safe_load(CRD.read_text())
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{wanted['metadata']['name']}"
    stored = api.call("GET", path)
    api.call("PUT", path, {**stored, "spec": wanted["spec"]})


@pytest.fixture
def changed_chart(tmp_path: Path) -> Path:
    """A newer chart of the same images: `spec` has one more field."""
    chart = tmp_path / "dgl-operator"
    shutil.copytree(CHART, chart)
    crd = chart / "templates" / "crd" / "dgljobs.yaml"
    anchor = "              cleanPodPolicy:\n"
    text = crd.read_text()
    assert text.count(anchor) == 1
    crd.write_text(text.replace(anchor, f"              note:\n                type: string\n{anchor}"))
    about = chart / "Chart.yaml"
    about.write_text(about.read_text().replace(f"\nversion: {VERSION}\n", "\nversion: 99.0.0\n"))
    return chart


def waiting_job(image: str) -> Object:
    """A job that ends well when /tmp/done appears, in a pod that a restricted namespace admits."""
    job = copy.deepcopy(a_job("waits", roles={"Launcher": {}}, partitionMode="Skip"))
    container = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", "until [ -e /tmp/done ]; do sleep 0.1; done"],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    security = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    template = {"spec": {"containers": [container], "securityContext": security}}
    job["spec"]["dglReplicaSpecs"]["Launcher"] = {"replicas": 1, "template": template}
    return job


def phase(kubectl: Kubectl, job: str) -> str:
    """The phase of a job, empty before it has one."""
    body = kubectl.get("dgljob", job) or {}
    found: str = body.get("status", {}).get("phase", "")
    return found


def reach(kubectl: Kubectl, job: str, wanted: str) -> None:
    """Wait until a job is in this phase."""
    wait_for(f"{job} {wanted}", lambda: phase(kubectl, job) == wanted or None, 60)


def operator_pod(kubectl: Kubectl) -> Object:
    """The one pod of the operator that is not on its way out."""
    pods = kubectl.list("pods", "-l", f"app=dgl-operator,app.kubernetes.io/instance={RELEASE}")
    (pod,) = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return pod


def reconciled(pod: Object) -> float:
    """How often this very operator has looked at a job without an error; by the metrics that it serves."""
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}:8080/proxy/metrics"
    lines = call(binary("kubectl"), "get", "--raw", path).splitlines()
    figures = dict(line.split() for line in lines if not line.startswith("#"))
    assert float(figures["dgl_operator_reconcile_errors_total"]) == 0
    return float(figures["dgl_operator_reconcile_seconds_count"])


def schema_has_note(kubectl: Kubectl) -> bool:
    """Whether the stored CRD is the changed one."""
    crd = kubectl.get("crd", "dgljobs.qihoo.net")
    assert crd is not None
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return "note" in schema["properties"]["spec"]["properties"]


def test_a_job_outlives_upgrade_and_removal_of_the_chart(kubectl: Kubectl, changed_chart: Path) -> None:
    """Install, run, upgrade schema and operator, finish, uninstall, install again: one job, one pod."""
    install(CHART, kubectl.namespace)
    first = operator_pod(kubectl)
    kubectl.apply(waiting_job(first["spec"]["containers"][0]["image"]))
    reach(kubectl, "waits", "Training")
    assert reconciled(first) > 0
    launcher = kubectl.get("pod", "waits-launcher")
    assert launcher is not None

    install(changed_chart, kubectl.namespace, "podAnnotations.upgraded=yes")

    assert schema_has_note(kubectl)
    second = operator_pod(kubectl)
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    kubectl.run("exec", "waits-launcher", "--", "touch", "/tmp/done")
    reach(kubectl, "waits", "Completed")
    assert reconciled(second) > 0
    assert kubectl.get("pod", "waits-launcher")["metadata"]["uid"] == launcher["metadata"]["uid"]  # type: ignore[index]

    uninstall(kubectl.namespace)

    assert phase(kubectl, "waits") == "Completed"
    assert schema_has_note(kubectl)
    assert kubectl.get("deployment", OPERATOR) is None
    assert kubectl.get("serviceaccount", OPERATOR) is None
    assert kubectl.get("clusterrole", f"{OPERATOR}-edit") is None

    install(changed_chart, kubectl.namespace)

    kubectl.run("delete", "dgljob", "waits", "--wait")
    wait_for("the launcher gone with its job", lambda: not kubectl.list("pods", "-l", "dgl-replica-type"), 60)


def test_the_operator_holds_no_right_outside_of_its_namespaces(kubectl: Kubectl) -> None:
    """With scope=namespace there is a Role and nothing for the whole cluster."""
    install(CHART, kubectl.namespace)

    account = f"system:serviceaccount:{kubectl.namespace}:{OPERATOR}"
    answers = {
        where: may(Kubectl(where), account, *what)
        for where, what in ((kubectl.namespace, ("create", "pods")), ("default", ("create", "pods")))
    }

    assert answers == {kubectl.namespace: True, "default": False}
    assert not may(kubectl, account, "get", "secrets")
    assert not may(kubectl, account, "escalate", "roles")
    assert kubectl.get("clusterrole", OPERATOR) is None


def test_editors_of_a_namespace_may_run_jobs(kubectl: Kubectl) -> None:
    """The built-in roles learn of DGLJobs, so nobody has to be given rights by hand."""
    install(CHART, kubectl.namespace)
    kubectl.run("create", "serviceaccount", "editor")
    kubectl.run(
        *("create", "rolebinding", "editor", "--clusterrole=edit"),
        f"--serviceaccount={kubectl.namespace}:editor",
    )
    account = f"system:serviceaccount:{kubectl.namespace}:editor"

    wait_for("aggregated rights", lambda: may(kubectl, account, "create", "dgljobs") or None, 30)

    assert not may(kubectl, account, "patch", "dgljobs/status")


def may(kubectl: Kubectl, account: str, verb: str, what: str) -> bool:
    """Ask the API server whether an account may do something in this namespace."""
    resource, _, sub = what.partition("/")
    try:
        answer = kubectl.run("auth", "can-i", verb, resource, f"--subresource={sub}", f"--as={account}")
    except Refused:
        return False
    return answer.strip() == "yes"


@pytest.fixture
def one_file(kubectl: Kubectl, tmp_path: Path) -> Iterator[Path]:
    """manifests/install.yaml; what it brought goes with the test, what was there before stays."""
    source = pulled((ROOT / "manifests" / "install.yaml").read_text())
    there = Kubectl("dgl-operator")
    bodies = [(body, body["kind"], body["metadata"]["name"]) for body in yaml.safe_load_all(source)]
    absent = [body for body, kind, name in bodies if there.get(kind, name) is None]
    if "Deployment" not in {body["kind"] for body in absent}:
        pytest.skip("an operator is installed in namespace dgl-operator, which this test would replace")
    whole, brought = tmp_path / "install.yaml", tmp_path / "brought.yaml"
    whole.write_text(source)
    brought.write_text(yaml.safe_dump_all(absent))
    yield whole
    call(binary("kubectl"), "delete", "--ignore-not-found", "-f", str(brought))


def test_the_one_file_install_runs_a_job(kubectl: Kubectl, one_file: Path) -> None:
    """`kubectl apply --server-side -f manifests/install.yaml` of the README, on to a job's end.

    By force, since the CRD's fields belong to the tests here.
    """
    call(binary("kubectl"), "apply", "--server-side", "--force-conflicts", "-f", str(one_file))
    Kubectl("dgl-operator").run("rollout", "status", "deployment/dgl-operator", "--timeout=180s")

    kubectl.apply(waiting_job(image(f"operator:v{VERSION}")))
    reach(kubectl, "waits", "Training")
    kubectl.run("exec", "waits-launcher", "--", "touch", "/tmp/done")

    reach(kubectl, "waits", "Completed")
    kubectl.run("delete", "dgljob", "waits", "--wait")
