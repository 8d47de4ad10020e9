"""Which of a pod's addresses the job uses: DGL's ip_config and MPI's hostfile hold IPv4 only."""

import ipaddress
from collections.abc import Mapping
from typing import Any


def ipv4(status: Mapping[str, Any]) -> str | None:
    """The first IPv4 address in a pod's status, None while it has none.

    Where IPv6 comes first, podIP is the IPv6 address and podIPs holds both (KEP-563), so the operator
    and dglrun have to choose alike. Before its sandbox runs a pod has neither field.

    Raises:
        ValueError: what stands there is no IP address.
    """
    found = [entry.get("ip") for entry in status.get("podIPs") or ()] or [status.get("podIP")]
    return next((ip for ip in found if ip and ipaddress.ip_address(ip).version == 4), None)
