"""The command line: defaults that work in a pod, one line for each mistake."""

import pytest

from dgl_operator.runtime import settings
from dgl_operator.runtime.leader_election import Election
from dgl_operator.runtime.settings import Address
from tests.support.jobs import IMAGE_FLAGS, IMAGES


def test_the_defaults_watch_the_whole_cluster() -> None:
    """The images of the init containers are the only thing to be named; they are pulled once."""
    found = settings.parse(IMAGE_FLAGS)

    assert found.namespaces == ()
    assert found.images == IMAGES
    assert found.images.pull_policy == "IfNotPresent"
    assert found.has_network_policy
    assert (found.health, found.metrics) == (Address("", 8081), Address("", 8080))


def test_namespaces_repeat_and_addresses_have_hosts() -> None:
    """As the flags of 2021 were written."""
    namespaces = ("--namespace", "a", "--namespace", "b", "--namespace", "a")
    found = settings.parse([*IMAGE_FLAGS, *namespaces, "--metrics-bind-address", "127.0.0.1:0"])

    assert found.namespaces == ("a", "b")
    assert found.metrics == Address("127.0.0.1", 0)


def test_network_policies_are_switched_off_by_a_word() -> None:
    """For jobs that do not say."""
    assert not settings.parse([*IMAGE_FLAGS, "--job-network-policy=false"]).has_network_policy


@pytest.mark.parametrize(
    "argv",
    [
        ["--metrics-bind-address", "8080x"],
        ["--resync-period", "0"],
        ["--resync-period", "soon"],
        ["--log-format", "xml"],
        ["--job-network-policy", "yes"],
        ["--name", "a"],
        ["--watcher-loop-image", ""],
        ["--kubectl-download-image", "a b"],
    ],
)
def test_a_wrong_flag_ends_with_2_and_names_it(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Abbreviations are no flags either."""
    with pytest.raises(SystemExit) as ended:
        settings.parse([*IMAGE_FLAGS, *argv])

    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert argv[0] in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("given", IMAGE_FLAGS)
def test_an_image_has_no_default(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A default would pull from a registry that the project does not own, into every launcher."""
    (missing,) = [flag.partition("=")[0] for flag in IMAGE_FLAGS if flag != given]

    with pytest.raises(SystemExit) as ended:
        settings.parse([given])

    assert ended.value.code == 2
    assert capsys.readouterr().err == (
        f"dgl-operator: the following arguments are required: {missing}; see 'dgl-operator --help'\n"
    )


def test_an_election_has_a_lease_of_its_own_and_times_in_order() -> None:
    """The leader ends before others may begin."""
    given = settings.parse([*IMAGE_FLAGS, "--leader-elect=true", "--leader-elect-resource-namespace=ops"])

    assert given.election == Election("ops", "dgl-operator", 10.0, 7.0, 2.0)
    assert settings.parse([*IMAGE_FLAGS]).election is None


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--leader-elect=true"], "--leader-elect needs --leader-elect-resource-namespace outside of a pod"),
        (
            [
                "--leader-elect=true",
                "--leader-elect-resource-namespace=n",
                "--leader-elect-renew-deadline=11",
            ],
            "below --leader-elect-lease-duration, got 2, 11, 10",
        ),
        (['--init-container-resources={"limits": {"cpu": "much"}}'], "expected a quantity"),
        (['--init-container-resources={"limit": {"cpu": 1}}'], "expected requests and limits, got 'limit'"),
        (["--init-container-resources=1"], "expected JSON such as"),
    ],
)
def test_what_does_not_fit_is_one_line(
    argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything starts."""
    with pytest.raises(SystemExit) as ended:
        settings.parse([*IMAGE_FLAGS, *argv])

    shown = capsys.readouterr().err
    assert ended.value.code == 2
    assert said in shown
    assert shown.count("\n") == 1


def test_the_resources_of_the_init_containers_are_the_administrators() -> None:
    """As in a pod; none at all is a choice, too."""
    given = settings.parse([*IMAGE_FLAGS, '--init-container-resources={"limits": {"memory": "1Gi"}}'])
    none = settings.parse([*IMAGE_FLAGS, "--init-container-resources={}"])

    assert given.images.resources == {"limits": {"memory": "1Gi"}}
    assert none.images.resources == {}
