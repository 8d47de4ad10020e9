"""The example goes on where it was, with all that it learns."""

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from debian_graph import make
from tests.unit.examples.index import many

pytestmark = pytest.mark.dgl

PARAMETERS = re.compile(r"parameters ([0-9a-f]{64})$", re.MULTILINE)
EPOCH = re.compile(r"^rank 0, epoch (\d+): loss", re.MULTILINE)


def run(script: Path, argv: Sequence[str], folder: Path) -> str:
    """The script's output with a folder for checkpoints; it must end with 0."""
    places = {"DGL_OUTPUT_DIR": str(folder), "DGL_CHECKPOINT_DIR": str(folder / "rank-0")}
    env = {**os.environ, **places, "DGLBACKEND": "pytorch", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(script), *argv]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory, example_code: Path) -> str:
    """A partition of one part of a graph of 400 packages."""
    folder = tmp_path_factory.mktemp("partition")
    make(many(200).encode(), folder / "data")
    argv = ["--graph_name", "debian", "--workspace", str(folder), "--rel_data_path", "dataset"]
    argv += ["--num_parts", "1", "--dataset_url", str(folder / "data")]
    run(example_code / "load_and_partition_graph.py", argv, folder)
    return str(folder / "dataset/debian.json")


def test_a_training_goes_on_after_its_last_epoch(config: str, example_code: Path, tmp_path: Path) -> None:
    """Neither the first epochs nor their parameters are learnt again; two checkpoints stay."""
    flags = ["--part_config", config, "--batch_size", "50", "--num_epochs"]

    first = run(example_code / "train_dist.py", [*flags, "2"], tmp_path)
    same = run(example_code / "train_dist.py", [*flags, "2"], tmp_path)
    more = run(example_code / "train_dist.py", [*flags, "4"], tmp_path)

    assert EPOCH.findall(first) == ["0", "1"]
    assert EPOCH.findall(same) == []
    assert PARAMETERS.findall(same) == PARAMETERS.findall(first)
    assert EPOCH.findall(more) == ["2", "3"]
    assert "goes on after epoch 1" in more
    assert sorted(path.name for path in (tmp_path / "rank-0").iterdir()) == ["epoch-3.pt", "epoch-4.pt"]


def test_embeddings_and_their_optimizer_go_on(config: str, example_code: Path, tmp_path: Path) -> None:
    """A row without a gradient in the second epoch is the one that was saved, and so is its Adagrad state."""
    th, checkpoints = importlib.import_module("torch"), importlib.import_module("checkpoints")
    flags = ["--part_config", config, "--batch_size", "20", "--fan_out", "1,1", "--embedding_size", "4"]

    run(example_code / "train_dist.py", [*flags, "--num_epochs", "1"], tmp_path)
    before = checkpoints.load(tmp_path / "rank-0", 1)["embeddings"]
    run(example_code / "train_dist.py", [*flags, "--num_epochs", "2"], tmp_path)
    after = checkpoints.load(tmp_path / "rank-0", 2)["embeddings"]

    old, new = (sums(state) for state in (before, after))
    is_untouched = (new == old).all(1) & (old > 0).all(1)
    assert int(is_untouched.sum()) > 0
    assert th.equal(after["rows"][is_untouched], before["rows"][is_untouched])
    assert not th.equal(after["rows"], before["rows"])


def sums(state: dict[str, Any]) -> Any:
    """What the optimizer keeps for each row."""
    (found,) = state["optimizer"]["emb_states"]["learnt"]["states"].values()
    return found


@settings(max_examples=30, deadline=None)
@given(own=st.lists(st.sets(st.integers(1, 6)), min_size=1, max_size=4))
def test_all_ranks_go_on_from_the_newest_that_all_have(own: list[set[int]]) -> None:
    """Whatever each of them has."""
    newest_of_all = importlib.import_module("checkpoints").newest_of_all
    told: list[int] = [0] * len(own)
    barrier = threading.Barrier(len(own))

    def least_of(rank: int) -> Any:
        def least(number: int) -> int:
            told[rank] = number
            barrier.wait(20)
            found = min(told)
            barrier.wait(20)
            return found

        return least

    with ThreadPoolExecutor(len(own)) as pool:
        found = list(pool.map(lambda rank: newest_of_all(own[rank], least_of(rank)), range(len(own))))

    assert found == [max(set.intersection(*own), default=0)] * len(own)
