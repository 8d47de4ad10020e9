"""The CustomResourceDefinition, made from the models and the rules.

pydantic describes the models in JSON schema; Kubernetes takes its structural subset of OpenAPI v3: no
references, no unions, no titles, descriptions everywhere. What cannot be translated is refused loudly.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dgl_operator.api import rules
from dgl_operator.api.v1alpha1 import Condition, DGLJob
from dglrun.contract import names

Schema = dict[str, Any]

KEPT = (
    *("type", "format", "enum", "default", "minimum", "maximum"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "maxProperties"),
)
"""Keywords that mean the same in both dialects."""

HANDLED = ("title", "description", "properties", "required", "additionalProperties", "items", "$defs")
"""Keywords that are translated, or dropped on purpose."""

TIME = (
    "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    "([.][0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
)
FORMATS = {"date-time": TIME}
"""What is said instead of the `format` of a text: the API server takes a list for a text that has one, and
then refuses every write of the object, the status among them."""

PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
SHORT_NAME = "dglj"


def definition() -> Schema:
    """Return the CustomResourceDefinition."""
    plural, group = names.PLURAL, names.GROUP
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": names.KIND,
                "listKind": f"{names.KIND}List",
                "plural": plural,
                "singular": names.KIND.lower(),
                "shortNames": [SHORT_NAME],
                "categories": ["all"],
            },
            "scope": "Namespaced",
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": names.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": [_column(*column) for column in COLUMNS],
        "schema": {"openAPIV3Schema": schema()},
    }


COLUMNS = (
    ("Phase", "string", ".status.phase", 0, "Where the job stands."),
    ("Mode", "string", ".spec.partitionMode", 0, "How the graph is partitioned."),
    ("Ready", "string", ".status.replicaStatuses.Worker.ready", 0, "Ready/desired workers."),
    ("Attempt", "integer", ".status.attempt", 0, "Number of the attempt, from 0."),
    ("Epoch", "integer", ".status.progress.epoch", 0, "Epoch that the training script told last."),
    ("Age", "date", ".metadata.creationTimestamp", 0, "Time since the job was created."),
    ("Stage", "string", ".status.progress.stage", 1, "What the job's own pods are at."),
    ("Percent", "integer", ".status.progress.percent", 1, "Share of the stage that is done."),
    ("Loss", "string", ".status.progress.loss", 1, "Loss that the training script told last."),
    ("Edge-Cut", "string", ".status.partition.edgeCut", 1, "Edges between two parts, of all edges."),
    (
        "Node-Balance",
        "string",
        ".status.partition.nodeBalance",
        1,
        "Nodes of the largest part over the mean.",
    ),
    (
        "Edge-Balance",
        "string",
        ".status.partition.edgeBalance",
        1,
        "Edges of the largest part over the mean.",
    ),
    ("Train-Balance", "string", ".status.partition.trainNodeBalance", 1, "Likewise of training nodes."),
    ("Halo", "string", ".status.partition.haloShare", 1, "Copies of other parts' nodes, of all nodes."),
    ("Message", "string", ".status.message", 1, "What the job waits for, or why it failed."),
)
"""Name, type, path, priority (1: only with `-o wide`), description."""


def _column(name: str, kind: str, path: str, priority: int, description: str) -> Schema:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return {**column, "priority": priority} if priority else column


def schema() -> Schema:
    """Return the structural schema of a DGLJob."""
    pydantic = DGLJob.model_json_schema(by_alias=True, mode="validation")
    root = translate(pydantic, pydantic.get("$defs", {}))
    root["properties"] = {
        "apiVersion": {"type": "string", "description": f"{names.GROUP}/{names.VERSION}"},
        "kind": {"type": "string", "description": names.KIND},
        "metadata": {"type": "object", "properties": {"name": {"type": "string"}}},
        "spec": root["properties"]["spec"],
        "status": root["properties"]["status"],
    }
    root["required"] = ["spec"]
    _type_templates(root)
    _type_ingress(root)
    _type_resources(root)
    _key_conditions(root)
    _add_rules(root)
    return root


def translate(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Translate one JSON schema of pydantic's into the structural subset, references resolved.

    Raises:
        ValueError: the schema has something that a structural schema cannot say.
    """
    node = _resolve(node, definitions)
    if unknown := set(node) - {*KEPT, *HANDLED}:
        raise ValueError(f"no structural form of {sorted(unknown)} in {dict(node)!r}")
    if node.get("type") == "string" and node.get("format") not in (None, *FORMATS):
        raise ValueError(f"no pattern for format {node['format']} in {dict(node)!r}")
    out: Schema = {key: node[key] for key in KEPT if key in node}
    if out.get("default", 0) is None or out.get("default") in ([], (), {}):
        del out["default"]
    if out.get("type") == "integer":
        out.setdefault("format", "int32")
    if out.get("type") == "string" and "format" in out:
        out |= {"pattern": FORMATS[out.pop("format")]}
    if "description" in node:
        out["description"] = " ".join(str(node["description"]).split())
    return out | _nested(node, definitions)


def _nested(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    out: Schema = {}
    if "properties" in node:
        out["properties"] = {key: translate(value, definitions) for key, value in node["properties"].items()}
    if node.get("required"):
        out["required"] = sorted(node["required"])
    if "items" in node:
        out["items"] = translate(node["items"], definitions)
    if isinstance(node.get("additionalProperties"), Mapping):
        out["additionalProperties"] = translate(node["additionalProperties"], definitions)
    elif node.get("additionalProperties") is True:
        out[PRESERVE] = True
    return out


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Schema:
    """Replace a reference by its target and an optional value by the value; own keywords win."""
    node = dict(node)
    if "anyOf" in node:
        options = [option for option in node.pop("anyOf") if option != {"type": "null"}]
        if len(options) != 1:
            raise ValueError(f"a union has no structural form: {options!r}")
        return _resolve({**options[0], **node}, definitions)
    if "$ref" in node:
        target = definitions[node.pop("$ref").removeprefix("#/$defs/")]
        return _resolve({**target, **node}, definitions)
    return node


def at(root: Schema, path: str) -> Schema:
    """Return the schema of the field at this dotted path; the empty path is the root."""
    for key in filter(None, path.split(".")):
        root = root["properties"][key]
    return root


def _type_templates(root: Schema) -> None:
    """Type what the operator relies on; the rest of a PodTemplateSpec is kept as it is."""
    role = at(root, rules.SPECS)["additionalProperties"]
    description = role["properties"]["template"]["description"]
    role["properties"]["template"] = {"description": description, **TEMPLATE}


def _type_ingress(root: Schema) -> None:
    """Type what a NetworkPolicyIngressRule has, so that most mistakes are refused at once.

    Unknown keys are kept: were a misspelt `from` pruned, the rule would admit everybody. The API server
    refuses it by name when the operator creates the NetworkPolicy.
    """
    at(root, "spec.networkPolicy.ingress")["items"] = INGRESS_RULE


def _type_resources(root: Schema) -> None:
    """Let an amount be a number or a text, as in the requests of a container."""
    amounts = at(root, f"{rules.SCHEDULING}.minResources")
    del amounts[PRESERVE]
    amounts["additionalProperties"] = {INT_OR_STRING: True}


def _open(properties: Schema, required: Sequence[str] = ()) -> Schema:
    """An object whose unknown keys are kept."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", **needed, "properties": properties, PRESERVE: True}


def _list(description: str, items: Schema) -> Schema:
    return {"type": "array", "description": description, "items": items}


def _words(description: str) -> Schema:
    return {"type": "object", "description": description, "additionalProperties": {"type": "string"}}


NAME = {"type": "string", "minLength": 1}
NAMED = _open({"name": NAME}, ["name"])

CONTAINER = _open(
    {
        "name": {**NAME, "description": "Unique in its pod."},
        "image": {"type": "string", "minLength": 1, "description": "Image with DGL and dglrun."},
        "command": _list("Replaces the image's entry point; workers without one idle.", {"type": "string"}),
        "args": _list("Arguments of the command; numbers need quotes.", {"type": "string"}),
        "env": _list("Environment variables.", _open({"name": NAME, "value": {"type": "string"}}, ["name"])),
        "ports": _list("Ports beside DGL's own.", _open({"containerPort": {"type": "integer"}})),
        "volumeMounts": _list("Mounts beside the operator's.", NAMED),
    },
    ["image", "name"],
)

CONTAINERS = {
    **_list("At least one; the first is the one that runs the job's command.", CONTAINER),
    "minItems": 1,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["name"],
}

METADATA = _open({"labels": _words("Kept beside the operator's."), "annotations": _words("Kept.")})

POD_SPEC = _open(
    {
        "containers": CONTAINERS,
        "initContainers": _list("Run after the operator's own.", NAMED),
        "volumes": _list("Volumes beside the operator's.", NAMED),
    },
    ["containers"],
)

TEMPLATE = _open(
    {
        "metadata": {**METADATA, "description": "Labels and annotations of the pods."},
        "spec": {
            **POD_SPEC,
            "description": "A PodSpec.",
            # Lists keyed by name are equal in any order, but the first container is the main one.
            "x-kubernetes-validations": [
                {
                    "rule": "self.containers[0].name == oldSelf.containers[0].name",
                    "message": rules.IMMUTABLE_MESSAGE,
                    "reason": rules.Reason.FORBIDDEN.value,
                }
            ],
        },
    },
    ["spec"],
)


PORT = _open(
    {
        "protocol": {
            "type": "string",
            "enum": ["TCP", "UDP", "SCTP"],
            "description": "TCP unless set.",
        },
        "port": {INT_OR_STRING: True, "description": "Number or name of a port; unset: all ports."},
        "endPort": {
            "type": "integer",
            "format": "int32",
            "minimum": 1,
            "maximum": 65535,
            "description": "Last port of a range that begins at `port`.",
        },
    }
)

SELECTOR = _open(
    {
        "matchLabels": _words("Labels with their values."),
        "matchExpressions": _list(
            "Requirements on labels.", _open({"key": {**NAME, "description": "Label."}})
        ),
    }
)

CIDR: Schema = {
    "type": "string",
    # No `format`, see FORMATS. The API server looks at the range itself when the NetworkPolicy is made.
    "pattern": "^[0-9A-Fa-f.:]+/[0-9]{1,3}$",
}

PEER = _open(
    {
        "podSelector": {
            **SELECTOR,
            "description": "Pods of the job's namespace, or of those of `namespaceSelector`.",
        },
        "namespaceSelector": {
            **SELECTOR,
            "description": "Namespaces; without `podSelector` all of their pods.",
        },
        "ipBlock": {
            **_open(
                {
                    "cidr": {**CIDR, "description": "Such as 10.1.0.0/16."},
                    "except": _list("Parts of `cidr` that are left out.", CIDR),
                },
                ["cidr"],
            ),
            "description": "Addresses outside of the cluster, or of its nodes.",
        },
    }
)

INGRESS_RULE = _open(
    {
        "from": _list("Who is admitted; empty: everybody.", PEER),
        "ports": _list("To which ports; empty: to all.", PORT),
    }
)


def _key_conditions(root: Schema) -> None:
    conditions = at(root, "status.conditions")
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    conditions["items"]["required"] = sorted(field.alias or "" for field in _required_of_a_condition())


def _required_of_a_condition() -> list[Any]:
    """A metav1.Condition has to have all but observedGeneration, an empty message too."""
    return [field for name, field in Condition.model_fields.items() if name != "observed_generation"]


def _add_rules(root: Schema) -> None:
    for rule in rules.RULES:
        _attach(at(root, rule.at), _cel(rule))
    for field in rules.IMMUTABLE:
        _attach(at(root, f"spec.{field}"), _immutable())
    for place, cel in rules.IMMUTABLE_OPTIONAL.items():
        _attach(at(root, "spec"), {**_immutable(), "rule": cel, "fieldPath": f".{place}"})


def _attach(node: Schema, rule: Schema) -> None:
    node.setdefault("x-kubernetes-validations", []).append(rule)


def _cel(rule: rules.Rule) -> Schema:
    out = {"rule": rule.cel, "message": rule.message, "reason": rule.reason.value}
    optional = {"messageExpression": rule.message_cel, "fieldPath": rule.field}
    return out | {key: value for key, value in optional.items() if value}


def _immutable() -> Schema:
    forbidden = rules.Reason.FORBIDDEN.value
    return {"rule": rules.IMMUTABLE_CEL, "message": rules.IMMUTABLE_MESSAGE, "reason": forbidden}
