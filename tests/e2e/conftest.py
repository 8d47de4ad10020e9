"""Fixtures of the e2e tests: the operator as users install it, a namespace for each test, the figures."""

import os
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.e2e import figures, install, node_folder
from tests.e2e.jobs import Job, scripts_config_map
from tests.e2e.kubectl import Kubectl, Object, Refused
from tests.e2e.node_folder import NodeFolder
from tests.support.wait import wait_for

Submit = Callable[[Object], Job]
"""The type of the `submit` fixture: applies a job and returns its handle."""


@pytest.fixture(scope="session")
def operator() -> Iterator[Kubectl]:
    """The operator, installed by its chart; returns kubectl in its namespace."""
    if not os.environ.get("KUBECONFIG"):
        pytest.fail("KUBECONFIG is not set: run 'make e2e', which brings a cluster up, or name one")
    kubectl = install.operator()
    yield kubectl
    if os.environ.get("DGL_OPERATOR_KEEP") != "1":
        install.remove()


@pytest.fixture
def kubectl(operator: Kubectl) -> Iterator[Kubectl]:
    """Kubectl in a fresh namespace, which goes with the test."""
    name = f"e2e-{uuid.uuid4().hex[:8]}"
    kubectl = Kubectl(name)
    kubectl.run("create", "namespace", name)
    account_ready(kubectl)
    kubectl.apply(scripts_config_map())
    yield kubectl
    kubectl.run("delete", "namespace", name, "--wait=false")


def account_ready(kubectl: Kubectl) -> None:
    """Wait for the namespace's default ServiceAccount, without which no pod is admitted."""
    wait_for("default ServiceAccount", lambda: kubectl.get("serviceaccount", "default"), 30)


@pytest.fixture
def volume(kubectl: Kubectl) -> Iterator[NodeFolder]:
    """A fresh folder on the one node that every pod may write; it goes with the test."""
    with node_folder.made(kubectl) as folder:
        yield folder


@pytest.fixture
def submit(kubectl: Kubectl) -> Iterator[Submit]:
    """Applies jobs; on the way out prints the story of those that are not Completed."""
    submitted: list[Job] = []

    def apply(body: Object) -> Job:
        kubectl.apply(body)
        submitted.append(Job(kubectl, body["metadata"]["name"]))
        return submitted[-1]

    yield apply
    for job in submitted:
        try:
            if job.phase() != "Completed":
                print(job.story())
        except Refused as gone:
            print(gone)


@pytest.fixture(scope="session")
def accuracies() -> dict[str, list[float]]:
    """Accuracies of undisturbed examples, a list by seed, kept for those that are compared with them."""
    return {}


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> Iterator[figures.Figures]:
    """Collects the figures of this run; they are written to build/ and, when asked for, to docs/."""
    collected = figures.Figures()
    yield collected
    collected.write("e2e", request.session)
