"""What is loaded where no package may be installed."""

import resource
import subprocess
import sys

import pytest

from tests.support.dglrun_pods import ROOT


def test_the_agent_starts_quickly() -> None:
    """It imports nothing heavy: its start is part of the time to the first trainer."""
    heavy = "('pydantic', 'yaml', 'numpy', 'asyncio', 'tarfile', 'dglrun.workflow.config')"
    code = f"import sys, dglrun.agent.main\nprint([m for m in {heavy} if m in sys.modules])"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.stdout.strip() == "[]"
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0


@pytest.mark.parametrize(
    "program",
    [
        "agent.main",
        "agent.script_runner",
        "pod_waiter.program",
        "transfer.checkpoints.__main__",
        "transfer.pull.__main__",
        "transfer.send_output",
    ],
)
def test_what_runs_on_a_worker_or_in_an_init_container_needs_the_standard_library_alone(program: str) -> None:
    """No package of ours or of others is loaded but dglrun's own modules."""
    code = (
        f"import sys\nbefore = set(sys.modules)\nimport dglrun.{program}\n"
        "loaded = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(loaded - {'__mp_main__'} - set(sys.stdlib_module_names)))"  # multiprocessing's __main__
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert done.stdout.strip() == "['dglrun']"
