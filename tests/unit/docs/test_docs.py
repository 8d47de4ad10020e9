"""The pages: each link leads somewhere, and what a reader copies from them is what the code makes."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from dgl_operator.render import network
from dgl_operator.runtime import settings
from dgl_operator.runtime.metrics import Metrics
from dglrun.contract import names
from tests.support.job_cases import ROOT
from tests.support.jobs import a_job

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "helm").rglob("*.md")])
OPERATOR = (ROOT / "docs/reference/operator.md").read_text()
REPLACED = re.compile(
    r"\b(he|his|him|she|her|truth|blamed?|last words|roll call|signs? of life|taken away)\b", re.I
)
"""Words that docs/howto/style.md replaces."""
CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return CODE.sub("", page.read_text())


def own_words(page: Path) -> str:
    """A page without what is made from the models, whose words are changed there."""
    return re.sub(r"<!-- generated .*?<!-- end -->", "", page.read_text(), flags=re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The fragments of a page's headings, as the usual renderers make them."""
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path) -> Iterator[str]:
    """The links into this checkout that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        path, _, fragment = link.partition("#")
        if ":" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_and_its_heading(page: Path) -> None:
    """Within the checkout; other sites are not asked."""
    assert list(broken(page)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_uses_the_words_of_the_field(page: Path) -> None:
    """Not those that the page on names and words replaces, which itself has to name them."""
    if page.name == "style.md":
        return
    assert REPLACED.findall(own_words(page)) == []


def test_the_network_policy_of_the_docs_is_one_of_a_job() -> None:
    """The rule of the reference comes as it is into the policy, which selects by the label that is named."""
    page = (ROOT / "docs/reference/dgljob.md").read_text().partition("\n## networkPolicy\n")[2]
    (text,) = re.findall(r"```yaml\n(.*?)```", page.partition("\n## ")[0], re.DOTALL)
    given = yaml.safe_load(text)["spec"]["networkPolicy"]

    first, own = network.policy(a_job(networkPolicy=given))["spec"]["ingress"]

    assert [first] == given["ingress"]
    assert own == {"from": [{"podSelector": {"matchLabels": {names.LABEL_JOB: "sage"}}}]}
    assert f"`{names.LABEL_JOB}`" in (ROOT / "docs/explanation/security.md").read_text()


def test_every_flag_of_the_operator_stands_in_the_reference() -> None:
    """And no flag of another program in its table."""
    table = OPERATOR.partition("## Command line\n")[2].partition("\n## ")[0]
    known = {flag for action in settings._parser()._actions for flag in action.option_strings}

    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", table)) == known - {"-h", "--help"}


def test_every_metric_stands_in_the_reference() -> None:
    """By the name under which it is scraped."""
    names_and_types = re.findall(r"^# TYPE (\S+) (\S+)$", Metrics().text().decode(), re.MULTILINE)

    for name, kind in names_and_types:
        assert re.search(rf"\| `{name}(\{{\w+\}})?` \| {kind} \|", OPERATOR), name
