"""The pinned Go modules and how their programs are built."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from tests.cluster import builds, places
from tests.cluster.builds import MODULE
from tests.cluster.steps import StepError

PLACES = places.Places(Path("/cache"), Path("/state"))


@pytest.mark.parametrize("module", MODULE.values(), ids=MODULE)
def test_every_module_is_pinned_and_has_its_sums(module: builds.Module) -> None:
    """A module names one version, holds go.sum, and its folder in the cache tells the version."""
    assert re.fullmatch(r"v\d+\.\d+\.\d+", module.version)
    assert (module.folder / "go.sum").stat().st_size > 0
    assert str(builds.folder(module, PLACES)).startswith(f"/cache/tools/{module.name}-{module.version}-")


def test_every_folder_of_tools_is_in_the_table() -> None:
    """No go.mod is committed that nothing builds."""
    assert {path.parent.name for path in places.MODULES.glob("*/go.mod")} == {
        module.folder.name for module in MODULE.values()
    }


@pytest.mark.parametrize(("name", "staging"), [("kubernetes", 33), ("kubernetes-1.34", 31)])
def test_staging_modules_follow_the_version_of_kubernetes(name: str, staging: int) -> None:
    """A bump of Kubernetes that forgets a replace line is caught before six minutes of building."""
    module = MODULE[name]
    expected = module.version.replace("v1.", "v0.", 1)

    replaced = re.findall(r"^\t(\S+) => (\S+) (v\S+)$", module.go_mod, re.MULTILINE)

    assert len(replaced) == staging
    assert {version for _, _, version in replaced} == {expected}
    assert all(old == new for old, new, _ in replaced)


def test_kubernetes_is_stamped_with_its_version() -> None:
    """Without the linker's variables the programs would call themselves v0.0.0-master."""
    major, minor, _ = MODULE["kubernetes"].version.removeprefix("v").split(".")

    flags = MODULE["kubernetes"].build_flags()[-1]

    assert f"-X k8s.io/component-base/version.gitVersion={MODULE['kubernetes'].version}" in flags
    assert f"-X k8s.io/component-base/version.gitMajor={major}" in flags
    assert f"-X k8s.io/client-go/pkg/version.gitMinor={minor}" in flags


def test_another_content_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources, sums, flags: whatever changes the programs changes where they are kept."""
    shutil.copytree(places.MODULES / "coredns", tmp_path / "coredns")
    monkeypatch.setattr(builds, "MODULES", tmp_path)
    module = MODULE["coredns"]
    before = module.content()

    tagged = dataclasses.replace(module, tags="other").content()
    (tmp_path / "coredns" / "main.go").write_text("package main\n")
    edited = module.content()

    assert len({before, tagged, edited}) == 3


def test_an_older_control_plane_is_used_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of the node stays as it is."""
    usual = builds.program("kube-apiserver", PLACES)
    monkeypatch.setenv(builds.CONTROL_PLANE, "1.34")

    older = builds.program("kube-apiserver", PLACES)

    assert "kubernetes-v1.36" in str(usual)
    assert "kubernetes-1.34-v1.34" in str(older)
    assert "kubernetes-v1.36" in str(builds.program("kubelet", PLACES))
    monkeypatch.setenv(builds.CONTROL_PLANE, "1.12")
    with pytest.raises(StepError, match=r"expected one of 1\.34, got 1\.12"):
        builds.program("kube-apiserver", PLACES)


def test_programs_are_found_by_name() -> None:
    """A program's path tells its module; an unknown name is an error."""
    assert builds.program("ctr", PLACES).parent == builds.folder(MODULE["containerd"], PLACES)
    with pytest.raises(KeyError):
        builds.program("crictl", PLACES)
