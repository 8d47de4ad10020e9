"""dglrun with a file for an API server: `python -m tests.support.dglrun_main ROOT ARGS...`."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dglrun.cli.workflow import workflow
from dglrun.kube.errors import Forbidden, NotFound, Unavailable


class FileCluster:
    """The API server's answers out of ROOT/cluster.json."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get_pod(self, name: str) -> dict[str, Any]:
        """One pod by name; its status may hold a UID, and whether it is being deleted."""
        try:
            status = json.loads((self._root / "cluster.json").read_text()).get(name)
        except ValueError:
            raise Unavailable("the API server does not answer") from None
        if status is None:
            raise NotFound(f"pods {name!r} not found")
        metadata = {"name": name, "uid": status.pop("uid", name)}
        if status.pop("deleting", False):
            metadata["deletionTimestamp"] = "2026-11-21T12:00:00Z"
        return {"metadata": metadata, "status": status}

    def require_exec(self, name: str) -> None:
        """Allowed, unless ROOT/forbidden names the pod."""
        forbidden = self._root / "forbidden"
        if forbidden.exists() and name in forbidden.read_text().split():
            raise Forbidden(f"this account may not exec into pod {name}: no rule allows it")

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Note what is reported; refuse where ROOT/no-reports is."""
        if (self._root / "no-reports").exists():
            raise Unavailable("the API server does not answer")
        with (self._root / "reports").open("a") as file:
            file.write(json.dumps({"name": name, "data": dict(data)}) + "\n")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    sys.exit(workflow(sys.argv[2:], FileCluster(folder), folder / "termination-log"))
