"""Good and bad jobs, told to the API server and to the operator alike."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))
UPSTREAM = sorted((ROOT / "tests" / "golden" / "upstream").glob("*.yaml"))


def load(path: Path) -> Object:
    """The one object of a file."""
    body: Object = yaml.safe_load(path.read_text())
    return body


def role(replicas: int | None = None, **container: Any) -> Object:
    """A role with one container; fields of None are left out."""
    fields = {"name": "main", "image": "example.org/sage", **container}
    main = {key: value for key, value in fields.items() if value is not None}
    template = {"spec": {"containers": [main]}}
    return {"template": template} if replicas is None else {"replicas": replicas, "template": template}


def a_job(name: str = "sage", roles: Object | None = None, **spec: Any) -> Object:
    """A job of one launcher and two workers unless told otherwise."""
    roles = {"Launcher": role(1), "Worker": role(2)} if roles is None else roles
    return {
        "apiVersion": "qihoo.net/v1alpha1",
        "kind": "DGLJob",
        "metadata": {"name": name},
        "spec": {"dglReplicaSpecs": roles, **spec},
    }


def with_containers(containers: list[Object]) -> Object:
    """A job whose worker has these containers."""
    worker = {"replicas": 1, "template": {"spec": {"containers": containers}}}
    return a_job(roles={"Launcher": role(1), "Worker": worker})


def with_failure_rule(**rule: Any) -> Object:
    """A job whose failure policy has this rule."""
    return a_job(failurePolicy={"rules": [{"action": "FailJob", **rule}]})


def with_rule(rule: Object) -> Object:
    """A job whose NetworkPolicy has this rule of the user's."""
    return a_job(networkPolicy={"ingress": [rule]})


def with_gang(**policy: Any) -> Object:
    """A job whose two workers are a gang."""
    return a_job(runPolicy={"schedulingPolicy": policy})


def with_dataset(**fields: Any) -> Object:
    """A job with a dataset volume on a claim."""
    return a_job(datasetVolume={"persistentVolumeClaim": {"claimName": "graphs"}, **fields})


@dataclass(frozen=True)
class Bad:
    """A job that has to be refused.

    Attributes:
        what: What is wrong with it.
        job: The object.
        where: Field that the refusal has to name.
        says: Words that the refusal has to have.
    """

    what: str
    job: Object
    where: str
    says: str


LAUNCHER, WORKER = role(1), role(2)
ALL_ROLES = {"Launcher": LAUNCHER, "Worker": WORKER, "Partitioner": LAUNCHER}
ALL_ROLES = {"Launcher": LAUNCHER, "Worker": WORKER, "Partitioner": LAUNCHER}
SPECS = "spec.dglReplicaSpecs"

BROKEN_RULES = (
    Bad("a name of 52 letters", a_job("a" * 52), "metadata.name", "at most 51"),
    Bad("a name with a dot", a_job("sage.v2"), "metadata.name", "expected at most 51 lower-case letters"),
    Bad("a name that begins with a digit", a_job("2sage"), "metadata.name", "beginning with a letter"),
    Bad("a mistyped role", a_job(roles={"Launcher": LAUNCHER, "Worker": WORKER, "Partitoner": LAUNCHER}),
        SPECS, "expected only the roles Launcher, Partitioner, Worker"),
    Bad("a mistyped Worker", a_job(roles={"Launcher": LAUNCHER, "Wroker": WORKER}), SPECS, "only the roles"),
    Bad("two launchers", a_job(roles={"Launcher": role(2), "Worker": WORKER}), SPECS, "exactly one Launcher"),
    Bad("two partitioners", a_job(roles={"Launcher": LAUNCHER, "Worker": WORKER, "Partitioner": role(2)}),
        SPECS, "exactly one Partitioner"),
    Bad("no worker by default", a_job(roles={"Launcher": LAUNCHER}), SPECS, "expected a Worker"),
    Bad("no worker in ParMETIS", a_job(roles={"Launcher": LAUNCHER}, partitionMode="ParMETIS"), SPECS,
        "expected a Worker, since only partitionMode Skip trains without workers, got none with ParMETIS"),
    Bad("a worker in Skip", a_job(partitionMode="Skip"), SPECS, "expected no Worker with partitionMode Skip"),
    Bad("a partitioner in Skip",
        a_job(roles={"Launcher": LAUNCHER, "Partitioner": LAUNCHER}, partitionMode="Skip"),
        SPECS, "expected no Partitioner"),
    Bad("a partitioner in DistParMETIS", a_job(roles=ALL_ROLES, partitionMode="DistParMETIS"),
        SPECS, "expected no Partitioner with partitionMode Skip or DistParMETIS"),
    Bad("a failure rule that names nothing", with_failure_rule(), "spec.failurePolicy",
        "expected each rule to have role, onExitCodes or onPodConditions"),
    Bad("a failure rule on codes and conditions",
        with_failure_rule(onExitCodes={"operator": "In", "values": [1]},
                          onPodConditions=[{"type": "DisruptionTarget"}]),
        "spec.failurePolicy", "onExitCodes or onPodConditions, not both"),
    Bad("a dataset at no absolute path", with_dataset(mountPath="data"), "spec.datasetVolume.mountPath",
        "expected an absolute path"),
    Bad("a dataset at the root", with_dataset(mountPath="//"), "spec.datasetVolume.mountPath",
        "expected an absolute path below /"),
    Bad("a dataset at a path that climbs", with_dataset(mountPath="/data/../etc"),
        "spec.datasetVolume.mountPath", "without '.', '..'"),
    Bad("an exit code that is no failure",
        with_failure_rule(onExitCodes={"operator": "In", "values": [0, 1]}), "spec.failurePolicy",
        "expected no exit code 0 with operator In"),
    Bad("a gang without workers",
        a_job(roles={"Launcher": LAUNCHER}, partitionMode="Skip", runPolicy={"schedulingPolicy": {}}),
        "spec.runPolicy", "expected no schedulingPolicy with partitionMode Skip"),
    Bad("a gang of more than the workers", with_gang(minAvailable=3),
        "spec.runPolicy.schedulingPolicy.minAvailable", "expected minAvailable of at most Worker.replicas"),
    Bad("a queue of gangs", with_gang(queue="night"), "spec.runPolicy.schedulingPolicy.queue",
        "expected no queue"),
)  # fmt: skip
"""Jobs whose fields have the right types; refused by `rules`."""

CONTAINERS = f"{SPECS}.Worker.template.spec.containers"
BROKEN_CONTAINERS = (
    Bad("no container", with_containers([]), CONTAINERS, "at least"),
    Bad("a container without image", with_containers([{"name": "main"}]), f"{CONTAINERS}[0].image",
        "equired"),
    Bad("a container without name", with_containers([{"image": "i"}]), f"{CONTAINERS}[0].name", "equired"),
    Bad("a second container without image", with_containers([{"name": "a", "image": "i"}, {"name": "b"}]),
        f"{CONTAINERS}[1].image", "equired"),
)  # fmt: skip
"""Templates without what the operator needs of them; refused by the schema and by `rules`."""

BROKEN_TYPES = (
    Bad("no launcher", a_job(roles={"Worker": WORKER}), SPECS, "Launcher"),
    Bad("no roles at all", a_job(roles={}), SPECS, "Launcher"),
    Bad("no spec", {key: value for key, value in a_job().items() if key != "spec"}, "spec", "equired"),
    Bad("an unknown mode", a_job(partitionMode="metis"), "spec.partitionMode", "DGL-API"),
    Bad("an unknown policy", a_job(cleanPodPolicy="Always"), "spec.cleanPodPolicy", "Running"),
    Bad("no slots", a_job(slotsPerWorker=0), "spec.slotsPerWorker", "greater than or equal to 1"),
    Bad("words for slots", a_job(slotsPerWorker="many"), "spec.slotsPerWorker", "integer"),
    Bad("a deadline of nothing", a_job(runPolicy={"activeDeadlineSeconds": 0}),
        "spec.runPolicy.activeDeadlineSeconds", "greater than or equal to 1"),
    Bad("less than no attempt", a_job(runPolicy={"backoffLimit": -1}), "spec.runPolicy.backoffLimit",
        "greater than or equal to 0"),
    Bad("a manager without a domain", a_job(runPolicy={"managedBy": "kueue"}), "spec.runPolicy.managedBy",
        "match"),
    Bad("a gang of none", with_gang(minAvailable=0), "spec.runPolicy.schedulingPolicy.minAvailable",
        "greater than or equal to 1"),
    Bad("a priority class in capitals", with_gang(priorityClass="High"),
        "spec.runPolicy.schedulingPolicy.priorityClass", "match"),
    Bad("an unknown action", with_failure_rule(action="Retry", role="Worker"),
        "spec.failurePolicy.rules", "FailJob"),
    Bad("an unknown role in a rule", with_failure_rule(role="Evaluator"), "spec.failurePolicy.rules",
        "Launcher"),
    Bad("no exit codes", with_failure_rule(onExitCodes={"operator": "In", "values": []}),
        "spec.failurePolicy.rules", "at least"),
    Bad("no workers at all", a_job(roles={"Launcher": LAUNCHER, "Worker": role(0)}),
        f"{SPECS}.Worker.replicas", "greater than or equal to 1"),
    Bad("1001 workers", a_job(roles={"Launcher": LAUNCHER, "Worker": role(1001)}),
        f"{SPECS}.Worker.replicas", "less than or equal to 1000"),
    Bad("a role without template", a_job(roles={"Launcher": LAUNCHER, "Worker": {"replicas": 2}}),
        f"{SPECS}.Worker.template", "equired"),
)  # fmt: skip
"""Jobs that the models themselves refuse to read."""

BROKEN_ARGUMENTS = (
    Bad("a number among the arguments", with_containers([{"name": "a", "image": "i", "args": ["--n", 2]}]),
        f"{CONTAINERS}[0].args[1]", "must be of type string"),
    Bad("a number as a variable",
        with_containers([{"name": "a", "image": "i", "env": [{"name": "N", "value": 2}]}]),
        f"{CONTAINERS}[0].env[0].value", "must be of type string"),
    Bad("two containers of one name",
        with_containers([{"name": "a", "image": "i"}, {"name": "a", "image": "j"}]),
        "template.spec.containers[1]", "Duplicate value"),
    Bad("a template without spec", a_job(roles={"Launcher": LAUNCHER, "Worker": {"template": {}}}),
        f"{SPECS}.Worker.template.spec", "Required value"),
    Bad("a word for a dataset that is only read", with_dataset(readOnly="yes"),
        "spec.datasetVolume.readOnly", "must be of type boolean"),
    Bad("an annotation that is a number", a_job(serviceAccountAnnotations={"example.org/role": 7}),
        "spec.serviceAccountAnnotations.example.org/role", "must be of type string"),
    Bad("a word for a switch", a_job(networkPolicy={"enabled": "yes"}), "spec.networkPolicy.enabled",
        "must be of type boolean"),
    Bad("an address for a range", with_rule({"from": [{"ipBlock": {"cidr": "10.0.0.1"}}]}),
        "spec.networkPolicy.ingress[0].from[0].ipBlock.cidr", "cidr"),
    Bad("a list for a range", with_rule({"from": [{"ipBlock": {"cidr": ["10.0.0.0/8"]}}]}),
        "spec.networkPolicy.ingress[0].from[0].ipBlock.cidr", "must be of type string"),
    Bad("a list for an excepted range",
        with_rule({"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": [[None]]}}]}),
        "spec.networkPolicy.ingress[0].from[0].ipBlock.except[0]", "must be of type string"),
    Bad("an unknown protocol", with_rule({"ports": [{"protocol": "HTTP"}]}),
        "spec.networkPolicy.ingress[0].ports[0].protocol", "TCP"),
    Bad("one peer without a list", with_rule({"from": {"podSelector": {}}}),
        "spec.networkPolicy.ingress[0].from", "must be of type array"),
)  # fmt: skip
"""Slips inside of templates that only the API server looks for."""

GOOD = {
    "one launcher, two workers": a_job(),
    "the longest name": a_job("a" * 51),
    "one letter": a_job("a"),
    "replicas by default": a_job(roles={"Launcher": role(), "Worker": role()}),
    "a partitioner of its own": a_job(roles={"Launcher": LAUNCHER, "Worker": WORKER, "Partitioner": role()}),
    "ParMETIS": a_job(partitionMode="ParMETIS"),
    "DistParMETIS": a_job(partitionMode="DistParMETIS"),
    "Skip": a_job(roles={"Launcher": role()}, partitionMode="Skip"),
    "1000 workers": a_job(roles={"Launcher": LAUNCHER, "Worker": role(1000)}),
    "a dataset on a claim": with_dataset(),
    "a dataset that is only read": with_dataset(mountPath="/mnt/.hidden/...//graphs/", readOnly=True),
    "a claim for each pod": a_job(
        datasetVolume={
            "ephemeral": {
                "volumeClaimTemplate": {
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    }
                }
            }
        }
    ),
    "an identity": a_job(serviceAccountAnnotations={"example.org/role": "arn:role/trainer"}),
    "no network policy": a_job(networkPolicy={"enabled": False}),
    "a rule with each kind of peer and port": with_rule(
        {
            "from": [
                {"podSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}},
                {"ipBlock": {"cidr": "fd00::/8", "except": ["fd00:1::/32"]}},
            ],
            "ports": [{"port": 9100, "endPort": 9200}, {"port": "stats", "protocol": "SCTP"}],
        }
    ),
    "every field of a run policy": a_job(
        runPolicy={
            "suspend": True,
            "activeDeadlineSeconds": 1,
            "startDeadlineSeconds": 60,
            "ttlSecondsAfterFinished": 0,
            "backoffLimit": 3,
            "managedBy": "kueue.x-k8s.io/multikueue",
        }
    ),
    "a gang": with_gang(),
    "every field of a gang": with_gang(
        minAvailable=2,
        priorityClass="high",
        minResources={"cpu": 4, "memory": "8Gi"},
        scheduleTimeoutSeconds=60,
        queue="",
    ),
    "each kind of failure rule": a_job(
        failurePolicy={
            "rules": [
                {"action": "FailJob", "role": "Partitioner"},
                {
                    "action": "Restart",
                    "onExitCodes": {"containerName": "main", "operator": "NotIn", "values": [0, 1]},
                },
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]
        }
    ),
    "all pods deleted": a_job(cleanPodPolicy="All", slotsPerWorker=4),
}
