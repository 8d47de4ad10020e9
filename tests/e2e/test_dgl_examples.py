"""DGL's own distributed examples run unmodified as --train-entry-point.

They are not committed: DGL_EXAMPLE names the file (v1.1.3's examples/pytorch/graphsage/dist/train_dist.py),
its hash pins the version. Without it the test says so and is skipped by name.
"""

import hashlib
import os
import re
from pathlib import Path

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import example, main_container, set_flag
from tests.e2e.kubectl import Kubectl

pytestmark = pytest.mark.e2e

SHA256 = "7c000f9ca323bb00251f246494c52c90843929fe2dedfb10a147799b577a7927"


def test_train_dist_of_dgl_1_1_3_runs_unmodified(kubectl: Kubectl, submit: Submit) -> None:
    """Users change no code: the script of DGL's repository trains on the Debian package graph."""
    if not (path := os.environ.get("DGL_EXAMPLE")):
        pytest.skip("DGL_EXAMPLE names no train_dist.py of DGL v1.1.3 (not committed, pinned by hash)")
    text = Path(path).read_text()
    assert hashlib.sha256(text.encode()).hexdigest() == SHA256, f"{path} is not v1.1.3's train_dist.py"
    kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "dgl"},
            "data": {"train_dist.py": text},
        }
    )
    body = example("dgl-api", "unmodified", extra_args=("--", "--eval_every", "3", "--num_hidden", "64"))
    for role in ("Launcher", "Worker"):
        spec = body["spec"]["dglReplicaSpecs"][role]["template"]["spec"]
        spec.setdefault("volumes", []).append({"name": "dgl", "configMap": {"name": "dgl"}})
        main_container(body, role).setdefault("volumeMounts", []).append({"name": "dgl", "mountPath": "/dgl"})
    set_flag(body, "--train-entry-point", "/dgl/train_dist.py")
    set_flag(body, "--num-epochs", "3")
    job = submit(body)

    job.wait_phase("Completed", seconds=600)

    log = job.kubectl.logs(job.launcher)
    found = re.findall(r"Val Acc (\d\.\d+), Test Acc (\d\.\d+)", log)
    assert len(found) == 2, log[-3000:]
    assert all(float(test) > 0.2 for _val, test in found)
