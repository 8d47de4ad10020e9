"""`make modern-formats`: the tests that need torch 2.2.1 + dgl 2.1.0, on a Python that has them.

Takes the Python that DGLRUN_MODERN_PYTHON names, else makes one in the cache (5 GB, from PyPI).
"""

import os
import subprocess
import sys
import venv
from pathlib import Path

from tests.cluster.places import Places

VARIABLE = "DGLRUN_MODERN_PYTHON"
ROOT = Path(__file__).parents[1]
STACK = ("torch==2.2.1", "torchdata==0.7.1", "dgl==2.1.0", "numpy<2", "pandas", "pydantic", "pyyaml")
OURS = ("pyarrow<21", "mpi4py")
TESTS = (
    "tests/unit/dglrun/verify/test_dgl_loader.py",
    "tests/unit/dglrun/dispatch/test_graphbolt.py",
    "tests/unit/dglrun/dispatch/test_training.py",
    "tests/unit/dglrun/workflow/test_modes.py",
)


def main() -> int:
    """Make the Python if none is named, run the tests; pytest's exit code."""
    python = os.environ.get(VARIABLE) or str(made(Places.of(os.environ).cache / "modern-python"))
    env = os.environ | {VARIABLE: python}
    return subprocess.run(
        (sys.executable, "-m", "pytest", "-v", *TESTS), cwd=ROOT, env=env, check=False
    ).returncode


def made(folder: Path) -> Path:
    """The Python in a folder of the cache; whole if its stamp is there."""
    python, stamp = folder / "bin/python", folder / "stamp"
    wanted = " ".join((*STACK, *OURS))
    if not stamp.exists() or stamp.read_text() != wanted:
        print(f"installing {wanted} into {folder}", flush=True)
        venv.create(folder, clear=True, with_pip=True)
        subprocess.run((str(python), "-m", "pip", "install", "--quiet", *STACK, *OURS), check=True)
        stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    sys.exit(main())
