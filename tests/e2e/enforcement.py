"""Who enforces NetworkPolicies where the tests run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest

from tests.cluster import kind, other, policies
from tests.cluster.places import Places

ENFORCES = "DGL_OPERATOR_ENFORCES_POLICIES"
"""Environment variable: 1 says that the cluster of KUBECONFIG enforces NetworkPolicies."""


@contextmanager
def enforced() -> Iterator[None]:
    """Within the block NetworkPolicies are enforced: by kube-router on our own node, else by the cluster.

    Skips the test where nothing is known to do it.
    """
    if not is_known_to_enforce():
        pytest.skip(f"needs a cluster that enforces NetworkPolicies: {ENFORCES} is not 1")
    with enforced_on_our_node():
        yield


@contextmanager
def enforced_on_our_node() -> Iterator[None]:
    """Within the block they are enforced on our own node; another cluster is as it is."""
    places = Places.here()
    with policies.enforced(places) if _is_our_node(places) else nullcontext():
        yield


def is_known_to_enforce() -> bool:
    """Whether something does: kube-router on our own node, kindnet under kind, or so says ENFORCES."""
    return other.given(Places.here()) is None or os.environ.get(ENFORCES) == "1"


def _is_our_node(places: Places) -> bool:
    return bool(os.environ.get("KUBECONFIG")) and other.given(places) is None and not kind.chosen()
