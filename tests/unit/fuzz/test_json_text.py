"""Text that Python's own JSON module can neither write nor read."""

import json

import pytest

from tests.fuzz.json_text import Verbatim, depth, encode, nested, top_value


def test_verbatim_parts_stand_in_the_text_as_they_are() -> None:
    """Numbers that no Python value prints as."""
    text = encode({"a": [Verbatim("1e400"), {"b": Verbatim("-0")}], "c": "@"})

    assert text == b'{"a": [1e400, {"b": -0}], "c": "@"}'


def test_nested_text_has_its_levels() -> None:
    """As objects and as lists."""
    assert depth(encode({"deep": nested(9_000)})) == 9_001
    assert depth(encode({"deep": nested(9_000, "[", "]", "")})) == 9_001


def test_brackets_in_texts_are_no_levels() -> None:
    """A value may be full of them."""
    assert depth(encode({"a": '[[[{{{"\\'})) == 1


@pytest.mark.parametrize("space", [None, 2])
def test_a_status_is_read_out_of_an_object_that_is_too_deep(space: int | None) -> None:
    """Keys of the same name below are others."""
    status = {"phase": "Failed", "conditions": [{"message": 'a "status": {} in it'}]}
    text = json.dumps({"spec": {"status": {"phase": "no"}, "deep": 0}, "status": status}, indent=space)
    deep = text.replace('"deep": 0', '"deep": ' + "[" * 5_000 + "]" * 5_000).encode()

    found = top_value(deep, "status")

    assert found is not None
    assert json.loads(found) == status


def test_an_object_without_a_status_has_none() -> None:
    """Or one that is no object."""
    assert top_value(b'{"spec": {"status": {}}}', "status") is None
    assert top_value(b'{"status": "odd"}', "status") is None
