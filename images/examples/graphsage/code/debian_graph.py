"""Make the Debian package graph from a package index: which section does a package belong to?

Nodes are the binary packages of a release, edges its relations, labels its sections, features come from
names, maintainers and tags. Nothing in the features tells the section itself. The same index gives the
same files. Two variants are written in DGL's Chunked Graph Format: `homogeneous` (package to package, both
directions) and `heterogeneous` (package, maintainer, tag; a relation type for each kind and direction).

    debian_graph.py --index Packages --out debian-graph
"""

import argparse
import gzip
import hashlib
import io
import json
import lzma
import sys
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import chunked_graph
from chunked_graph import Array, Graph
from debian_features import buckets, hashed, words
from debian_index import RELATIONS, BadIndex, Package, read_index

NAME = "debian"
SMALLEST_CLASS = 100
"""Sections with fewer packages are one class, which no mask contains."""
SMALL = "(small sections)"

NAME_WIDTH, MAINTAINER_WIDTH, TAG_WIDTH = 32, 16, 16

Ends = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """Sections as classes, and who learns from whom.

    Attributes:
        classes: Class number to section.
        labels: int64 of shape (packages,).
        masks: `train_mask`, `val_mask`, `test_mask`: uint8 of shape (packages,); 60, 10 and 30 %.
    """

    classes: tuple[str, ...]
    labels: Array
    masks: dict[str, Array]


def label(packages: Sequence[Package], smallest: int = SMALLEST_CLASS) -> Labels:
    """Number the sections and split the packages by a hash of their names."""
    counted = Counter(package.section for package in packages)
    classes = (*sorted(section for section, count in counted.items() if count >= smallest), SMALL)
    number = {section: i for i, section in enumerate(classes)}
    labels = np.array([number.get(package.section, len(classes) - 1) for package in packages], np.int64)
    bucket = buckets((package.name for package in packages), 100)
    counts = labels < len(classes) - 1
    return Labels(
        classes=classes,
        labels=labels,
        masks={
            "train_mask": (counts & (bucket < 60)).astype(np.uint8),
            "val_mask": (counts & (bucket >= 60) & (bucket < 70)).astype(np.uint8),
            "test_mask": (counts & (bucket >= 70)).astype(np.uint8),
        },
    )


def resolve(packages: Sequence[Package]) -> dict[str, Ends]:
    """Find the packages that the relations mean.

    A name that no package has stands for all that provide it; one that nobody provides drops out, and so
    does a package's relation to itself.

    Returns:
        Relation to int64 of shape (n, 2), sorted, each pair once: the package that has the field, and
        the one that it names.
    """
    number = {package.name: i for i, package in enumerate(packages)}
    providers: dict[str, list[int]] = defaultdict(list)
    for i, package in enumerate(packages):
        for virtual in package.provides:
            providers[virtual].append(i)

    def meant(name: str) -> Iterable[int]:
        return (number[name],) if name in number else providers.get(name, ())

    found: dict[str, Ends] = {}
    for relation in RELATIONS:
        pairs = (
            (i, j)
            for i, package in enumerate(packages)
            for name in package.relations.get(relation, ())
            for j in meant(name)
            if i != j
        )
        found[relation] = _unique(pairs)
    return found


def homogeneous(packages: Sequence[Package], labelled: Labels, relations: dict[str, Ends]) -> Graph:
    """All relations as one edge type, each in both directions, so that messages flow both ways."""
    pairs = np.concatenate(list(relations.values()))
    features = np.concatenate(
        [
            hashed([words(package.name) for package in packages], NAME_WIDTH, "name"),
            hashed([[package.maintainer] for package in packages], MAINTAINER_WIDTH, "maintainer"),
            hashed([package.tags for package in packages], TAG_WIDTH, "tag"),
        ],
        axis=1,
    )
    return Graph(
        name=NAME,
        nodes={"_N": len(packages)},
        edges={"_N:_E:_N": np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)},
        data={"_N": {"features": features, "labels": labelled.labels, **labelled.masks}},
    )


def heterogeneous(packages: Sequence[Package], labelled: Labels, relations: dict[str, Ends]) -> Graph:
    """Packages, maintainers and tags; what the homogeneous variant hashes into features are edges here."""
    maintainers = sorted({package.maintainer for package in packages})
    tags = sorted({tag for package in packages for tag in package.tags})
    # "A enhances B" is how A's maintainer says "B suggests A" (Debian policy 7.2).
    suggests = np.unique(np.concatenate([relations["suggests"], relations["enhances"][:, ::-1]]), axis=0)
    maintains = _memberships([[package.maintainer] for package in packages], maintainers)
    describes = _memberships([package.tags for package in packages], tags)
    edges = {
        "package:depends:package": relations["depends"],
        "package:needed_by:package": relations["depends"][:, ::-1],
        "package:recommends:package": relations["recommends"],
        "package:recommended_by:package": relations["recommends"][:, ::-1],
        "package:suggests:package": suggests,
        "package:suggested_by:package": suggests[:, ::-1],
        "maintainer:maintains:package": maintains,
        "package:maintained_by:maintainer": maintains[:, ::-1],
        "tag:describes:package": describes,
        "package:described_by:tag": describes[:, ::-1],
    }
    data = {
        "maintainer": {"features": hashed([words(name) for name in maintainers], NAME_WIDTH, "name")},
        "package": {
            "features": hashed([words(package.name) for package in packages], NAME_WIDTH, "name"),
            "labels": labelled.labels,
            **labelled.masks,
        },
        "tag": {"features": hashed([words(tag) for tag in tags], NAME_WIDTH, "name")},
    }
    # Sorted by name, as dgl.heterograph numbers types, so that all partition modes number them alike.
    return Graph(
        name=NAME,
        nodes={"maintainer": len(maintainers), "package": len(packages), "tag": len(tags)},
        edges={name: edges[name] for name in sorted(edges, key=lambda name: tuple(name.split(":")))},
        data=data,
    )


def make(index: bytes, out: Path, chunks: int = 4) -> dict[str, object]:
    """Write both variants and what is to be known of them.

    Args:
        index: A package index.
        out: Folder to make; `homogeneous/`, `heterogeneous/`, `about.json` and `packages.txt` (line i
            names node i) are in it.
        chunks: Number of files that each array is split into.

    Returns:
        What about.json holds.

    Raises:
        BadIndex: the index is none.
    """
    packages = read_index(io.StringIO(index.decode()))
    labelled, relations = label(packages), resolve(packages)
    out.mkdir(parents=True)
    for variant in (homogeneous, heterogeneous):
        chunked_graph.write(variant(packages, labelled, relations), out / variant.__name__, chunks)
    (out / "packages.txt").write_text("".join(f"{package.name}\n" for package in packages))
    about = _about(index, packages, labelled, relations)
    (out / "about.json").write_text(json.dumps(about, indent=1) + "\n")
    return about


def read_source(source: str) -> bytes:
    """Read an index from a path, an http(s) address or `-` (stdin); .gz and .xz are unpacked."""
    if source == "-":
        return sys.stdin.buffer.read()
    if source.startswith(("http://", "https://")):
        with urllib.request.urlopen(source, timeout=60) as answer:  # noqa: S310 - scheme checked above
            content: bytes = answer.read()
    else:
        content = Path(source).read_bytes()
    if source.endswith(".gz"):
        return gzip.decompress(content)
    return lzma.decompress(content) if source.endswith(".xz") else content


def _unique(pairs: Iterable[tuple[int, int]]) -> Ends:
    return np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)


def _memberships(groups: Sequence[Iterable[str]], names: Sequence[str]) -> Ends:
    """Pairs (group's number, package), sorted by package."""
    number = {name: i for i, name in enumerate(names)}
    pairs = [(number[name], package) for package, of in enumerate(groups) for name in of]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _about(
    index: bytes, packages: Sequence[Package], labelled: Labels, relations: dict[str, Ends]
) -> dict[str, object]:
    test = labelled.labels[labelled.masks["test_mask"] == 1]
    return {
        "index_sha256": hashlib.sha256(index).hexdigest(),
        "packages": len(packages),
        "relations": {name: len(pairs) for name, pairs in relations.items()},
        "classes": list(labelled.classes),
        "nodes_in": {name: int(mask.sum()) for name, mask in labelled.masks.items()},
        "majority_of_test": round(float(np.bincount(test).max() / len(test)), 4) if len(test) else None,
    }


def main() -> None:
    """Read the command line and write the dataset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--index", required=True, help="path or http(s) address of a Packages file, - for stdin"
    )
    parser.add_argument("--out", required=True, type=Path, help="folder to make")
    parser.add_argument("--chunks", type=int, default=4, help="files for each array")
    arguments = parser.parse_args()
    try:
        about = make(read_source(arguments.index), arguments.out, arguments.chunks)
    except (BadIndex, FileExistsError) as error:
        sys.exit(f"debian_graph: {arguments.index}: {error}")
    print(json.dumps(about))


if __name__ == "__main__":
    main()
