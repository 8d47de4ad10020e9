"""The commands of the tutorial, as they stand there, with a kubectl that only writes down what it gets."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.domain import validate
from tests.e2e import demo
from tests.support.job_cases import ROOT

PAGE = (ROOT / "docs/tutorial/first-job.md").read_text()
NAMESPACE = "dgl-tutorial"
KUBECTL = r"""#!/bin/sh
printf '%s\n' "$*" >> "$RECORD/calls"
for last; do :; done
[ "$1" = apply ] || exit 0
{ cat -- "$last"; echo ---; } >> "$RECORD/applied"
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which all commands of the tutorial were run, with what kubectl was given."""
    here = tmp_path_factory.mktemp("tutorial")
    (here / "manifests").symlink_to(ROOT / "manifests")
    (here / "bin").mkdir()
    (here / "bin" / "kubectl").write_text(KUBECTL)
    (here / "bin" / "kubectl").chmod(0o755)
    commands = "".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    path = f"{here / 'bin'}{os.pathsep}{os.environ['PATH']}"
    argv = ["sh", "-eu", "-c", commands]
    subprocess.run(argv, cwd=here, env={"PATH": path, "RECORD": str(here)}, check=True, timeout=120)
    return here


def applied(run: Path) -> list[dict[str, Any]]:
    """The objects that were applied, in their order, as the API server would hand them to the operator."""
    bodies = [body for body in yaml.safe_load_all((run / "applied").read_text()) if body]
    return [{**body, "metadata": {**body["metadata"], "namespace": NAMESPACE, "uid": "u"}} for body in bodies]


def calls(run: Path) -> list[str]:
    """The arguments of kubectl, call by call."""
    return (run / "calls").read_text().splitlines()


def test_its_job_is_an_example_under_a_name_of_its_own(run: Path) -> None:
    """So that it meets neither the demo's job nor the one of the README."""
    first, broken = applied(run)

    assert [body["metadata"]["name"] for body in (first, broken)] == ["first-job", "broken-job"]
    assert not validate.problems(DGLJob.parse(first))


def test_its_broken_job_fails_as_the_page_shows(run: Path) -> None:
    """The message on the page is that of this version."""
    problems = validate.problems(DGLJob.parse(applied(run)[1]))

    assert f"Failed: InvalidSpec: {'; '.join(problems)}\n" in PAGE


def test_it_stays_in_its_own_namespace_and_cleans_up(run: Path) -> None:
    """Nothing is left on the cluster or in the checkout."""
    elsewhere = [call for call in calls(run) if f"-n {NAMESPACE}" not in call]

    assert elsewhere == [
        "get crd dgljobs.qihoo.net",
        f"create namespace {NAMESPACE}",
        f"delete namespace {NAMESPACE}",
    ]
    assert not (run / "first-job.yaml").exists()
    assert NAMESPACE != demo.NAMESPACE
