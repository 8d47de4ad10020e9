"""Pods that were made twice show, however short they lived."""

from typing import Any

from dglrun.contract import names
from tests.kills.ledger import Made

Json = dict[str, Any]


def a_pod(uid: str, attempt: str = "0") -> Json:
    labels = {names.LABEL_JOB: "sage", names.LABEL_ATTEMPT: attempt}
    return {"metadata": {"name": "sage-launcher", "uid": uid, "labels": labels}}


def made(*pods: Json) -> Made:
    found = Made()
    for pod in pods:
        found.note(pod)
    return found


def test_a_second_pod_of_a_name_in_an_attempt_is_found() -> None:
    """That is what an operator that forgets does."""
    assert made(a_pod("a"), a_pod("b")).twice() == ["sage-launcher of attempt 0 was made 2 times"]


def test_a_pod_of_another_attempt_is_no_second_one() -> None:
    """Nor is one pod that the watch shows twice."""
    assert made(a_pod("a"), a_pod("b", "1"), a_pod("a")).twice() == []


def test_where_a_pod_is_replaced_two_are_right_and_three_are_not() -> None:
    """A story may delete a pod without work once."""
    assert made(a_pod("a"), a_pod("b")).twice(lambda slot: True) == []
    assert made(a_pod("a"), a_pod("b"), a_pod("c")).twice(lambda slot: True) != []
