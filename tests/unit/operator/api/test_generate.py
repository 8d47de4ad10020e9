"""The generated files and the guard against their drift."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgl_operator.api import crd, generate, rbac

needs_helm = pytest.mark.skipif(
    generate.find_helm() is None, reason="no helm; 'python -m tests.cluster build-tools helm' builds it"
)

PROJECT = {"version": "1", "description": "d"}
COPIED = ("crds", "helm", "manifests", "docs/reference/dgljob.md", "pyproject.toml")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the generator reads and writes."""
    for name in COPIED:
        source, target = generate.ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    return tmp_path


@pytest.fixture
def no_helm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without helm."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DGL_OPERATOR_CACHE", str(tmp_path / "cache"))


def template(name: str) -> Any:
    """The YAML of a generated template without helm's own lines."""
    text = (generate.ROOT / "helm" / "dgl-operator" / "templates" / name).read_text()
    return yaml.safe_load("".join(line for line in text.splitlines(keepends=True) if line[:2] != "{{"))


def run(root: Path, *flags: str) -> int:
    return generate.main(["--root", str(root), *flags])


def test_the_checked_in_files_are_up_to_date() -> None:
    """Nobody changed the models or the files alone."""
    assert run(generate.ROOT, "--check", "--no-helm") == 0


@pytest.mark.usefixtures("no_helm")
@pytest.mark.parametrize(
    "path",
    [
        "crds/dgljobs.qihoo.net.yaml",
        "helm/dgl-operator/templates/crd/dgljobs.yaml",
        "helm/dgl-operator/templates/_rules.tpl",
        "helm/dgl-operator/Chart.yaml",
    ],
)
def test_drift_is_found_and_mended(checkout: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A file changed by hand fails the check by its name and is written anew."""
    good = (checkout / path).read_text()
    (checkout / path).write_text(good.replace("dgl", "gdl", 1))

    assert run(checkout, "--check", "--no-helm") == 1
    assert f"{path}: expected what the models give" in capsys.readouterr().err
    assert run(checkout, "--no-helm") == 0
    assert (checkout / path).read_text() == good


@pytest.mark.usefixtures("no_helm")
def test_a_missing_file_is_drift(checkout: Path) -> None:
    """A deleted file is as wrong as a changed one."""
    (checkout / "crds" / "dgljobs.qihoo.net.yaml").unlink()

    assert run(checkout, "--check", "--no-helm") == 1


@pytest.mark.usefixtures("no_helm")
def test_without_helm_the_install_file_is_said_to_be_unchecked(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check fails loudly, unless the caller says that this is known."""
    assert run(checkout, "--check") == 1
    assert "manifests/install.yaml: NOT CHECKED" in capsys.readouterr().err
    assert run(checkout, "--check", "--no-helm") == 0


@pytest.mark.skipif(
    generate.find_helm() is None, reason="needs helm: python -m tests.cluster build-tools helm"
)
def test_drift_of_the_install_file_is_found(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The one-file install is what helm renders from the chart."""
    assert run(checkout, "--check") == 0
    install = checkout / "manifests" / "install.yaml"
    install.write_text(install.read_text().replace("replicas: 1\n", "replicas: 2\n"))

    assert run(checkout, "--check") == 1
    assert "manifests/install.yaml: expected" in capsys.readouterr().err


@pytest.mark.skipif(
    generate.find_helm() is None, reason="needs helm: python -m tests.cluster build-tools helm"
)
def test_a_chart_that_helm_refuses_is_an_error(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Helm's own words reach the caller and nothing is written."""
    values = checkout / "helm" / "dgl-operator" / "values.yaml"
    values.write_text(values.read_text().replace("scope: cluster", "scope: planet"))
    before = (checkout / "manifests" / "install.yaml").read_text()

    assert run(checkout) == 1
    assert "scope" in capsys.readouterr().err
    assert (checkout / "manifests" / "install.yaml").read_text() == before


@pytest.mark.usefixtures("no_helm")
def test_a_page_without_its_marks_is_an_error(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables have to have their place; nothing else is written then."""
    page = checkout / "docs" / "reference" / "dgljob.md"
    page.write_text(page.read_text().replace("<!-- generated spec -->", ""))

    assert run(checkout, "--no-helm") == 1
    assert "generated spec" in capsys.readouterr().err


def test_outside_of_a_checkout_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The installed package has no chart beside it."""
    assert run(tmp_path) == 1
    assert "expected a checkout" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_crd_of_the_chart_is_the_crd_that_is_kept() -> None:
    """Same schema; uninstalling the chart must not delete everyone's jobs."""
    body = template("crd/dgljobs.yaml")

    assert body["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert body == crd.definition()


def test_the_chart_has_the_addresses_of_the_project() -> None:
    """They are said once, in pyproject.toml; a chart without any is a good chart."""
    page = (generate.ROOT / generate.PAGE).read_text()
    urls = {"Homepage": "https://home.example", "Source": "https://source.example"}

    def chart(project: dict[str, Any]) -> Any:
        made = generate.files(project, page, "<svg/>")
        return yaml.safe_load(made[f"{generate.CHART}/Chart.yaml"])

    with_urls = chart({**PROJECT, "urls": urls})
    assert with_urls["home"] == urls["Homepage"]
    assert with_urls["sources"] == [urls["Source"]]
    assert {"home", "sources"}.isdisjoint(chart(PROJECT))


def test_generated_files_look_generated() -> None:
    """Whoever opens one knows where to change it."""
    page = (generate.ROOT / generate.PAGE).read_text()
    paths = set(generate.files(PROJECT, page, "<svg/>")) - {generate.PAGE}

    for path in paths:
        assert generate.HEADER in (generate.ROOT / path).read_text().splitlines()[0]


def test_the_rights_of_the_chart_are_the_rights_of_the_list() -> None:
    """The template carries each rule once."""
    body = template("_rules.tpl")

    assert body == [
        rule.manifest() for rule in (*rbac.RULES, *rbac.OF_CLUSTER, *rbac.KUEUE, *rbac.KUEUE_OF_CLUSTER)
    ]
