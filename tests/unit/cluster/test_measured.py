"""Each table of figures in docs/ is written by a command, whole, and says by which and at which commit."""

import re
import shlex
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.benchmarks import tables
from tests.e2e.figures import Figures
from tests.support import measured
from tests.support.measured import ROOT, TABLES, WRITE, Table
from tests.support.suites import whole_suite

PAGES = sorted((ROOT / "docs").rglob("*.md"))
WHOLE_PAGE = re.compile(r"^<!-- written by `?(?P<command>[^`;]+)`?; do not edit -->$", re.MULTILINE)
BLOCK = re.compile(r"<!-- table (?P<name>\S+): .*?<!-- end of table (?P=name) -->", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
UNITS = re.compile(r"\b(measured|seconds|CPU|wall|MiB|GB/s|rows/s|accuracy)\b", re.IGNORECASE)
NUMBER = re.compile(r"[*~]*\d[\d.,]*( ?(%|[kMG]i?B|m?s|/s|x))?( / [\d.]+)?[*]*")

A_TABLE = Table("speed", "page.md", "make bench", ("What", "CPU s"))
A_PAGE = f"# Page\n\n{A_TABLE.begin}\nold\n{A_TABLE.end}\n\nafter\n"


def unwritten(page: str) -> list[str]:
    """The heads of the tables of figures that stand in no block, nor on a page that a command writes."""
    if WHOLE_PAGE.search(page):
        return []
    return [text.split("\n")[0] for text in TABLE.findall(BLOCK.sub("", page)) if has_figures(text)]


def has_figures(table: str) -> bool:
    """Whether a table looks measured: by its heads, or because most of its cells are numbers."""
    head, _, *body = [line.strip("|").split(" | ") for line in table.splitlines()]
    cells = [cell.strip() for line in body for cell in line]
    numbers = [cell for cell in cells if NUMBER.fullmatch(cell)]
    return any(UNITS.search(cell) for cell in head) or len(numbers) > len(cells) / 2


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_of_figures_is_written_by_hand(page: Path) -> None:
    """Nobody could say what it shows, or measure it again."""
    assert unwritten(page.read_text()) == []


@pytest.mark.parametrize(
    "page",
    [
        "| What | CPU s |\n|---|---|\n| a | fast |\n",
        "| A | B |\n|---|---|\n| 1.5 s | 70 % |\n| **2** | x |\n",
    ],
)
def test_a_table_that_somebody_typed_is_found(page: str) -> None:
    """By its heads or its cells; a table of exit codes or flags is none."""
    assert len(unwritten(page)) == 1
    assert unwritten("| Exit | When |\n|---|---|\n| 0 | well |\n| 65 | bad input |\n") == []


MEASURED = re.compile(r"Measured .*\d{4}-\d\d-\d\d.* at commit [0-9a-f]{7,}")


@pytest.mark.parametrize("name", TABLES)
def test_each_table_stands_in_its_page_as_its_command_writes_it(name: str) -> None:
    """Command, columns, the line with the commit: what a new run writes differs in the figures alone."""
    table = TABLES[name]

    (text,) = [found[0] for found in BLOCK.finditer(table.path.read_text()) if found["name"] == name]

    begin, said, _, head, dashes, *rows, end = text.split("\n")
    assert (begin, f"{head}\n{dashes}", end) == (table.begin, table.head, table.end)
    computed = f"Computed from the tables {', '.join(table.rests_on)}."
    assert said == computed if table.rests_on else MEASURED.match(said)
    assert {line.count("|") for line in rows} == {len(table.columns) + 1}


def test_no_page_has_a_table_that_no_command_knows() -> None:
    """A name that is misspelt in a page would stay there for ever."""
    names = [found["name"] for page in PAGES for found in BLOCK.finditer(page.read_text())]

    assert sorted(names) == sorted(TABLES)


def test_each_command_exists() -> None:
    """A target of the Makefile, or a program that knows the table."""
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    pages = [found["command"] for page in PAGES if (found := WHOLE_PAGE.search(page.read_text()))]
    for command in [*pages, *(table.command for table in TABLES.values())]:
        words = [word for word in shlex.split(command) if not word.startswith(f"{WRITE}=")]
        if words[0] == "make":
            assert words[1] in targets, command
        else:
            assert find_spec(words[2]), command
            assert words[2] != tables.__name__ or words[3] in tables.WRITERS, command


def test_a_table_is_replaced_whole() -> None:
    """Rows of an older run do not stay."""
    text = measured.block(A_TABLE, [("dispatch", 1.5)], "Idle.")

    page = measured.put(A_PAGE, A_TABLE, text)

    begin, said, *rest = page.split("\n")[2:]
    assert begin == A_TABLE.begin
    assert re.fullmatch(r"Measured on .* at commit .*: \d+ cores, Linux .* Idle\.", said)
    head = ["", "| What | CPU s |", "|---|---|", "| dispatch | 1.5 |"]
    assert rest == [*head, A_TABLE.end, "", "after", ""]
    assert measured.put(page, A_TABLE, text) == page


@pytest.mark.parametrize("page", ["# Page\n", A_PAGE + A_PAGE], ids=["none", "two"])
def test_a_page_without_the_place_is_refused(page: str) -> None:
    """A measurement of hours does not go nowhere in silence."""
    with pytest.raises(ValueError, match=r"page\.md: expected one place for table speed"):
        measured.put(page, A_TABLE, "text")


@pytest.mark.parametrize(
    ("asked", "failed", "args", "written"),
    [
        ("1", 0, ["tests/e2e"], True),
        ("", 0, ["tests/e2e"], False),
        ("1", 2, ["tests/e2e"], False),
        ("1", 0, ["tests/e2e/test_modes.py"], False),
    ],
    ids=["whole", "not asked", "failed", "a part"],
)
def test_a_run_renews_its_page_if_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, failed: int, args: list[str], written: bool
) -> None:
    """Its own figures go to build/ always, without those of other runs."""
    monkeypatch.setenv(WRITE, asked)
    monkeypatch.setattr(measured, "ROOT", tmp_path)
    table = TABLES["e2e"]
    page = tmp_path / "docs" / table.page
    page.parent.mkdir(parents=True)
    page.write_text(f"{table.begin}\nold\n{table.end}\n")
    option = SimpleNamespace(keyword="", deselect=None, maxfail=0, collectonly=False)
    run = SimpleNamespace(dir=ROOT)
    config = SimpleNamespace(option=option, args=args, invocation_params=run, rootpath=ROOT)
    figures = Figures()
    figures.add("b", 2.0, "s", "later")
    figures.add("a", 0.5, "", "accuracy")

    figures.write("e2e", SimpleNamespace(testsfailed=failed, config=config))  # type: ignore[arg-type]

    assert ("| accuracy | 0.5 |\n| later | 2.0 s |\n" in page.read_text()) == written
    assert ("old" in page.read_text()) != written
    assert (tmp_path / "build/figures-e2e.json").exists()


def test_a_list_of_the_tests_is_no_run_of_the_suite() -> None:
    """`pytest --collect-only` with the variable set emptied the page's table."""
    option = SimpleNamespace(keyword="", deselect=None, maxfail=0, collectonly=True)
    run = SimpleNamespace(dir=ROOT)
    config = SimpleNamespace(option=option, args=["tests/e2e"], invocation_params=run, rootpath=ROOT)

    assert whole_suite(config) is None  # type: ignore[arg-type]
