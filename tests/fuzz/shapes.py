"""What a DGLJob may hold: the CRD's schema, and below `template` the pod template of the Kubernetes client.

The client's models list each key and type of a PodTemplateSpec; the CRD itself names few of them.
"""

import functools
import random
import re
from dataclasses import dataclass
from typing import Any

import yaml
from kubernetes import client

from dgl_operator.api.crd import INT_OR_STRING
from tests.support.api_client import CRD

TEMPLATE = "V1PodTemplateSpec"
_LIST = re.compile(r"^[Ll]ist\[(.*)\]$")
_MAP = re.compile(r"^[Dd]ict[\[(]str, ?(.*)[\])]$")
_SCALARS = {"str": "string", "int": "integer", "bool": "boolean", "float": "number", "datetime": "string"}
_GUESSES = {
    "name": "extra",
    "image": "example/graphsage:v1",
    "mountPath": "/mnt",
    "path": "/tmp",
    "key": "key",
    "operator": "Exists",
    "topologyKey": "kubernetes.io/hostname",
    "schedulerName": "played-by-the-test",
    "restartPolicy": "Never",
    "imagePullPolicy": "Always",
    "protocol": "TCP",
    "type": "RuntimeDefault",
}


@dataclass(frozen=True)
class Shape:
    """One place of the schema.

    Attributes:
        type: object, map, array, string, integer, number, boolean or any.
        of: Name of the client's model, for an object.
        item: Shape of the items of a list or of the values of a map.
        keys: Keys of an object that no model describes.
    """

    type: str
    of: str = ""
    item: "Shape | None" = None
    keys: tuple[tuple[str, "Shape"], ...] = ()

    def fields(self) -> dict[str, "Shape"]:
        """The keys that an object may have."""
        return dict(self.keys) or (_model_fields(self.of) if self.of else {})

    def below(self, key: str | int) -> "Shape":
        """The shape of a key or of an item."""
        if self.item is not None:
            return self.item
        return self.fields().get(str(key), ANY)


ANY = Shape("any")


@functools.cache
def _model_fields(name: str) -> dict[str, Shape]:
    model = getattr(client, name)
    return {model.attribute_map[key]: _of_type(told) for key, told in sorted(model.openapi_types.items())}


def _of_type(told: str) -> Shape:
    if found := _LIST.match(told):
        return Shape("array", item=_of_type(found[1]))
    if found := _MAP.match(told):
        return Shape("map", item=_of_type(found[1]))
    if told in _SCALARS:
        return Shape(_SCALARS[told])
    return Shape("object", of=told) if hasattr(getattr(client, told, None), "openapi_types") else ANY


def _of_schema(schema: dict[str, Any]) -> Shape:
    if "containers" in schema.get("properties", {}).get("spec", {}).get("properties", {}):
        return Shape("object", of=TEMPLATE)
    if "additionalProperties" in schema:
        return Shape("map", item=_of_schema(schema["additionalProperties"]))
    if INT_OR_STRING in schema:
        return ANY
    if schema["type"] == "array":
        return Shape("array", item=_of_schema(schema["items"]))
    if schema["type"] != "object":
        return Shape(schema["type"])
    keys = tuple((key, _of_schema(below)) for key, below in sorted(schema.get("properties", {}).items()))
    return Shape("object", keys=keys)


@functools.cache
def job() -> Shape:
    """The shape of a DGLJob as its CRD describes it, without its status."""
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    parts = {key: below for key, below in schema["properties"].items() if key in ("spec", "status")}
    metadata = Shape("object", of="V1ObjectMeta")
    return Shape("object", keys=(("metadata", metadata), ("spec", _of_schema(parts["spec"]))))


@functools.cache
def status() -> Shape:
    """The shape of a DGLJob's status."""
    schema = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return _of_schema(schema["properties"]["status"])


def sample(shape: Shape, rng: random.Random, key: str = "", budget: int = 4) -> Any:
    """Return a plausible value: right types, and now and then a valid one."""
    if shape.type == "object" and budget > 0:
        fields = shape.fields()
        chosen = rng.sample(sorted(fields), min(len(fields), rng.randint(1, 3)))
        chosen += [name for name in ("name", "mountPath") if name in fields and name not in chosen]
        return {name: sample(fields[name], rng, name, budget - 1) for name in chosen}
    if shape.type == "array" and shape.item is not None and budget > 0:
        return [sample(shape.item, rng, key, budget - 1) for _ in range(rng.randint(1, 2))]
    if shape.type == "map" and shape.item is not None and budget > 0:
        return {"example": sample(shape.item, rng, key, budget - 1)}
    return _scalar(shape.type, key, rng)


def _scalar(kind: str, key: str, rng: random.Random) -> Any:
    if kind == "string":
        return _GUESSES.get(key) or rng.choice(["example", "100m", "64Mi", "2026-11-21T11:30:00Z"])
    simple: dict[str, Any] = {"integer": rng.randint(0, 9999), "number": 0.5, "boolean": rng.random() < 0.5}
    empty: dict[str, Any] = {"object": {}, "map": {}, "array": []}
    return {**simple, **empty}.get(kind, rng.choice(["example", 1, {}]))
