"""The example's training on a small graph: it learns, and it says what is true."""

import hashlib
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from debian_graph import make
from tests.unit.examples.index import half_nameless, many

pytestmark = pytest.mark.dgl

FINAL = re.compile(r"^Test accuracy: (\d\.\d{4}) \(majority class (\d\.\d{4})\)$", re.MULTILINE)
RANK = re.compile(r"^rank 0 of 1: part 0, (\d+) training nodes, parameters ([0-9a-f]{64})$", re.MULTILINE)

VARIANTS = pytest.mark.parametrize("variant", ["homogeneous", "heterogeneous"])


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph of 800 packages in two sections, as the image's build would make it."""
    folder = tmp_path_factory.mktemp("dataset") / "debian-graph"
    make(many(400).encode(), folder)
    return folder


@pytest.fixture
def th() -> Any:
    """torch, only where tests that need it run."""
    return importlib.import_module("torch")


@pytest.fixture
def sage() -> Any:
    """The example's module of that name."""
    return importlib.import_module("sage")


def run(script: Path, argv: Sequence[str], output: Path) -> str:
    """The script's output; it must end with 0."""
    env = {**os.environ, "DGLBACKEND": "pytorch", "DGL_OUTPUT_DIR": str(output), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(script), *argv]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def judged(output: str) -> tuple[float, float]:
    found = FINAL.search(output)
    assert found, output
    return float(found[1]), float(found[2])


@VARIANTS
def test_one_process_learns_and_leaves_its_model(
    dataset: Path, example_code: Path, tmp_path: Path, variant: str
) -> None:
    """Accuracy is far above the majority class; model and metrics are in DGL_OUTPUT_DIR."""
    argv = ["--dataset_url", str(dataset), "--num_epochs", "3", "--variant", variant]
    out = run(example_code / "train.py", argv, tmp_path)

    accuracy, majority = judged(out)
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert accuracy > majority + 0.2
    assert metrics["test_accuracy"] == pytest.approx(accuracy, abs=1e-4)
    assert (tmp_path / "model.pt").stat().st_size > 1000


def test_relations_tell_what_features_cannot(example_code: Path, tmp_path: Path) -> None:
    """Half of the packages have names that say nothing: with --no_edges they can only be guessed."""
    make(half_nameless(300).encode(), tmp_path / "data")
    flags = ["--dataset_url", str(tmp_path / "data"), "--num_epochs", "5", "--batch_size", "50"]

    with_edges, _ = judged(run(example_code / "train.py", flags, tmp_path))
    without, _ = judged(run(example_code / "train.py", [*flags, "--no_edges"], tmp_path))

    assert with_edges > without + 0.1


@VARIANTS
def test_a_partition_of_one_part_trains_the_same(
    dataset: Path, example_code: Path, tmp_path: Path, variant: str
) -> None:
    """The 2021 flags make `<graph>.json`; the distributed script trains on it and tells rank, part, hash."""
    run(
        example_code / "load_and_partition_graph.py",
        [
            *("--graph_name", "debian", "--workspace", str(tmp_path), "--rel_data_path", "dataset"),
            *(
                "--variant",
                variant,
                "--num_parts",
                "1",
                "--dataset_url",
                str(dataset),
                "--balance_train",
                "--balance_edges",
            ),
        ],
        tmp_path,
    )

    config = str(tmp_path / "dataset" / "debian.json")
    argv = ["--part_config", config, "--num_epochs", "3", "--num_workers", "0"]
    out = run(example_code / "train_dist.py", argv, tmp_path)

    accuracy, majority = judged(out)
    told = RANK.search(out)
    assert told
    assert accuracy > majority + 0.2
    assert int(told[1]) > 400
    assert json.loads((tmp_path / "metrics.json").read_text())["parameters"] == told[2]


def test_the_digest_is_of_the_parameters(th: Any, sage: Any) -> None:
    """One changed number changes it; asking twice does not."""
    th.manual_seed(0)
    model = sage.Sage((4, 3, 2), 0.0)
    before = sage.digest(model)
    again = sage.digest(model)
    with th.no_grad():
        next(model.parameters()).view(-1)[0] += 1e-6

    assert before == again
    assert len(bytes.fromhex(before)) == hashlib.sha256().digest_size
    assert sage.digest(model) != before


def test_the_majority_is_learnt_from_the_training_nodes(th: Any, sage: Any) -> None:
    """The most frequent class is that of the training nodes, judged on the test nodes."""
    labels = th.tensor([0, 0, 1, 1, 1, 0])
    train = th.tensor([1, 1, 1, 0, 0, 0])
    test = th.tensor([0, 0, 0, 1, 1, 1])

    assert sage.majority_accuracy(labels, train, test) == pytest.approx(1 / 3)
