"""Coscheduling's scheduler as a process of this host, beside the scheduler of the cluster, with its CRD."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import yaml

from dgl_operator.runtime.cluster import NotFound
from dgl_operator.runtime.kinds import Json, Kind
from tests.cluster import builds, commands
from tests.cluster.places import Places
from tests.support.api_client import ApiServer
from tests.support.wait import wait_for

SCHEDULER = "scheduler-plugins-scheduler"
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_LABELS = {"dgl-operator-test/coscheduling": "true"}
"""On the CRD, so that a later run knows what one that was killed has left."""


@contextmanager
def running(api: ApiServer, folder: Path) -> Iterator[Path]:
    """Install the CRD and run the scheduler; gives its log. All of it goes at the end.

    Raises:
        AssertionError: the cluster has coscheduling, whose groups would be removed.
    """
    definition = _definition()
    path = f"{_DEFINITIONS}/{definition['metadata']['name']}"
    _remove_leftovers(api, path)
    assert not api.serves(Kind.COSCHEDULING_POD_GROUP), (
        "the cluster has coscheduling: the test brings its own"
    )
    places = Places.here()
    builds.ensure(builds.GANGS, places)
    try:
        api.put(_DEFINITIONS, definition)
        wait_for("the CRD served", lambda: api.serves(Kind.COSCHEDULING_POD_GROUP), 120.0)
        with _scheduler(builds.program("scheduler-plugins", places), folder) as log:
            yield log
    finally:
        _remove(api, path)


def _definition() -> Json:
    """The CRD of the module that is built."""
    module = builds.MODULE["scheduler-plugins"]
    said = commands.run("go", "mod", "download", "-json", f"{module.of}@{module.version}", cwd=module.folder)
    path = Path(json.loads(said)["Dir"]) / "manifests" / "coscheduling" / "crd.yaml"
    body = yaml.safe_load(path.read_text())
    found = {key: body[key] for key in ("kind", "metadata", "spec")}
    return {**found, "metadata": {**found["metadata"], "labels": _LABELS}}


@contextmanager
def _scheduler(program: Path, folder: Path) -> Iterator[Path]:
    config, log, port = folder / "config.yaml", folder / "scheduler.log", _free_port()
    config.write_text(json.dumps(_config()))
    # One that outlives tests that were killed would bind the pods of the next ones.
    argv = ["setpriv", "--pdeathsig", "KILL", str(program), f"--config={config}", "--v=3"]
    argv += ["--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder}"]
    with log.open("ab") as file:
        process = subprocess.Popen(argv, stdout=file, stderr=file)
    try:
        wait_for("the scheduler", lambda: _answers(process, port, log), 120.0)
        yield log
    finally:
        process.kill()
        process.wait()


def _config() -> Json:
    """Its own name, so that no pod but those of the tests is its."""
    enabled = [{"name": "Coscheduling"}]
    plugins = {
        "multiPoint": {"enabled": enabled},
        "queueSort": {"enabled": enabled, "disabled": [{"name": "*"}]},
    }
    arguments = {"name": "Coscheduling", "args": {"permitWaitingTimeSeconds": 20}}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": os.environ["KUBECONFIG"]},
        "profiles": [{"schedulerName": SCHEDULER, "plugins": plugins, "pluginConfig": [arguments]}],
    }


def _answers(process: "subprocess.Popen[bytes]", port: int, log: Path) -> bool:
    assert process.poll() is None, f"the scheduler has ended:\n{log.read_text()[-4000:]}"
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def _remove_leftovers(api: ApiServer, path: str) -> None:
    with suppress(NotFound):
        if _LABELS.items() <= (api.call("GET", path)["metadata"].get("labels") or {}).items():
            _remove(api, path)


def _remove(api: ApiServer, path: str) -> None:
    with suppress(NotFound):
        api.call("DELETE", path)
    wait_for("the CRD gone", lambda: not api.serves(Kind.COSCHEDULING_POD_GROUP), 120.0)
