"""The operator and dglrun take the same address of a pod."""

from typing import Any

import pytest

from dgl_operator.domain.observed import Observed
from dglrun.contract.address import ipv4
from dglrun.contract.names import Role
from dglrun.kube import pods
from tests.support.jobs import a_job, a_pod, observed

BOTH = [{"ip": "fd00::5"}, {"ip": "10.0.0.5"}]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"podIP": "fd00::5", "podIPs": BOTH}, "10.0.0.5"),
        ({"podIP": "10.0.0.5", "podIPs": BOTH[::-1]}, "10.0.0.5"),
        ({"podIP": "10.0.0.5"}, "10.0.0.5"),
        ({"podIP": "fd00::5", "podIPs": BOTH[:1]}, None),
        ({"podIP": "fd00::5"}, None),
        ({"podIP": "", "podIPs": None}, None),
        ({}, None),
    ],
)
def test_the_first_ipv4_address_is_taken(status: dict[str, Any], expected: str | None) -> None:
    """DGL's ip_config has no place for another one."""
    assert ipv4(status) == expected


def test_what_the_operator_publishes_is_what_the_watcher_compares() -> None:
    """Where IPv6 comes first the watcher waited for ever for the file to say the IPv6 address."""
    job = a_job()
    pod = a_pod(job, Role.WORKER, podIP="fd00::5", podIPs=BOTH)

    seen: Observed = observed(job, pod)

    assert seen.pods[0].ip == pods.ip(pod) == "10.0.0.5"
