"""What a run needs on the cluster: namespaces, an account, an operator that watches them."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dgl_operator.runtime.kinds import Kind
from tests.fuzz.acts import MERGE
from tests.fuzz.cases import Place
from tests.fuzz.raw_api import RawApi
from tests.fuzz.watched import Watched
from tests.support.api_client import ACCOUNT, ApiServer
from tests.support.operator_process import OperatorProcess

HOME = "dgl-operator-under-test"
RESYNC_SECONDS = 30
"""Short, so that full lists meet hostile objects as well."""
NARROW_PODS = 4


class Stage:
    """Namespaces of one run and the operator that watches them.

    Attributes:
        places: Namespaces of the cases.
        quiet: Namespace of innocent jobs alone.
        operator: The one that runs now.
    """

    operator: Watched

    def __init__(self, folder: Path) -> None:
        self.api, self.raw = ApiServer(), RawApi()
        self._folder = folder
        mark = uuid.uuid4().hex[:6]
        self.places = {place: f"fuzz-{mark}-{place.value}" for place in Place}
        self.tenant = self.places[Place.TENANT]
        self.quiet = f"fuzz-{mark}-quiet"

    @property
    def namespaces(self) -> tuple[str, ...]:
        """All namespaces of the run."""
        return (*self.places.values(), self.quiet)

    def prepare(self) -> None:
        """Make what an operator needs, and the namespaces."""
        self.api.install_crd()
        self.api.install_account(HOME)
        for name in self.namespaces:
            self.api.make_namespace(name)
        quota = {
            "kind": "ResourceQuota",
            "metadata": {"name": "few"},
            "spec": {"hard": {"pods": f"{NARROW_PODS}"}},
        }
        self.api.put(f"/api/v1/namespaces/{self.places[Place.NARROW]}/resourcequotas", quota)
        self._kubeconfig = self.api.kubeconfig(HOME, ACCOUNT, self._folder)

    def start(self) -> None:
        """Start an operator for the namespaces."""
        first, *others = self.namespaces
        flags = [word for name in others for word in ("--namespace", name)]
        flags += ["--log-format", "json", "--resync-period", str(RESYNC_SECONDS)]
        process = OperatorProcess(self._kubeconfig, first, self._folder / "operator.log", *flags)
        self.operator = Watched(process)
        process.wait_ready()

    def stop(self) -> None:
        """End the operator, if one runs."""
        if not hasattr(self, "operator"):
            return
        self.operator.stop()
        if self.operator.process.is_running:
            self.operator.process.kill()

    def remove(self) -> None:
        """End the operator and begin to delete the namespaces; a finalizer would hold them for ever."""
        self.stop()
        for place in self.namespaces:
            for job in self.raw.names(Kind.JOB, place):
                self.raw.request(
                    "PATCH", Kind.JOB.path(place, job), b'{"metadata":{"finalizers":null}}', MERGE
                )
            self.raw.request("DELETE", f"/api/v1/namespaces/{place}")


@contextmanager
def prepared(folder: Path) -> Iterator[Stage]:
    """A stage that is removed at the end."""
    stage = Stage(folder)
    try:
        stage.prepare()
        stage.start()
        yield stage
    finally:
        stage.remove()
