"""The command line: defaults that work in a pod, one line for each mistake."""

import pytest

from dgl_operator.runtime import settings
from dgl_operator.runtime.settings import Address


def test_the_defaults_watch_the_whole_cluster_with_images_of_this_version() -> None:
    """Pinned tags, pulled once (defect 35)."""
    found = settings.parse([])

    assert found.namespaces == ()
    assert found.images.watcher_loop.startswith("docker.io/dgloperator/watcher-loop:v")
    assert found.images.pull_policy == "IfNotPresent"
    assert (found.health, found.metrics) == (Address("", 8081), Address("", 8080))


def test_namespaces_repeat_and_addresses_have_hosts() -> None:
    """As the flags of 2021 were written."""
    found = settings.parse(
        ["--namespace", "a", "--namespace", "b", "--namespace", "a", "--metrics-bind-address", "127.0.0.1:0"]
    )

    assert found.namespaces == ("a", "b")
    assert found.metrics == Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    "argv",
    [
        ["--metrics-bind-address", "8080x"],
        ["--resync-period", "0"],
        ["--resync-period", "soon"],
        ["--log-format", "xml"],
        ["--name", "a"],
    ],
)
def test_a_wrong_flag_ends_with_2_and_names_it(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Abbreviations are no flags either."""
    with pytest.raises(SystemExit) as ended:
        settings.parse(argv)

    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err
