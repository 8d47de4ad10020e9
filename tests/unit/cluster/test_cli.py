"""The command line and the folders it works with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import builds, cli, deliver, images, steps
from tests.cluster.places import Places


def test_folders_come_from_the_environment() -> None:
    """Both can be moved; without a word the cache follows the XDG convention."""
    moved = Places.of({"DGL_OPERATOR_CACHE": "/c", "DGL_OPERATOR_CLUSTER_STATE": "/s"})

    assert moved == Places(Path("/c"), Path("/s"))
    assert Places.of({"XDG_CACHE_HOME": "/x"}).cache == Path("/x/dgl-operator")


def test_env_is_shell_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Our cluster: kubeconfig, programs and audit log."""
    monkeypatch.setenv("DGL_OPERATOR_CACHE", str(tmp_path / "with space"))
    monkeypatch.setenv("DGL_OPERATOR_CLUSTER_STATE", "/s")
    monkeypatch.delenv("KUBECONFIG", raising=False)

    assert cli.main(["env"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "export KUBECONFIG=/s/config/admin.kubeconfig",
        f"export PATH='{tmp_path}/with space/bin':\"$PATH\"",
        "export DGL_OPERATOR_AUDIT_LOG=/s/audit/audit.log",
    ]


def test_a_given_kubeconfig_is_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another cluster's kubeconfig wins, and no audit log is claimed for it."""
    monkeypatch.setenv("KUBECONFIG", "/elsewhere/config")

    cli.main(["kubeconfig"])
    cli.main(["env"])

    said = capsys.readouterr().out
    assert said.startswith("/elsewhere/config\nexport KUBECONFIG=/elsewhere/config\n")
    assert "AUDIT" not in said


def test_a_failure_ends_with_1_and_its_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code tells, and the last line says what was missing."""

    def fail(*_: object) -> None:
        raise steps.StepError("waited 90 s in vain for the node to be Ready")

    monkeypatch.setitem(cli.COMMANDS, "up", fail)

    assert cli.main(["up"]) == 1
    assert "up failed: waited 90 s in vain for the node to be Ready" in capsys.readouterr().out


def test_waiting_has_an_end() -> None:
    """A condition that never holds fails with its own words."""
    with pytest.raises(steps.StepError, match="waited 0 s in vain for rain"):
        steps.until("rain", lambda: False, seconds=0, pause=0)


@pytest.fixture
def foreign(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster of others, and builds that only say what they would do."""

    def said(what: str) -> Callable[..., None]:
        return lambda names, *_, **__: print(what, *names)

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.setattr(deliver, "build", said("builds images"))
    monkeypatch.setattr(builds, "ensure", said("builds tools"))


@pytest.mark.usefixtures("foreign")
def test_a_cluster_of_others_is_told_what_it_must_hold(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is built for it but the clients; its images come from its registry."""
    monkeypatch.setenv("DGL_OPERATOR_REGISTRY", "registry.example.net/")

    assert cli.main(["load", "graphsage-modern"]) == 0
    assert cli.main(["build-tools"]) == 0

    said = capsys.readouterr().out
    tag = images.IMAGE["graphsage-modern"].tag.removeprefix(f"{images.PLACEHOLDER}/")
    assert f"  registry.example.net/{tag}\n" in said
    assert "builds images" not in said
    assert (
        f"builds tools {' '.join((*builds.CLIENTS, *builds.CHECKS, *builds.STORAGE, *builds.QUEUES))}\n"
        in said
    )


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("way", ["", "{folder}/{name}", "{folder}/more/../{name}"])
def test_our_own_cluster_gets_its_images(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, way: str
) -> None:
    """With its kubeconfig named, too, in whatever way."""
    monkeypatch.setenv("DGL_OPERATOR_CLUSTER_STATE", str(tmp_path))
    kubeconfig = Places.here().kubeconfig
    (kubeconfig.parent / "more").mkdir(parents=True)
    monkeypatch.setenv("KUBECONFIG", way.format(folder=kubeconfig.parent, name=kubeconfig.name))

    assert cli.main(["load", "job"]) == 0

    assert capsys.readouterr().out.startswith("builds images job\n")


def test_a_registry_is_for_clusters_of_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Our node has its images from here, under the names in the manifests."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("DGL_OPERATOR_REGISTRY", "registry.example.net")

    assert cli.main(["up"]) == 1

    assert "DGL_OPERATOR_REGISTRY=registry.example.net is for a cluster that KUBECONFIG names" in (
        capsys.readouterr().out
    )
