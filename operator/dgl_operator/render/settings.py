"""What the operator's administrator chooses about rendered objects."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Images:
    """Images of our own init containers."""

    watcher_loop: str
    kubectl_download: str
    pull_policy: str = "IfNotPresent"


@dataclass(frozen=True)
class Rendering:
    """All that the administrator chooses about rendered objects.

    Attributes:
        images: Images of our own init containers.
        has_network_policy: Whether a job that does not say gets a NetworkPolicy.
    """

    images: Images
    has_network_policy: bool = True
