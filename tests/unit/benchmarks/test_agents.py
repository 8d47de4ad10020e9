"""The benchmark of many agents measures a real launcher."""

import os
import re

import pytest

from tests.benchmarks import agents


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
def test_a_launcher_with_few_agents_is_measured() -> None:
    """A Python process with some threads and memory, agents that take time to start, no kubectl left."""
    found = {what: measured for what, measured, _target in agents.rows(workers=3, held=0.5)}

    memory = re.fullmatch(
        r"(\d+) \((\d+)\) MiB", found["launcher's memory in training (most since its start)"]
    )
    assert memory
    assert 10 < int(memory[1]) <= int(memory[2]) < 300
    assert 2 <= int(found["launcher's threads"]) < 50
    assert found["kubectl processes while training"] == "0"
    assert float(found["CPU for each agent to start, all processes"].removesuffix(" s")) > 0.01
