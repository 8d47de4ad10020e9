"""The structural schema."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.api import crd, rules
from dgl_operator.api.v1alpha1 import JobStatus

Schema = dict[str, Any]


def walk(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every dictionary of a schema with its path."""
    if isinstance(node, dict):
        yield path, node
        for key, value in node.items():
            yield from walk(value, f"{path}/{key}")
    if isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, f"{path}/{index}")


def test_the_schema_is_structural() -> None:
    """Nothing that the API server refuses in a structural schema is left."""
    forbidden = {
        "$ref",
        "$defs",
        "title",
        "anyOf",
        "allOf",
        "oneOf",
        "const",
        "exclusiveMinimum",
        "prefixItems",
    }

    found = {path: forbidden & set(node) for path, node in walk(crd.schema()) if forbidden & set(node)}

    assert found == {}


def test_each_field_of_ours_says_what_it_means() -> None:
    """`kubectl explain` has a line for each field."""
    root = crd.schema()
    fields = [
        (path, node)
        for top in ("spec", "status")
        for path, node in walk(root["properties"][top])
        if path.split("/")[-2:-1] == ["properties"] and "/template/" not in path
    ]

    assert len(fields) > 40
    assert [path for path, node in fields if not node.get("description")] == []


def test_no_text_has_a_format() -> None:
    """The API server would take a list for it, and then refuse every write of the object."""
    texts = [node for _, node in walk(crd.schema()) if node.get("type") == "string"]
    times = [node for node in texts if node.get("pattern") == crd.TIME]

    assert [node for node in texts if "format" in node] == []
    assert len(times) == 8


# Not the first and the last year, whose ends have no name in other time zones.
@given(st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=st.timezones() | st.just(UTC)))
def test_a_time_of_ours_fits_its_pattern(time: datetime) -> None:
    """Whatever the clock says, the status is taken."""
    written = JobStatus(start_time=time.astimezone(UTC).replace(microsecond=0)).wire()["startTime"]

    assert re.search(crd.TIME, written)
    assert re.search(crd.TIME, time.astimezone(UTC).isoformat())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-11-21",
        "2026-11-21T12:00:00",
        "2026-13-21T12:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T12:00:00Z\n2",
        "at 2026-11-21T12:00:00Z",
    ],
)
def test_what_is_no_time_does_not_fit(text: str) -> None:
    """As little as with the format that it stands for."""
    assert not re.search(crd.TIME, text)


def test_no_default_is_empty() -> None:
    """A default of null is refused, an empty one says nothing."""
    empty = [path for path, node in walk(crd.schema()) if node.get("default", 1) in (None, [], {})]

    assert empty == []


def test_roles_are_keys_of_a_map() -> None:
    """Only in a map can a CEL rule see a role that does not exist; properties would be pruned."""
    specs = crd.at(crd.schema(), rules.SPECS)

    assert "properties" not in specs
    assert specs["additionalProperties"]["required"] == ["template"]


def test_native_keys_of_templates_are_kept() -> None:
    """Each open level of a PodTemplateSpec preserves what it does not know."""
    template = crd.at(crd.schema(), rules.SPECS)["additionalProperties"]["properties"]["template"]
    spec = template["properties"]["spec"]
    container = spec["properties"]["containers"]["items"]

    assert all(node[crd.PRESERVE] is True for node in (template, spec, container))


def test_conditions_merge_by_their_type() -> None:
    """Two writers of conditions do not erase each other's."""
    conditions = crd.at(crd.schema(), "status.conditions")

    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]


def test_columns_show_fields_that_exist() -> None:
    """A column that points nowhere would stay empty without a word."""
    root = crd.schema()
    workers = ".status.replicaStatuses.Worker"
    ours = [path for _, _, path, _, _ in crd.COLUMNS if not path.startswith(".metadata")]

    for path in ours:
        of_workers = path.startswith(workers)
        start = crd.at(root, "status.replicaStatuses")["additionalProperties"] if of_workers else root
        assert crd.at(start, path.removeprefix(workers))["type"] in ("string", "integer")

    assert len(ours) == 14


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "union"),
        ({"type": "integer", "exclusiveMinimum": 0}, "exclusiveMinimum"),
        ({"type": "object", "properties": {"a": {"const": 1}}}, "const"),
        ({"type": "string", "format": "hostname"}, "format hostname"),
    ],
)
def test_what_has_no_structural_form_is_refused(node: Schema, reason: str) -> None:
    """A model that Kubernetes cannot describe stops the generator."""
    with pytest.raises(ValueError, match=reason):
        crd.translate(node, {})


def test_references_and_options_are_resolved() -> None:
    """A reference takes the place of its target; own words win over the target's."""
    definitions = {
        "Inner": {"type": "object", "description": "theirs", "properties": {"n": {"type": "integer"}}}
    }
    node = {
        "anyOf": [{"$ref": "#/$defs/Inner"}, {"type": "null"}],
        "default": None,
        "description": "  own\n words ",
    }

    assert crd.translate(node, definitions) == {
        "type": "object",
        "description": "own words",
        "properties": {"n": {"type": "integer", "format": "int32"}},
    }
