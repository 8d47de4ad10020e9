"""Ask the API server by kubectl, always with the kubeconfig of our own cluster."""

import json
from pathlib import Path
from typing import Any

from tests.cluster import builds, commands
from tests.cluster.places import Places


def kubectl(places: Places, *argv: str | Path, stdin: str | None = None) -> str:
    """Run kubectl and return what it prints.

    Raises:
        StepError: kubectl ended with an error.
    """
    return commands.run(*_prefix(places), *argv, stdin=stdin)


def apply(places: Places, *objects: Any) -> None:
    """Create or change objects."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects}
    kubectl(places, "apply", "-f", "-", stdin=json.dumps(listed))


def succeeds(places: Places, *argv: str | Path) -> bool:
    """Tell whether a kubectl command succeeds."""
    return commands.attempt(*_prefix(places), *argv)[0] == 0


def get(places: Places, *argv: str) -> Any:
    """Return an object of the cluster, or None when it cannot be had."""
    code, out, _ = commands.attempt(*_prefix(places), "get", *argv, "-o", "json")
    return json.loads(out) if code == 0 else None


def is_true(found: Any, condition: str) -> bool:
    """Tell whether a condition of an object is true; of no object it is not."""
    conditions = found.get("status", {}).get("conditions", []) if found else []
    return any(entry["type"] == condition and entry["status"] == "True" for entry in conditions)


def _prefix(places: Places) -> tuple[str | Path, ...]:
    return (
        builds.program("kubectl", places),
        f"--kubeconfig={places.kubeconfig}",
        "--request-timeout=20s",
    )
