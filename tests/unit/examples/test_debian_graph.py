"""The dataset: nodes, relations, labels, masks and features in DGL's Chunked Graph Format."""

import gzip
import json
import lzma
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chunked_graph
from debian_graph import heterogeneous, homogeneous, label, make, resolve
from debian_index import read_index
from dglrun.formats.chunked.check import check_counts, check_ids
from dglrun.formats.chunked.metadata import ChunkedGraph
from tests.unit.examples.index import SMALL, many

# Packages by number, as they are sorted: 0 green-doc, 1 green-tools, 2 libgreen1, 3 otherbox, 4 postbox,
# 5 python3.
DEPENDS = [[1, 2], [1, 3], [1, 4], [1, 5]]


@pytest.fixture
def packages() -> Any:
    return read_index(SMALL.splitlines())


def test_virtual_packages_stand_for_their_providers(packages: Any) -> None:
    """mail-agent is provided by two; nowhere by none; nothing relates to itself; each pair once."""
    found = resolve(packages)

    assert {name: pairs.tolist() for name, pairs in found.items()} == {
        "depends": DEPENDS,
        "recommends": [[1, 2]],
        "suggests": [[1, 0]],
        "enhances": [[0, 1]],
    }


def test_small_sections_are_one_class_that_nobody_learns(packages: Any) -> None:
    """Labels are whole, masks leave the small classes out."""
    labelled = label(packages, smallest=2)

    assert labelled.classes == ("mail", "(small sections)")
    assert labelled.labels.tolist() == [1, 1, 1, 0, 0, 1]
    masked = np.sum(list(labelled.masks.values()), axis=0)
    assert masked.tolist() == [0, 0, 0, 1, 1, 0]


def test_the_split_depends_on_the_name_alone() -> None:
    """A package stays in its mask when the index grows, and 60, 10 and 30 % hold roughly."""
    few, more = (read_index(many(count).splitlines()) for count in (300, 600))
    small, large = label(few), label(more)
    number = {package.name: i for i, package in enumerate(more)}
    same = [number[package.name] for package in few]

    for name, mask in small.masks.items():
        assert large.masks[name][same].tolist() == mask.tolist()
    shares = [large.masks[name].mean() for name in ("train_mask", "val_mask", "test_mask")]
    assert shares == pytest.approx([0.6, 0.1, 0.3], abs=0.05)


def test_features_do_not_know_the_section(packages: Any) -> None:
    """The same package in another section has the same features."""
    moved = [replace(package, section="games") for package in packages]

    for variant, ntype in ((homogeneous, "_N"), (heterogeneous, "package")):
        one, other = (variant(p, label(p), resolve(p)).data[ntype] for p in (packages, moved))
        assert np.array_equal(one["features"], other["features"])
        assert one["features"].dtype == np.float32


def test_every_relation_goes_both_ways(packages: Any) -> None:
    """Messages flow from a package to what needs it and back, in both variants."""
    labelled, relations = label(packages), resolve(packages)
    (edges,) = homogeneous(packages, labelled, relations).edges.values()
    typed = heterogeneous(packages, labelled, relations)

    assert {tuple(e) for e in edges.tolist()} == {tuple(e[::-1]) for e in edges.tolist()}
    for forth, back in (
        ("package:depends:package", "package:needed_by:package"),
        ("maintainer:maintains:package", "package:maintained_by:maintainer"),
        ("tag:describes:package", "package:described_by:tag"),
    ):
        assert typed.edges[forth].tolist() == typed.edges[back][:, ::-1].tolist()
    assert typed.edges["package:suggests:package"].tolist() == [[1, 0]]  # enhances is suggests from behind
    assert list(typed.nodes) == sorted(typed.nodes)
    assert typed.nodes == {"maintainer": 4, "package": 6, "tag": 4}


def test_both_variants_are_chunked_graphs(tmp_path: Path) -> None:
    """Our own reader takes them: counts agree with the files, ids are in range, in both dialects."""
    make(many(60).encode(), tmp_path / "data", chunks=3)

    for variant in ("homogeneous", "heterogeneous"):
        graph = ChunkedGraph.load(tmp_path / "data" / variant)
        check_counts(graph)
        check_ids(graph)
        raw = json.loads((tmp_path / "data" / variant / "metadata.json").read_text())
        assert [sum(chunks) for chunks in raw["num_nodes_per_chunk"]] == raw["num_nodes_per_type"]
        assert [sum(chunks) for chunks in raw["num_edges_per_chunk"]] == raw["num_edges_per_type"]


def test_what_is_written_is_read_back(packages: Any, tmp_path: Path) -> None:
    """Edges and every feature, over more chunks than rows."""
    graph = heterogeneous(packages, label(packages), resolve(packages))
    chunked_graph.write(graph, tmp_path / "g", chunks=5)
    again = chunked_graph.read(tmp_path / "g")

    assert again.nodes == graph.nodes
    assert {k: v.tolist() for k, v in again.edges.items()} == {k: v.tolist() for k, v in graph.edges.items()}
    for ntype, data in graph.data.items():
        assert {name: again.data[ntype][name].tolist() for name in data} == {
            name: rows.tolist() for name, rows in data.items()
        }


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress])
def test_the_command_makes_the_same_files_from_the_same_index(
    tmp_path: Path, example_code: Path, pack: Any
) -> None:
    """Reproducible, plain or packed, and the counts are told in about.json."""
    suffix = {bytes: "", gzip.compress: ".gz", lzma.compress: ".xz"}[pack]
    index = tmp_path / f"Packages{suffix}"
    index.write_bytes(pack(SMALL.encode()))

    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        script = str(example_code / "debian_graph.py")
        subprocess.run([sys.executable, script, "--index", str(index), "--out", str(out)], check=True)

    files = [sorted(p.relative_to(out) for p in out.rglob("*") if p.is_file()) for out in outs]
    assert files[0] == files[1]
    assert all((outs[0] / name).read_bytes() == (outs[1] / name).read_bytes() for name in files[0])
    about = json.loads((outs[0] / "about.json").read_text())
    assert (about["packages"], about["relations"]["depends"]) == (6, 4)


def test_a_bad_index_is_one_line_and_leaves_nothing(tmp_path: Path, example_code: Path) -> None:
    """Exit 1 with what is wrong; no half-made folder."""
    index = tmp_path / "Packages"
    index.write_text("<html>not found</html>\n")

    script = str(example_code / "debian_graph.py")
    command = [sys.executable, script, "--index", str(index), "--out", str(tmp_path / "out")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert ended.stderr == (
        f"debian_graph: {index}: paragraph 1: expected a package, "
        "it has no Package and no Section and no Maintainer\n"
    )
    assert not (tmp_path / "out").exists()
