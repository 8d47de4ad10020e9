"""The image that a pod runs, as the kubelet reports it."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dglrun.commands import own_image
from dglrun.contract import names
from dglrun.kube import api as api_module
from dglrun.kube.api import Api
from dglrun.kube.retry import Backoff
from tests.support import fake_api_server
from tests.support.fake_api_server import NAMESPACE, ApiServer

POD, NAME = "sage-partitioner", "registry.example.org/job:latest"
OF = {"DGL_OPERATOR_JOB_NAME": "sage", "DGL_OPERATOR_NAMESPACE": NAMESPACE}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    """An API server of this test."""
    with fake_api_server.running(tmp_path) as running:
        yield running


def put(server: ApiServer, **image_ids: str) -> None:
    """A pod whose main container is `main`, with what the kubelet says of its containers."""
    told: list[dict[str, Any]] = [
        {"name": name, "imageID": image_id, "state": {"running": {}}} for name, image_id in image_ids.items()
    ]
    metadata = {"name": POD, "uid": "1", "annotations": {names.ANNOTATION_MAIN: "main"}}
    server.put_object(POD, {"metadata": metadata, "status": {"containerStatuses": told}})


def environ_in(port: int, token: str, folder: Path) -> dict[str, str]:
    """The variables of a pod that reaches the server."""
    account = folder / "account"
    account.mkdir()
    for name, text in (("token", token), ("namespace", NAMESPACE)):
        (account / name).write_text(text)
    place = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    return {**OF, **place, "DGL_OPERATOR_SERVICE_ACCOUNT": str(account)}


@pytest.mark.parametrize(
    "image_id",
    [
        "registry.example.org/job@sha256:0a1b",
        "mirror.example.org/other/job@sha256:0a1b",
        "docker-pullable://registry.example.org/job@sha256:0a1b",
        "sha256:0a1b",
    ],
)
def test_an_image_is_known_by_its_digest(server: ApiServer, image_id: str) -> None:
    """Wherever it was pulled from; that of a sidecar does not count."""
    put(server, sidecar="sha256:ffff", main=image_id)

    assert own_image.digest(Api(server.access()), POD) == "sha256:0a1b"


def test_a_kubelet_that_has_not_reported_yet_is_waited_for(server: ApiServer) -> None:
    """Its status comes a moment after the start of the container, and never from some."""
    put(server, sidecar="sha256:ffff", main="")

    assert own_image.digest(Api(server.access()), POD, seconds=0.0) is None


def test_a_tag_that_is_pushed_anew_is_another_image(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its name is the same."""
    environ = environ_in(server.port, server.store.token, tmp_path)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = []
    for content in ("sha256:0a1b", "sha256:2c3d"):
        put(server, main=f"registry.example.org/job@{content}")
        found.append(own_image.of_partitioner(NAME, environ))

    assert found == ["sha256:0a1b", "sha256:2c3d"]
    assert capsys.readouterr().err == ""


def test_where_nobody_tells_the_digest_the_name_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """Outside of a cluster, for example; the log says so."""
    assert own_image.of_partitioner(NAME, OF) == NAME

    assert "the image's digest is not known, so that its name counts" in capsys.readouterr().err


@pytest.mark.parametrize(("silent", "lines"), [(0.0, 1), (600.0, 0)])
def test_an_api_server_that_is_away_is_waited_for_aloud(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    silent: float,
    lines: int,
) -> None:
    """It may take 15 minutes: the log says what is waited for, and what counts without it."""
    monkeypatch.setattr(own_image, "SILENT_SECONDS", silent)
    monkeypatch.setattr(api_module, "OUTAGE", Backoff(first=0.001, longest=0.001, give_up_after=0.2))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # and does not listen
        environ = environ_in(nobody.getsockname()[1], "token", tmp_path)
        for name, value in environ.items():
            monkeypatch.setenv(name, value)

        assert own_image.of_partitioner(NAME, environ) == NAME

    said = capsys.readouterr().err
    waits = "waiting for the API server, which tells the image's digest; without an answer within 900 s"
    assert said.count(waits) == lines
    assert said.count("Connection refused") == lines + 1
    assert "so that its name counts" in said.splitlines()[-1]
