"""The examples and the jobs of 2021 are good jobs."""

import re
from pathlib import Path

import pytest

from dgl_operator.api import generate, rules
from dgl_operator.api.v1alpha1 import DGLJob
from dglrun.contract.names import Mode
from tests.cluster import images
from tests.support.job_cases import EXAMPLES, ROOT, UPSTREAM, load

SHOWN = [
    *EXAMPLES,
    *(ROOT / name for name in ("README.md", generate.INSTALL)),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "helm").rglob("*.*")),
]
"""Whatever a user may copy an image's name from."""


@pytest.mark.parametrize("path", EXAMPLES + UPSTREAM, ids=lambda path: path.stem)
def test_an_example_is_a_good_job(path: Path) -> None:
    """It parses, no rule is broken, and no field of it is unknown."""
    raw = load(path)

    job = DGLJob.parse(raw)

    assert rules.violations(job) == ()
    assert set(raw["spec"]) <= set(job.spec.wire())
    assert set(raw["spec"]["dglReplicaSpecs"]) <= {"Launcher", "Worker", "Partitioner"}


def test_there_are_examples() -> None:
    """An empty folder would pass the test above."""
    assert {path.stem for path in EXAMPLES} >= {"single-worker", "dgl-api", "skip"}
    assert {path.stem for path in UPSTREAM} == {"distributed", "knowledge-graph", "one-process", "proposal"}


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_registry_is_named_that_the_project_does_not_own(path: Path) -> None:
    """Each image of ours stands under one placeholder, which the docs tell to replace."""
    named = re.findall(r"([$\w.:-]+)/dgloperator/", path.read_text())

    assert set(named) <= {generate.REGISTRY, "$REGISTRY"}
    assert f"{generate.REGISTRY}/dgloperator" == images.REGISTRY


def test_the_job_of_another_program_is_partitioned_by_dgl() -> None:
    """DGL-KE's YAML has no partitionMode and another command; both are the user's choice."""
    (path,) = [path for path in UPSTREAM if path.stem == "knowledge-graph"]

    job = DGLJob.parse(load(path))

    assert job.spec.partition_mode is Mode.DGL_API
    assert job.spec.dgl_replica_specs.launcher.main["command"] == ["dglkerun"]
