"""From csv tables with string IDs to predictions under these IDs: the example of docs/howto/tables.md."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Submit
from tests.e2e.jobs import EXAMPLES, example
from tests.e2e.kubectl import Kubectl, Object
from tests.e2e.local import environment
from tests.e2e.node_folder import NodeFolder

pytestmark = pytest.mark.e2e

LIGHT = os.environ.get("DGL_OPERATOR_LIGHT") == "1"
CODE = EXAMPLES / "shop"
RIGHT = 0.7
"""Of the items at least; one in three would be right by chance, and so with classes of other items' IDs."""


def rows(text: str) -> dict[str, str]:
    """SKU to class, of a csv with a header."""
    found = [
        (row["sku" if "sku" in row else "id"], row["class"]) for row in csv.DictReader(text.splitlines())
    ]
    assert len(dict(found)) == len(found), "an SKU stands there twice"
    return dict(found)


def are_predicted(predicted: dict[str, str], known: dict[str, str]) -> None:
    """Each item has a class, mostly its own, and there are no others."""
    assert predicted.keys() == known.keys()
    right = sum(predicted[sku] == known[sku] for sku in known)
    assert right >= RIGHT * len(known)


@pytest.mark.skipif(LIGHT, reason="DGL_OPERATOR_LIGHT=1: this machine only drives a cluster")
@pytest.mark.skipif(os.geteuid() != 0, reason="two workers on one machine: needs root")
def test_predictions_of_a_local_run_have_the_ids_of_the_tables(tmp_path: Path) -> None:
    """The command line of docs/howto/tables.md; the truth is in a table that the job has not read."""
    shop = tmp_path / "shop"
    shop.mkdir()
    volumes = ("--volume", f"shop={shop}", "--volume", f"code={CODE}")
    argv = (sys.executable, "-m", "dglrun", "local", str(EXAMPLES / "shop.yaml"), *volumes)

    done = subprocess.run(
        argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=240, check=False
    )

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
    output = tmp_path / "dgl-local" / "shop" / "output"
    parts = [output / "items.csv", output / "shop-worker-1" / "items.csv"]
    predicted = [rows(path.read_text()) for path in parts]
    assert all(predicted), "each worker predicts for its part"
    are_predicted(predicted[0] | predicted[1], rows((shop / "classes.csv").read_text()))
    assert len(predicted[0]) + len(predicted[1]) == len(predicted[0] | predicted[1])


def on_a_folder(folder: NodeFolder) -> Object:
    """The example with a folder of the node for its claim; the launcher's output goes there, too."""
    body = example("shop", extra_args=("--output=/shop/output",))
    roles = body["spec"]["dglReplicaSpecs"]
    launcher, worker = (roles[role]["template"]["spec"] for role in ("Launcher", "Worker"))
    volume = {"name": "shop", **folder.source}
    worker["volumes"] = [*(each for each in worker["volumes"] if each["name"] != "shop"), volume]
    launcher["volumes"].append(volume)
    launcher["containers"][0]["volumeMounts"].append({"name": "shop", "mountPath": "/shop"})
    return body


def test_predictions_of_a_job_have_the_ids_of_the_tables(
    kubectl: Kubectl, submit: Submit, volume: NodeFolder
) -> None:
    """Tables, chunked graph and the uploaded output lie on a volume, as a user would have them."""
    kubectl.run("create", "configmap", "shop-code", f"--from-file={CODE}")
    job = submit(on_a_folder(volume))

    job.wait_phase("Completed")

    assert "output/dglrun-output.json" in volume.find("-path", "*/output/*.json")
    predicted = [rows(volume.read(name)) for name in volume.find("-path", "*/output/*", "-name", "items.csv")]
    assert len(predicted) == 2
    are_predicted(predicted[0] | predicted[1], rows(volume.read("classes.csv")))
