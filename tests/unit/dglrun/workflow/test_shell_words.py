"""No shell reads a user's words."""

import subprocess
from pathlib import Path

import pytest

from dglrun.cli import parse
from dglrun.contract import exitcodes
from dglrun.workflow.config import ConfigError, RunConfig, check
from dglrun.workflow.config import parse as parse_config
from dglrun.workflow.plan import plan
from dglrun.workflow.steps import ReadQuality
from tests.unit.dglrun.partitioning.builders import partition, two_communities
from tests.unit.dglrun.workflow.builders import a_context, hosts

MODE = {"DGL_OPERATOR_PARTITION_MODE": "DistParMETIS"}


def a_dist_config(*args: str) -> RunConfig:
    """That of a job which partitions on its workers."""
    base = ("-g", "g", "--chunked-graph", "/data/g", "--num-partitions", "2", "--train-entry-point", "t.py")
    flags, _, script_args = parse([*base, *args])
    return check(parse_config(a_context(env=MODE), flags, script_args))


def test_a_command_in_the_workspaces_name_is_not_run(tmp_path: Path) -> None:
    """The one script that a worker's shell gets takes the path as an argument, and finds the file."""
    workspace = tmp_path / "w$(touch pwned) 'x"
    workspace.mkdir()
    (workspace / "partition-quality.json").write_text("{}")
    config = a_dist_config("--workspace", str(workspace))
    steps = [step for phase in plan(config, hosts(2), "1") for step in phase.steps]
    (read,) = (step for step in steps if isinstance(step, ReadQuality))
    command = read.argv[read.argv.index("--") + 1 :]

    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)

    assert ended.stdout == "{}"
    assert not (tmp_path / "pwned").exists()


def test_an_interface_that_a_shell_would_read_is_refused(tmp_path: Path) -> None:
    """Open MPI puts it between double quotes in the line that a worker's shell runs."""
    with pytest.raises(ConfigError, match=r"^--interface: .* got '\$\(touch pwned\)'$"):
        a_dist_config("--interface", "$(touch pwned)")
    two_communities(tmp_path / "in")
    (tmp_path / "hosts").write_text("127.0.0.1 30050 pod\n")
    remote = ("--hostfile", str(tmp_path / "hosts"), "--agent", "/bin/false", "--interface", "`id`")
    flags = ("--mode", "DistParMETIS", "--backend", "zoltan", "--num-parts", "2", *remote)

    ended = partition(tmp_path / "in", tmp_path / "out", *flags)

    assert ended.returncode == exitcodes.USAGE
    assert "--interface: expected a name or a network such as 10.0.0.0/8, got '`id`'" in ended.stderr
