"""Objects are read with a bound on their depth; one beyond it is named and hides no other."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.runtime import decode

TOO_DEEP = "expected at most 200 levels of nesting, got more"


def nested(levels: int, opening: str = '{"a":', closing: str = "}") -> str:
    """A JSON value of so many levels."""
    return opening * levels + "1" + closing * levels


def a_job(name: str, template: str) -> str:
    """A job as the API server writes it, with something under a key that no schema knows."""
    return (
        f'{{"apiVersion":"qihoo.net/v1alpha1","kind":"DGLJob","metadata":{{"name":"{name}","uid":"{name}-uid",'
        f'"namespace":"default","resourceVersion":"7"}},"spec":{{"template":{template}}},'
        '"status":{"phase":"Pending"}}'
    )


@pytest.mark.parametrize("levels", [1_100, 9_000])
def test_an_object_nested_too_deeply_is_read_as_far_as_its_metadata_and_status(levels: int) -> None:
    """At 1,100 levels the decoder of the standard library raises RecursionError."""
    found = decode.one(a_job("deep", nested(levels)).encode())

    assert found[decode.UNREADABLE] == TOO_DEEP
    assert found["metadata"]["name"] == "deep"
    assert found["status"] == {"phase": "Pending"}


@pytest.mark.parametrize("levels", [1_100, 9_000])
def test_of_a_list_the_other_items_are_whole(levels: int) -> None:
    """Each item is judged alone."""
    items = [a_job("one", '{"b":[1]}'), a_job("deep", nested(levels, "[", "]")), a_job("two", '"}]{["')]
    text = f'{{"kind":"DGLJobList","metadata":{{"resourceVersion":"9"}},"items":[{",".join(items)}]}}'

    found = decode.listed(text.encode())

    assert [item["metadata"]["name"] for item in found["items"]] == ["one", "deep", "two"]
    assert [decode.UNREADABLE in item for item in found["items"]] == [False, True, False]
    assert found["items"][0]["spec"] == {"template": {"b": [1]}}
    assert found["items"][2]["spec"] == {"template": "}]{["}
    assert found["metadata"]["resourceVersion"] == "9"


def test_of_a_watch_event_type_and_name_are_read() -> None:
    """The watch goes on with the next line."""
    line = f'{{"type":"ADDED","object":{a_job("deep", nested(5_000))}}}'

    change, found = decode.event(line.encode())

    assert (change, found["metadata"]["name"], found[decode.UNREADABLE]) == ("ADDED", "deep", TOO_DEEP)


@pytest.mark.parametrize("text", ["", "<html>", "[]", "7", '{"a":', nested(500)[:-1]])
def test_what_is_no_object_is_an_error(text: str) -> None:
    """A proxy's page, a broken answer."""
    with pytest.raises(decode.DecodeError, match="expected"):
        decode.one(text.encode())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=20,
)


@given(st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=3), min_size=1, max_size=4), st.data())
def test_items_beside_a_deep_one_are_as_they_were_written(
    items: list[dict[str, object]], data: st.DataObject
) -> None:
    """Whatever brackets and quotes their strings hold."""
    at = data.draw(st.integers(0, len(items)))
    texts = [json.dumps(item, ensure_ascii=data.draw(st.booleans())) for item in items]
    texts.insert(at, f'{{"deep":{nested(300)}}}')

    found = decode.listed(f'{{"items":[{",".join(texts)}],"metadata":{{}}}}'.encode())["items"]

    assert decode.UNREADABLE in found.pop(at)
    assert found == items


@given(JSON)
def test_what_is_encoded_is_decoded_as_it_was(value: Any) -> None:
    """The store keeps objects as text."""
    assert decode.parsed(decode.encoded(value)) == value


SMALL_STACK = """
import sys, threading
from dgl_operator.runtime import decode

def read_and_keep():
    decode.encoded(decode.one(sys.argv[1].encode()))

threading.stack_size(192 * 1024)
reader = threading.Thread(target=read_and_keep)
reader.start()
reader.join()
"""


def test_the_deepest_object_takes_little_of_a_stack() -> None:
    """A thread never gives its stack back, and pydantic's encoder took half a megabyte of each."""
    deepest = a_job("deep", nested(decode.MAX_DEPTH - 2))
    assert decode.UNREADABLE not in decode.one(deepest.encode())

    subprocess.run([sys.executable, "-c", SMALL_STACK, deepest], check=True)


def test_no_text_of_an_object_is_remembered() -> None:
    """Its keys come from a user: 16,384 of them would be kept, each in memory that could be given back."""
    text = a_job("one", '{"a-key-of-the-user":"a value of the user"}').encode()
    deep = a_job("two", nested(1_100)).replace('"phase"', '"a-key-of-the-user"').encode()
    listed = b'{"items":[%s]}' % text
    event = b'{"type":"ADDED","object":%s}' % text
    reads: list[Callable[[], Any]] = [
        lambda: decode.one(text)["spec"]["template"],
        lambda: decode.listed(listed)["items"][0]["spec"]["template"],
        lambda: decode.event(event)[1]["spec"]["template"],
        lambda: decode.one(deep)["status"],
    ]

    for read in reads:
        once, again = (next(iter(read().items())) for _ in range(2))

        assert once == again
        assert once[0] is not again[0]
        assert once[1] is not again[1]
