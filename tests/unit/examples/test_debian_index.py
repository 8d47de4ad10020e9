"""The package index is read as Debian's policy writes it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from debian_index import BadIndex, Package, read_index, related
from tests.unit.examples.index import SMALL


def test_each_paragraph_is_a_package() -> None:
    """Sections without their area, maintainers without their mail, folded tags, sorted by name."""
    packages = {package.name: package for package in read_index(SMALL.splitlines())}

    assert list(packages) == sorted(packages)
    assert packages["libgreen1"] == Package(
        "libgreen1", "libs", "Ada Lovelace", provides=("libgreen", "libcolour")
    )
    assert packages["green-doc"].maintainer == "Grace Hopper, PhD"
    assert packages["green-tools"].section == "utils"
    assert packages["green-tools"].tags == ("implemented-in::c", "interface::commandline", "role::program")


def test_relations_keep_alternatives_and_drop_the_rest() -> None:
    """Pre-Depends counts as depends; versions, architectures and qualifiers drop out; each name once."""
    tools = next(p for p in read_index(SMALL.splitlines()) if p.name == "green-tools")

    assert tools.relations == {
        "depends": ("libgreen1", "python3", "mail-agent", "postbox", "nowhere"),
        "recommends": ("libcolour",),
        "suggests": ("green-doc", "green-tools"),
    }


def test_the_order_of_the_index_does_not_matter() -> None:
    """Mirrors may sort differently; node numbers stay."""
    turned = "\n\n".join(reversed(SMALL.strip().split("\n\n")))

    assert read_index(turned.splitlines()) == read_index(SMALL.splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no paragraph"),
        ("<html>\n<body>404</body>\n", "paragraph 1: .* no Package and no Section and no Maintainer"),
        (SMALL + "\nPackage: x\nSection: libs\n", "paragraph 7: .* no Maintainer"),
    ],
)
def test_what_is_no_index_is_refused(text: str, message: str) -> None:
    """The paragraph and the missing field are named."""
    with pytest.raises(BadIndex, match=message):
        read_index(text.splitlines())


NAME = st.from_regex(r"[a-z0-9][a-z0-9.+-]{1,8}", fullmatch=True)


@given(st.lists(st.lists(NAME, min_size=1, max_size=3), max_size=4))
def test_any_relation_field_gives_its_names(groups: list[list[str]]) -> None:
    """Whatever versions and architectures stand beside them."""
    field = ", ".join(" | ".join(f"{name} (>= 1:2.0~rc1) [!i386] <!nocheck>" for name in g) for g in groups)

    assert related(field) == tuple(dict.fromkeys(name for group in groups for name in group))


def test_the_modules_need_no_torch(example_code: Path) -> None:
    """The dataset is made in a build stage; parser and writer stay light."""
    for name in ("debian_index", "debian_features", "debian_graph", "chunked_graph"):
        text = (example_code / f"{name}.py").read_text()
        assert "import torch" not in text
        assert "import dgl" not in text
