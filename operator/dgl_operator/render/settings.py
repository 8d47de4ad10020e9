"""What the operator's administrator chooses about rendered objects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Images:
    """Images of our own init containers, and what they may use.

    Attributes:
        resources: Requests and limits of each; None: `resources.INIT_RESOURCES`.
    """

    watcher_loop: str
    kubectl_download: str
    pull_policy: str = "IfNotPresent"
    resources: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Rendering:
    """All that the administrator chooses about rendered objects.

    Attributes:
        images: Images of our own init containers.
        has_network_policy: Whether a job that does not say gets a NetworkPolicy.
        has_kueue: Whether jobs that name a queue wait for their admission by Kueue.
    """

    images: Images
    has_network_policy: bool = True
    has_kueue: bool = False
