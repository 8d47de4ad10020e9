"""The report's numbers against counting by hand, and its table, JSON and charts."""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from dgl_operator.api.v1alpha1 import PartitionStatus
from dglrun.arrays import imbalance
from dglrun.commands import report
from dglrun.formats.dgl.folder import load_folder
from dglrun.report import charts, table
from dglrun.report.measure import measure, status
from tests.support.commands import run_command
from tests.support.heterographs import Toy, a_toy, naive, toys
from tests.unit.dglrun.verify.test_verify import API_MADE, a_partition


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(toy=toys())
def test_every_count_is_that_of_the_reference(toy: Toy) -> None:
    """Cut by edge type, halo by node type and training nodes, for any heterograph."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure(load_folder(a_partition(Path(folder), toy)))

    for number, part in enumerate(naive(toy)):
        crossing = [
            kind for kind, (src, _) in zip(part.edge_types, part.edges, strict=True) if src >= part.inner
        ]
        assert found.cut[number].tolist() == [crossing.count(at) for at in range(len(toy.edges))]
        halo = part.node_types[part.inner :]
        assert found.halo[number].tolist() == [halo.count(at) for at in range(len(toy.nodes))]
        assert found.train is not None
        masks = [toy.node_data[name]["train_mask"][part.orig_nids[name]] for name in toy.nodes]
        assert found.train[number].tolist() == [int(mask.sum()) for mask in masks]


def two_halves() -> Toy:
    """Four nodes in two parts: three edges inside, one across."""
    pairs = np.array([[0, 1], [1, 0], [2, 3], [1, 2]])
    mask = {"n": {"train_mask": np.array([True, True, True, False])}}
    return Toy({"n": 4}, {"n:e:n": pairs}, {"n": np.array([0, 0, 1, 1])}, 2, mask)


def test_the_status_has_the_api_s_names_and_forms(tmp_path: Path) -> None:
    """What goes into the report ConfigMap is what the operator's model reads."""
    found = status(measure(load_folder(a_partition(tmp_path, two_halves()))))

    assert PartitionStatus.model_validate(found) == PartitionStatus(
        method="random",
        num_parts=2,
        num_nodes=4,
        num_edges=4,
        edge_cut="25.0%",
        node_balance="1.00",
        edge_balance="1.00",
        train_node_balance="1.33",
        halo_share="20.0%",
    )
    assert found["nodeTypes"]["n"]["halo"] == [0, 1]
    assert found["edgeTypes"]["n:e:n"]["cut"] == [0, 1]


def test_the_table_names_parts_and_types(tmp_path: Path) -> None:
    """Numbers stand in columns under their names."""
    text = table.render(measure(load_folder(a_partition(tmp_path, two_halves()))))

    assert text == (
        "toy: 2 parts by random, 4 nodes, 4 edges\n"
        "edge cut 25.0%  halo share 20.0%\n"
        "balance (largest part / mean): nodes 1.00, edges 1.00, training nodes 1.33\n"
        "\n"
        "part  nodes  edges  cut  halo  training\n"
        "0         2      2    0     0         2\n"
        "1         2      2    1     1         1\n"
        "\n"
        "type   count  balance    cut  halo\n"
        "n          4     1.00            1\n"
        "n:e:n      4     1.00  25.0%\n"
    )


def test_the_command_writes_json_and_page(tmp_path: Path) -> None:
    """The page refers to nothing outside itself and has a bar for each part and count."""
    json_path = a_partition(tmp_path, a_toy(parts=3))
    outputs = ("--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"))

    assert run_command(report, "report", str(json_path), *outputs) == 0

    assert json.loads((tmp_path / "r.json").read_text()) == status(measure(load_folder(json_path)))
    page = (tmp_path / "r.html").read_text()
    assert not re.search(r"(src|href|url)\s*[=(]", page)
    assert page.count("<svg") == 5
    assert len(re.findall(r">part \d<", page)) == 5 * 3


def test_the_picture_is_a_png(tmp_path: Path) -> None:
    """Where matplotlib is installed."""
    pytest.importorskip("matplotlib")
    json_path = a_partition(tmp_path)

    charts.write_png(measure(load_folder(json_path)), tmp_path / "r.png")

    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_names_are_escaped_in_the_page(tmp_path: Path) -> None:
    """A type's name is text, not markup."""
    toy = Toy({"<b>": 2}, {"<b>:&:<b>": np.array([[0, 1]])}, {"<b>": np.array([0, 0])}, 1)

    charts.write_html(measure(load_folder(a_partition(tmp_path, toy))), tmp_path / "r.html")

    assert "<b>" not in (tmp_path / "r.html").read_text()


def test_a_folder_that_is_none_is_65(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line says which file is missing."""
    assert run_command(report, "report", str(tmp_path / "g.json")) == 65
    assert (
        "g.json: expected the partition's JSON (<graph name>.json), found none: No such file"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("loads", "wanted"), [([2, 2], 1.0), ([4, 0], 2.0), ([0, 0], 1.0), ([3, 2, 1], 1.5)])
def test_balance_is_the_largest_over_the_mean(loads: list[int], wanted: float) -> None:
    """Nothing at all is balanced."""
    assert imbalance(np.array(loads)) == wanted


@pytest.mark.dgl
def test_folders_of_dgls_api_are_reported(tmp_path: Path) -> None:
    """Halo edges, which only the API writes, count for nobody."""
    argv = (sys.executable, "-c", API_MADE, str(tmp_path), "random", "coo")
    subprocess.run(argv, check=True, timeout=120, capture_output=True)

    found = measure(load_folder(tmp_path / "toy.json"))

    inner = found.folder.edges.counts
    assert inner.sum() == 599
    assert (found.cut <= inner).all()
    assert 300 < found.cut.sum() < 500
    assert status(found)["method"] == "random"


def test_an_unknown_mask_is_refused_with_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelt --train-mask dropped the column without a word."""
    json_path = a_partition(tmp_path, two_halves())

    code = run_command(
        report, "report", str(json_path), "--train-mask", "trian_mask", "--json", str(tmp_path / "r")
    )

    said = capsys.readouterr().err
    assert code == 2
    assert "got 'trian_mask': did you mean train_mask? (there are: train_mask)" in said
    assert not (tmp_path / "r").exists()
