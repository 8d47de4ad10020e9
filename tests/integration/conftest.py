"""Fixtures of the integration tests: the real API server, a namespace and an operator for each test."""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dgl_operator.runtime.kinds import Json
from tests.e2e.figures import Figures
from tests.support.api_client import ACCOUNT, ApiServer
from tests.support.operator_process import OperatorProcess
from tests.support.played_job import PlayedJob, a_played_job
from tests.support.s3_server import S3Server, s3_server

HOME = "dgl-operator-under-test"

Start = Callable[..., OperatorProcess]
Submit = Callable[..., PlayedJob]


@pytest.fixture(scope="session")
def api() -> ApiServer:
    """The API server with the CRD and the operator's account."""
    if not os.environ.get("KUBECONFIG"):
        pytest.fail("KUBECONFIG is not set: run 'make integration', which brings a cluster up, or name one")
    api = ApiServer()
    others = api.running_operators()
    if others and os.environ.get("DGL_OPERATOR_SHARED_CLUSTER") != "1":
        pytest.fail(
            f"another operator would answer for these jobs, too: {', '.join(others)}; "
            "`helm uninstall -n dgl-operator dgl-operator` removes that of `make demo`"
        )
    api.install_crd()
    api.install_account(HOME)
    return api


@pytest.fixture(scope="session")
def kubeconfig(api: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Credentials of the operator's account."""
    return api.kubeconfig(HOME, ACCOUNT, tmp_path_factory.mktemp("account"))


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Iterator[Figures]:
    """Collects the figures of this run; they are written to build/ and, when asked for, to docs/."""
    collected = Figures()
    yield collected
    collected.write("integration", request.session)


@pytest.fixture
def namespace(api: ApiServer) -> Iterator[str]:
    """A namespace that goes with the test."""
    name = f"it-{uuid.uuid4().hex[:8]}"
    api.make_namespace(name)
    yield name
    api.remove_namespace(name)


@pytest.fixture
def start(kubeconfig: Path, namespace: str, tmp_path: Path) -> Iterator[Start]:
    """Starts operators for the namespace and ends them with the test; their log is shown on failure."""
    started: list[OperatorProcess] = []
    log = tmp_path / "operator.log"

    def one(*flags: str) -> OperatorProcess:
        started.append(OperatorProcess(kubeconfig, namespace, log, *flags))
        return started[-1].wait_ready()

    yield one
    for process in started:
        if process.is_running:
            process.stop()
    if log.exists():
        print(log.read_text())


@pytest.fixture
def operator(start: Start) -> OperatorProcess:
    """A running operator."""
    return start()


@pytest.fixture
def submit(api: ApiServer, namespace: str) -> Submit:
    """Submits jobs whose pods the test plays."""

    def one(body: Json | None = None, **given: object) -> PlayedJob:
        return PlayedJob(api, namespace, body or a_played_job(**given))  # type: ignore[arg-type]

    return one


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server of this test alone, to which the environment leads; it has bucket `data`."""
    (tmp_path / "server").mkdir()
    with s3_server(tmp_path / "server") as found:
        yield prepared(found, monkeypatch)


def prepared(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """A server with its bucket, to which this environment leads."""
    for name, value in server.environ().items():
        monkeypatch.setenv(name, value)
    server.make_bucket("data")
    return server
