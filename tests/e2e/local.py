"""The last two steps of `make local` (.ci/local): the example's graph, and its job by `dglrun local`.

`python -m tests.e2e.local graph CACHE` makes the graph of this Debian's packages, as the example's image
does; `job CACHE` trains on it: as root with two workers, the job of `make demo`, otherwise with one.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.accuracy import ABOVE_MAJORITY, FINAL

ROOT = Path(__file__).parents[2]
CODE = ROOT / "images" / "examples" / "graphsage" / "code"
WORKSPACE = "/dgl_workspace"
_INDEX = ("Identifier: Packages", "Codename: bookworm", "Component: main")


def main(argv: list[str]) -> int:
    """Perform a step; returns its exit code."""
    step, cache = argv[0], Path(argv[1])
    return {"graph": graph, "job": job}[step](cache / "debian-graph")


def graph(folder: Path) -> int:
    """Make the graph unless it is there."""
    if (folder / "homogeneous").exists():
        return 0
    index, part = folder.with_name("Packages"), folder.with_name("debian-graph.part")
    index.write_bytes(package_index())
    subprocess.run(["rm", "-rf", str(part)], check=True)
    code = subprocess.call([sys.executable, "debian_graph.py", "--index", index, "--out", part], cwd=CODE)
    if code == 0:
        part.rename(folder)
    index.unlink()
    return code


def package_index() -> bytes:
    """The package index of this machine's Debian 12, main; apt's lists are fetched where there are none."""
    if not (files := index_files()):
        subprocess.run(("apt-get", "update", "-qq"), check=True)
        files = index_files()
    if not files:
        sys.exit("local: expected a package index of Debian bookworm, main, among apt's lists, found none")
    return subprocess.run(
        ("/usr/lib/apt/apt-helper", "cat-file", *files), check=True, capture_output=True
    ).stdout


def index_files() -> list[str]:
    """Where apt keeps the index."""
    argv = ("apt-get", "indextargets", "--format", "$(FILENAME)", *_INDEX)
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


def job(folder: Path) -> int:
    """Train, show the log, and compare the accuracy with what is expected."""
    name = "dgl-api" if os.geteuid() == 0 else "single-worker"
    argv = [sys.executable, "-m", "dglrun", "local", f"manifests/examples/{name}.yaml"]
    argv += ["--mount", f"{CODE}:{WORKSPACE}/code", "--mount", f"{folder}:{WORKSPACE}/debian-graph"]
    argv += ["--workdir", f"build/local/{name}"]
    print(" ".join(argv), flush=True)
    accuracy = None
    with subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True) as process:
        for line in lines(process):
            accuracy = FINAL.search(line) or accuracy
    if process.returncode != 0 or accuracy is None:
        print(f"local: the job has ended with {process.returncode}, accuracy: {accuracy and accuracy[0]}")
        return process.returncode or 1
    reached, expected = float(accuracy[1]), float(accuracy[2]) + ABOVE_MAJORITY
    verdict = "as expected" if reached >= expected else "FAILED"
    print(f"local: {accuracy[0]}, {verdict}: at least {expected:.4f}")
    return 0 if reached >= expected else 1


def environment() -> Mapping[str, str]:
    """This process's, with the checkout's dglrun."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def lines(process: "subprocess.Popen[str]") -> Iterator[str]:
    """The output, which is shown as it comes."""
    for line in process.stdout or ():
        sys.stdout.write(line)
        sys.stdout.flush()
        yield line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
