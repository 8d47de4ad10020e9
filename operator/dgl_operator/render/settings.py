"""What the operator's administrator chooses about rendered objects."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Images:
    """Images of our own init containers."""

    watcher_loop: str
    kubectl_download: str
    pull_policy: str = "IfNotPresent"
