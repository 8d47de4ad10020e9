"""`make local` trains the example to its accuracy, on the machine that the tests run on."""

import os
import re
import subprocess

import pytest

from tests.e2e.accuracy import ABOVE_MAJORITY, FINAL
from tests.e2e.local import ROOT

pytestmark = pytest.mark.e2e

LIGHT = os.environ.get("DGL_OPERATOR_LIGHT") == "1"


@pytest.mark.skipif(LIGHT, reason="DGL_OPERATOR_LIGHT=1: this machine only drives a cluster")
def test_the_example_is_trained_without_kubernetes() -> None:
    """Two workers in namespaces, the same job as in the cluster, as good as there."""
    done = subprocess.run(
        ["make", "local"], cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    found = FINAL.search(done.stdout)
    assert found
    assert float(found[1]) >= float(found[2]) + ABOVE_MAJORITY
    assert re.search(r"output, \d+ files: .*/build/local/dgl-api/output$", done.stdout, re.M)
