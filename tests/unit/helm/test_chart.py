"""What the chart renders from its values."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from dgl_operator.api import generate, rbac
from dgl_operator.runtime.leader_election import Election
from dgl_operator.runtime.settings import parse
from dglrun.contract import names

HELM = generate.find_helm()
CHART = generate.ROOT / generate.CHART
REGISTRY = 'images={"registry": "r.example"}'

pytestmark = pytest.mark.skipif(
    HELM is None, reason="no helm; 'python -m tests.cluster build-tools helm' builds it"
)

Object = dict[str, Any]


def helm(*argv: str) -> subprocess.CompletedProcess[str]:
    assert HELM is not None
    return subprocess.run([HELM, *argv], capture_output=True, text=True, check=False)


def template(*values: str) -> subprocess.CompletedProcess[str]:
    """What helm makes of the release `dgl-operator` in namespace `ops`."""
    sets = [word for value in values for word in ("--set-json", value)]
    return helm("template", "dgl-operator", str(CHART), "--namespace", "ops", *sets)


def rendered(*values: str) -> dict[tuple[str, str], Object]:
    """The objects of the release by kind and name, with a registry unless a value names another."""
    done = template(REGISTRY, *values)
    assert done.returncode == 0, done.stderr
    bodies = [body for body in yaml.safe_load_all(done.stdout) if body]
    return {
        (body["kind"], f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"): body
        for body in bodies
    }


def refused(*values: str) -> str:
    """Helm's words on values that it does not take."""
    done = template(*values)
    assert done.returncode != 0
    return done.stderr


def operator(objects: dict[tuple[str, str], Object]) -> Object:
    """The pod spec of the operator."""
    spec: Object = objects["Deployment", "ops/dgl-operator"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("sets", [(), ("--set-json", REGISTRY)], ids=["as it is", "with a registry"])
def test_the_chart_has_no_flaw_that_helm_knows(sets: tuple[str, ...]) -> None:
    """`helm lint --strict` turns warnings into errors; nothing is recommended either."""
    done = helm("lint", "--strict", str(CHART), *sets)

    assert done.returncode == 0, done.stdout
    assert "recommended" not in done.stdout


def notes(*values: str) -> str:
    """What helm prints after an installation."""
    sets = [word for value in (REGISTRY, *values) for word in ("--set-json", value)]
    done = helm("install", "dgl-operator", str(CHART), "--dry-run=client", "--namespace", "ops", *sets)
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("NOTES:\n")[2]


@pytest.mark.parametrize(
    ("values", "namespace"), [((), "default"), (('scope="namespace"', 'namespaces=["a", "b"]'), "a")]
)
def test_the_notes_name_a_first_job(values: tuple[str, ...], namespace: str) -> None:
    """An example of this checkout with the registry of this release, where the operator looks for it."""
    said = notes(*values)
    (path,) = re.findall(r"manifests/examples/\S+", said)
    job = yaml.safe_load((generate.ROOT / path).read_text())["metadata"]["name"]

    assert f"sed 's|{generate.REGISTRY}|r.example|' {path}" in said
    assert f"kubectl apply -n {namespace} -f -" in said
    assert f"kubectl get -n {namespace} dgljob {job} -w" in said
    assert f"kubectl logs -n {namespace} -f {job}-launcher" in said


def test_the_names_are_those_of_2021() -> None:
    """Deployment, account and cluster-wide roles are called dgl-operator."""
    kinds = {kind: name for kind, name in rendered() if name.endswith("/dgl-operator")}

    assert kinds == {
        "Deployment": "ops/dgl-operator",
        "ServiceAccount": "ops/dgl-operator",
        "ClusterRole": "/dgl-operator",
        "ClusterRoleBinding": "/dgl-operator",
    }


def test_the_operator_runs_restricted() -> None:
    """Nothing in its pod needs more than the restricted Pod Security Standard gives."""
    pod = operator(rendered())
    (container,) = pod["containers"]

    assert pod["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"requests", "limits"} == set(container["resources"])
    assert {"startupProbe", "livenessProbe", "readinessProbe"} < set(container)


def test_an_elected_operator_stands_by_until_the_old_one_ends() -> None:
    """A Lease that its Role names, and an upgrade that starts the new one first."""
    objects = rendered('fullnameOverride="graphs"', "leaderElection.enabled=true")
    spec = objects["Deployment", "ops/graphs"]["spec"]
    given = parse(spec["template"]["spec"]["containers"][0]["args"])
    create, renew = objects["Role", "ops/graphs-leader-election"]["rules"]

    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert given.election == Election("ops", "graphs")
    assert create == rbac.LEADER_RULES[0].manifest()
    assert renew == {**rbac.LEADER_RULES[1].manifest(), "resourceNames": ["graphs"]}
    assert ("PodDisruptionBudget", "ops/graphs") not in objects


def test_several_operators_elect_one_are_kept_apart_and_one_of_them_up() -> None:
    """On nodes of their own where that can be; a drain leaves one."""
    objects = rendered("replicas=2")
    spec = objects["Deployment", "ops/dgl-operator"]["spec"]
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    budget = objects["PodDisruptionBudget", "ops/dgl-operator"]["spec"]

    assert parse(spec["template"]["spec"]["containers"][0]["args"]).election == Election(
        "ops", "dgl-operator"
    )
    assert spec["replicas"] == 2
    assert spread["labelSelector"] == budget["selector"] == spec["selector"]
    assert (spread["whenUnsatisfiable"], budget["minAvailable"]) == ("ScheduleAnyway", 1)


def test_one_operator_needs_no_election_and_several_do() -> None:
    """The default: the old one ends before the new one starts, and an API server that is away ends nobody."""
    objects = rendered()
    spec = objects["Deployment", "ops/dgl-operator"]["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})
    assert parse(spec["template"]["spec"]["containers"][0]["args"]).election is None
    assert ("Role", "ops/dgl-operator-leader-election") not in objects
    assert "replicas: expected 1" in refused(REGISTRY, "replicas=2", "leaderElection.enabled=false")


def test_images_are_pinned_to_the_version() -> None:
    """No `latest`, pulled when absent; the same for the init containers of jobs."""
    (container,) = operator(rendered())["containers"]
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]

    assert container["image"] == f"r.example/dgloperator/operator:v{version}"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["args"][:3] == [
        f"--watcher-loop-image=r.example/dgloperator/watcher-loop:v{version}",
        f"--kubectl-download-image=r.example/dgloperator/kubectl-download:v{version}",
        "--init-image-pull-policy=IfNotPresent",
    ]


def test_images_come_from_a_registry_of_ones_own() -> None:
    """One registry for all, or another name for one."""
    objects = rendered(
        'images={"registry": "p.example", "pullPolicy": "Always", '
        '"watcherLoop": {"registry": "q.example", "tag": "t"}}',
        'imagePullSecrets=[{"name": "s"}]',
    )
    pod = operator(objects)
    (container,) = pod["containers"]

    assert pod["imagePullSecrets"] == [{"name": "s"}]
    assert container["image"].startswith("p.example/dgloperator/operator:v")
    assert "--watcher-loop-image=q.example/dgloperator/watcher-loop:t" in container["args"]
    assert "--init-image-pull-policy=Always" in container["args"]


def test_images_may_be_pinned_by_digest() -> None:
    """Each of the three, beside its tag."""
    pinned = {
        name: f"sha256:{digit * 64}"
        for name, digit in (("operator", "a"), ("watcherLoop", "b"), ("kubectlDownload", "c"))
    }
    own = {name: {"tag": "t", "digest": digest} for name, digest in pinned.items()}

    (container,) = operator(rendered(f"images={json.dumps({'registry': 'r.example', **own})}"))["containers"]

    assert container["image"] == f"r.example/dgloperator/operator:t@{pinned['operator']}"
    assert container["args"][:2] == [
        f"--watcher-loop-image=r.example/dgloperator/watcher-loop:t@{pinned['watcherLoop']}",
        f"--kubectl-download-image=r.example/dgloperator/kubectl-download:t@{pinned['kubectlDownload']}",
    ]


def test_without_a_registry_nothing_is_installed() -> None:
    """One line that names the value: a default would be a registry that the project does not own."""
    lines = refused().splitlines()
    (line,) = [line for line in lines if "images.registry" in line]

    assert line.endswith(
        "images.registry: expected the registry to which you pushed the images, got none; "
        "pass --set images.registry=HOST (see docs/howto/install.md)"
    )
    assert template(REGISTRY).returncode == 0


def test_a_registry_for_each_image_is_enough() -> None:
    """The common one is for the images that name none of their own."""
    own = {name: {"registry": "q.example"} for name in ("operator", "watcherLoop", "kubectlDownload")}

    assert template(f"images={json.dumps(own)}").returncode == 0
    own["watcherLoop"] = {}
    assert "images.registry" in refused(f"images={json.dumps(own)}")


def test_the_whole_cluster_is_served_by_a_cluster_role() -> None:
    """The default: the operator's rules in a ClusterRole, no namespace named."""
    objects = rendered()

    every = [rule.manifest() for rule in (*rbac.RULES, *rbac.OF_CLUSTER)]
    assert objects["ClusterRole", "/dgl-operator"]["rules"] == every
    assert not [arg for arg in operator(objects)["containers"][0]["args"] if arg.startswith("--namespace")]


def test_the_right_to_read_nodes_can_be_left_out() -> None:
    """The operator works without it, but for pods that are stuck on a node that is gone."""
    rules = rendered("rbac.nodes=false")["ClusterRole", "/dgl-operator"]["rules"]

    assert rules == [rule.manifest() for rule in rbac.RULES]


def test_the_rights_for_kueue_are_granted_with_its_flag_alone() -> None:
    """What belongs to no namespace needs a ClusterRole, even of an operator of some namespaces."""
    of_namespace = [rule.manifest() for rule in rbac.KUEUE]
    of_cluster = [rule.manifest() for rule in rbac.KUEUE_OF_CLUSTER]

    whole = rendered("kueue.enabled=true")
    some = rendered("kueue.enabled=true", 'scope="namespace"', 'namespaces=["a"]')

    assert whole["ClusterRole", "/dgl-operator"]["rules"][-4:] == [*of_namespace, *of_cluster]
    assert some["Role", "a/dgl-operator"]["rules"][-2:] == of_namespace
    assert some["ClusterRole", "/dgl-operator-ops-kueue"]["rules"] == of_cluster
    assert "--kueue=true" in operator(whole)["containers"][0]["args"]
    assert "--kueue=true" not in operator(rendered())["containers"][0]["args"]


@pytest.mark.parametrize(("value", "namespaces"), [("[]", ["ops"]), ('["a", "b"]', ["a", "b"])])
def test_some_namespaces_are_served_by_roles_in_them(value: str, namespaces: list[str]) -> None:
    """Nothing cluster-wide is granted; the release's own namespace when none is named."""
    objects = rendered('scope="namespace"', f"namespaces={value}")

    for namespace in namespaces:
        role = objects["Role", f"{namespace}/dgl-operator"]
        binding = objects["RoleBinding", f"{namespace}/dgl-operator"]
        assert role["rules"] == [rule.manifest() for rule in rbac.RULES]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "dgl-operator", "namespace": "ops"}]
    assert ("ClusterRole", "/dgl-operator") not in objects
    args = operator(objects)["containers"][0]["args"]
    assert [arg for arg in args if arg.startswith("--namespace")] == [
        f"--namespace={name}" for name in namespaces
    ]


def test_users_get_no_right_to_write_status() -> None:
    """What is true of a job is the operator's to say."""
    rules = rendered()["ClusterRole", "/dgl-operator-edit"]["rules"]

    assert [rule["resources"] for rule in rules] == [[names.PLURAL]]


def test_switches_leave_things_out() -> None:
    """CRD, users' roles, account and metrics service are there or not by their switch."""
    without = rendered(
        "crds.install=false",
        "rbac.aggregate=false",
        'serviceAccount={"create": false, "name": "mine"}',
    )

    assert {kind for kind, _ in without} == {"ClusterRole", "ClusterRoleBinding", "Deployment"}
    assert operator(without)["serviceAccountName"] == "mine"
    assert ("Service", "ops/dgl-operator-metrics") in rendered("metrics.service.enabled=true")
    assert ("Service", "ops/dgl-operator-metrics") not in rendered()


def test_each_setting_of_the_pod_arrives() -> None:
    """What a cluster's owner asks of a pod is passed on as it is."""
    settings = {
        "nodeSelector": {"a": "b"},
        "tolerations": [{"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "high",
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "extraEnv": [{"name": "E", "value": "1"}],
        "extraArgs": ["--resync-period=60"],
        "podAnnotations": {"n": "1"},
        "podLabels": {"l": "2"},
    }
    objects = rendered(*(f"{key}={json.dumps(value)}" for key, value in settings.items()))
    pod, metadata = (
        operator(objects),
        objects["Deployment", "ops/dgl-operator"]["spec"]["template"]["metadata"],
    )
    (container,) = pod["containers"]

    assert {key: pod[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")} == {
        key: settings[key] for key in ("nodeSelector", "tolerations", "affinity", "priorityClassName")
    }
    assert (container["resources"], container["env"]) == (settings["resources"], settings["extraEnv"])
    assert container["args"][-1] == "--resync-period=60"
    assert metadata["annotations"] == {"n": "1"}
    assert metadata["labels"]["l"] == "2"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ('scope="planet"', "scope"),
        ('namespaces=["a"]', "set scope=namespace"),
        ('log={"level": "loud"}', "level"),
        ('image="x"', "image"),
        ('jobs={"networkPolicy": {"enabled": "yes"}}', "enabled"),
        ('images={"operator": {"name": "x"}}', "name"),
        ('images={"operator": {"digest": "sha256:1"}}', "digest"),
        ('serviceAccount={"create": false}', "serviceAccount.name is required"),
    ],
)
def test_wrong_values_are_refused(value: str, says: str) -> None:
    """A mistyped or contradicting value stops the installation with its name."""
    assert says in refused(value)


def test_every_value_is_described_by_the_schema() -> None:
    """A value without its schema would be refused by our own chart, one without a default is a riddle."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(schema["properties"]) - {"global"} == set(values)


def paths(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Each value by its full path."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key != "resources":
            yield from paths(value, f"{above}{key}.")
        else:
            yield f"{above}{key}"


def test_every_value_stands_in_the_readme() -> None:
    """And the README names no other."""
    table = (CHART / "README.md").read_text().partition("## Values\n")[2].partition("\n## ")[0]
    named = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
        for name in re.findall(r"`([^`]+)`", row)
    }

    assert named == set(paths(yaml.safe_load((CHART / "values.yaml").read_text())))


def test_the_operator_knows_each_flag_of_the_chart() -> None:
    """Chart and command line agree, so the pod starts."""
    (container,) = operator(rendered('scope="namespace"'))["containers"]

    settings = parse(container["args"])

    assert settings.namespaces == ("ops",)
    assert settings.has_network_policy
    assert settings.election is None
    assert len(container["args"]) == 9


def test_the_resources_of_init_containers_arrive() -> None:
    """As JSON in one flag; without the value the operator's own hold."""
    value = 'jobs={"initContainers": {"resources": {"limits": {"memory": "1Gi"}}}}'
    (container,) = operator(rendered(value))["containers"]

    assert parse(container["args"]).images.resources == {"limits": {"memory": "1Gi"}}


@pytest.mark.parametrize("is_on", [True, False])
def test_one_value_says_whether_jobs_have_network_policies(is_on: bool) -> None:
    """As the operator's flag understands it."""
    value = f'jobs={{"networkPolicy": {{"enabled": {json.dumps(is_on)}}}}}'
    (container,) = operator(rendered(value))["containers"]

    assert parse(container["args"]).has_network_policy is is_on
