"""bfloat16, which torch has and numpy has not, from DGL's graph to DGL's parts."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dglrun.arrays import BFLOAT16
from dglrun.commands import chunk, partition, report, verify
from dglrun.dispatch.pipeline import dispatch
from dglrun.dispatch.source import Options
from dglrun.errors import DataError
from dglrun.formats.chunked import read
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.support.commands import run_command
from tests.support.needs import NEEDS_MPI
from tests.support.thread_ranks import on_ranks

th = pytest.importorskip("torch")
dgl = pytest.importorskip("dgl")
from dglrun.commands import dgl_api  # noqa: E402 - ours: where it cannot be imported, that is a failure

pytestmark = [
    pytest.mark.dgl,
    # DGL leaves /proc/self/status open.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

NODES = 60


@pytest.fixture
def graph() -> Any:
    """A ring with bfloat16 features, scalars and rows, and a mask."""
    ends = th.arange(NODES)
    found = dgl.graph((ends, (ends + 1) % NODES))
    found.ndata["feat"] = (th.arange(NODES * 3).reshape(NODES, 3) / 7).to(th.bfloat16)
    found.ndata["train_mask"] = (ends % 3 == 0).to(th.bfloat16) * -1
    found.edata["w"] = (ends / 3).to(th.bfloat16)
    return found


def chunked(tmp_path: Path, graph: Any, layout: str = "numpy") -> Path:
    dgl.save_graphs(str(tmp_path / "g.bin"), [graph])
    flags = ("--out-dir", str(tmp_path / "in"), "--name", "g", "--dgl-graph", str(tmp_path / "g.bin"))
    assert run_command(chunk, "chunk", *flags, "--files", "2", "--feature-format", layout) == 0
    return tmp_path / "in"


@pytest.mark.parametrize("layout", ["numpy", "parquet"])
@pytest.mark.parametrize("size", [1, 2])
def test_values_come_through_chunks_and_dispatch(
    tmp_path: Path, graph: Any, layout: str, size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same bits, under their own dtype; verify and report read them as DGL does."""
    source = chunked(tmp_path, graph, layout)
    folders = ("--in-dir", str(source), "--out-dir", str(tmp_path / "assigned"))
    assert run_command(partition, "partition", *folders, "--num-parts", "2", "--backend", "random") == 0
    wanted = Options(
        source, tmp_path / "assigned", tmp_path / "out", save_orig_nids=True, save_orig_eids=True
    )

    on_ranks(size, lambda ranks: dispatch(wanted, ranks, lambda _: None))

    for part in ("part0", "part1"):
        rows = dgl.data.utils.load_tensors(str(tmp_path / "out" / part / "node_feat.dgl"))["_N/feat"]
        nids = dgl.data.utils.load_tensors(str(tmp_path / "out" / part / "orig_nids.dgl"))["_N"]
        assert rows.dtype is th.bfloat16
        assert (rows == graph.ndata["feat"][nids]).all()
    assert run_command(verify, "verify", str(tmp_path / "out/g.json"), "--in-dir", str(source)) == 0
    assert run_command(report, "report", str(tmp_path / "out/g.json")) == 0
    assert "training nodes" in capsys.readouterr().out


def test_a_partition_of_dgls_own_is_verified_and_measured(tmp_path: Path, graph: Any) -> None:
    """DGL loads it, so that it holds; a changed value is found."""
    source = chunked(tmp_path, graph)
    flags = ("--num-parts", "2", "--method", "random")
    assert dgl_api.main(["--in-dir", str(source), "--out-dir", str(tmp_path / "out"), *flags]) == 0
    config, file = str(tmp_path / "out/g.json"), tmp_path / "out/part0/node_feat.dgl"

    assert run_command(verify, "verify", config, "--in-dir", str(source)) == 0
    assert run_command(report, "report", config, "--json", str(tmp_path / "report.json")) == 0
    counts = json.loads((tmp_path / "report.json").read_text())["nodeTypes"]["_N"]["trainNodes"]
    rows = dgl.data.utils.load_tensors(str(file))
    rows["_N/feat"][0, 0] += 1
    dgl.data.utils.save_tensors(str(file), rows)
    assert run_command(verify, "verify", config, "--in-dir", str(source)) == 65
    assert sum(counts) == NODES // 3


def test_the_metadata_names_the_dtype_of_the_bytes(tmp_path: Path, graph: Any) -> None:
    """The files hold uint16, which any numpy reads; another dtype under that name is refused."""
    source = chunked(tmp_path, graph)
    spec = ChunkedGraph.load(source).node_data["_N"]["feat"]

    path = str(spec.paths[0])
    assert (spec.dtype, np.load(path).dtype) == ("bfloat16", np.uint16)
    assert read.feature_info(spec) == (BFLOAT16, (3,))
    np.save(path, np.zeros((NODES // 2, 3), np.float32))
    with pytest.raises(DataError, match="expected bfloat16 as uint16 values, got float32"):
        read.feature_info(spec)


@pytest.mark.mpi
@NEEDS_MPI
def test_mpi_ranks_carry_it(tmp_path: Path, graph: Any) -> None:
    """The buffers of MPI take the bytes as they are."""
    source = chunked(tmp_path, graph)
    folders = ("--in-dir", str(source), "--out-dir", str(tmp_path / "assigned"))
    assert run_command(partition, "partition", *folders, "--num-parts", "2", "--backend", "random") == 0
    flags = ("--in-dir", str(source), "--partitions-dir", str(tmp_path / "assigned"))
    command = (sys.executable, "-m", "dglrun", "dispatch", *flags, "--ranks", "2")

    subprocess.run((*command, "--out-dir", str(tmp_path / "out")), check=True, timeout=120, cwd=Path.cwd())

    assigned = ("--in-dir", str(source), "--partitions-dir", str(tmp_path / "assigned"))
    assert run_command(verify, "verify", str(tmp_path / "out/g.json"), *assigned) == 0
