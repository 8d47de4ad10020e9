"""The images' own scripts and habits."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from dglrun.contract import env, version
from images.requirements import requirements
from tests.support.operator_process import ALLOCATOR

IMAGES = Path(__file__).parents[3] / "images"
DOCKERFILES = sorted(IMAGES.rglob("Dockerfile"))


@pytest.fixture
def download(tmp_path: Path) -> list[str]:
    """kubectl-download with a kubectl beside it, as in its image; it copies into tmp_path/kube."""
    script = tmp_path / "kubectl-download.sh"
    script.write_bytes((IMAGES / "kubectl-download" / "kubectl-download.sh").read_bytes())
    (tmp_path / "kubectl").write_bytes(b"\x7fELF new")
    (tmp_path / "kube").mkdir()
    return ["sh", str(script), str(tmp_path / "kube")]


def test_kubectl_comes_whole_and_executable(download: list[str], tmp_path: Path) -> None:
    """Mode 0755, the right bytes, nothing else left; one that was there is replaced."""
    (tmp_path / "kube" / "kubectl").write_bytes(b"old")

    subprocess.run(download, check=True, capture_output=True)

    (found,) = (tmp_path / "kube").iterdir()
    assert (found.name, found.read_bytes()) == ("kubectl", b"\x7fELF new")
    assert found.stat().st_mode & 0o7777 == 0o755


def test_a_copy_that_fails_says_so(download: list[str], tmp_path: Path) -> None:
    """Exit 74 with the cause, and no half-written kubectl."""
    (tmp_path / "kube").rmdir()

    ended = subprocess.run(download, capture_output=True, text=True, check=False)

    assert ended.returncode == 74
    assert "kubectl-download: install:" in ended.stderr


@pytest.mark.parametrize(("number", "code"), [("", 0), ("1", 0), ("2", 0), ("3", 76), ("0", 76), ("x", 76)])
def test_kubectl_download_serves_the_contract_of_the_other_init_containers(
    download: list[str], tmp_path: Path, number: str, code: int
) -> None:
    """It is a shell script, so that its numbers stand there a second time."""
    environment = {**os.environ, env.CONTRACT_VERSION: number}
    served = version.refusal(environment, version.INIT_CONTAINER) is None

    ended = subprocess.run(download, capture_output=True, text=True, check=False, env=environment)

    assert (ended.returncode, served) == (code, code == 0)
    assert ended.stderr.count("\n") == (1 if code else 0)
    assert list((tmp_path / "kube").iterdir()) == ([] if code else [tmp_path / "kube" / "kubectl"])


@pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/usr/bin/setpriv").exists(), reason="needs root and setpriv"
)
def test_it_works_without_root(download: list[str], tmp_path: Path) -> None:
    """The image's user is 1000; an emptyDir is open to it."""
    (tmp_path / "kube").chmod(0o777)
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder.stat().st_mode & 0o001 == 0:
            folder.chmod(folder.stat().st_mode | 0o011)

    subprocess.run(["setpriv", "--reuid=1000", "--regid=0", "--clear-groups", *download], check=True)

    assert (tmp_path / "kube" / "kubectl").owner() != "root"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.parent.name)
def test_a_dockerfile_pins_its_parent_and_leaves_no_lists(dockerfile: Path) -> None:
    """No floating tag, no apt lists, and an image that does not run as root."""
    text = dockerfile.read_text()
    parents = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    users = re.findall(r"^USER (\S+)", text, re.MULTILINE)

    assert ":latest" not in text
    stages = re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE)
    assert all(p in stages or re.fullmatch(r"\$\{(BASE|JOB)_IMAGE\}", p) for p in parents)
    assert text.count("apt-get update") == text.count("rm -rf /var/lib/apt/lists/*")
    if "JOB_IMAGE" not in text:
        assert users
        assert users[-1].partition(":")[0] in {"1000", "65532"}


def test_watcher_loop_runs_on_the_folders_that_its_image_has(tmp_path: Path) -> None:
    """The Dockerfile copies few of dglrun's packages, and its entry point needs no other."""
    text = (IMAGES / "watcher-loop" / "Dockerfile").read_text()
    copied = re.findall(r"^COPY (dglrun/\S+) /opt/watcher-loop/(\S+)$", text, re.MULTILINE)
    for source, target in copied:
        here, there = IMAGES.parent / source, tmp_path / target
        if here.is_dir():
            shutil.copytree(here, there, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            there.mkdir(parents=True, exist_ok=True)
            shutil.copy(here, there)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)

    ended = subprocess.run(
        [sys.executable, *json.loads(entry)[1:]],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    pull = subprocess.run(
        [sys.executable, "-S", "-m", "dglrun.transfer.pull"],
        env={"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        input="",
        capture_output=True,
        text=True,
        check=False,
    )

    assert pull.returncode == 2
    assert pull.stderr.startswith("dglrun.transfer.pull: expected a receiver's order")
    assert {source for source, _ in copied} == {
        *("dglrun/__init__.py", "dglrun/errors.py", "dglrun/agent/__init__.py"),
        *("dglrun/agent/folder_mark.py", "dglrun/agent/tls.py"),
        *("dglrun/contract", "dglrun/kube", "dglrun/pod_waiter"),
        *("dglrun/transfer/__init__.py", "dglrun/transfer/pull"),
    }
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[0] == "watcher-loop: NAMESPACE is not set"


@pytest.mark.parametrize(
    ("argv", "expected", "absent"),
    [
        ([], {"numpy", "pyarrow", "pydantic"}, {"kopf"}),
        (["--extra", "kaminpar", "--extra", "tables"], {"kaminpar", "duckdb", "numpy"}, {"kopf"}),
        (["--extra", "operator", "--base", "pydantic,pyyaml"], {"kopf", "pydantic"}, {"numpy", "pyarrow"}),
    ],
)
def test_requirements_come_from_pyproject(argv: list[str], expected: set[str], absent: set[str]) -> None:
    """One home of versions: the images install what pyproject.toml says, in a layer below the code."""
    script = str(IMAGES / "requirements.py")
    out = subprocess.run(
        [sys.executable, script, "--pyproject", str(IMAGES.parent / "pyproject.toml"), *argv],
        check=True,
        capture_output=True,
        text=True,
    ).stdout

    names = {re.split(r"[^A-Za-z0-9._-]", line)[0] for line in out.splitlines()}
    assert names >= expected
    assert not names & absent


def test_an_unknown_extra_is_named() -> None:
    """A mistyped extra ends the build with one line."""
    ended = subprocess.run(
        [sys.executable, str(IMAGES / "requirements.py"), "--extra", "oprator"],
        cwd=IMAGES.parent,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 1
    assert "no extra oprator, there are dev, kaminpar, operator, tables" in ended.stderr


def test_a_local_run_gives_torch_the_label_of_the_job_image() -> None:
    """Debian's calls itself by a number that DGL refuses."""
    stack = (
        (IMAGES / "job" / "install-stack.sh").read_text().partition("debian_stack() {")[2].partition("\n}")[0]
    )
    local = (IMAGES.parent / ".ci" / "local").read_text()

    (label,) = set(re.findall(r"__version__ = '([\d.]+)'", stack)) - {"1.13.0"}
    assert f"s/^__version__ = .*/__version__ = '{label}'/" in local


LOCKS = {
    "operator/requirements.lock": (["operator"], {"pydantic", "pyyaml"}, None),
    "job/debian.lock": (["kaminpar", "tables"], None, "job/debian.in"),
    "job/pypi.lock": (["kaminpar", "tables"], None, "job/pypi.in"),
}


@pytest.mark.parametrize("lock", LOCKS)
def test_an_image_installs_locked_versions_that_fit(lock: str) -> None:
    """Each requirement has one version in the lock, and each version its hashes: `make lock` writes them."""
    extras, base, stack = LOCKS[lock]
    lines = requirements(IMAGES.parent / "pyproject.toml", extras, base)
    if stack:
        lines += [line for line in (IMAGES / stack).read_text().splitlines() if not line.startswith("#")]
    packages = (IMAGES / lock).read_text().replace("\\\n", " ").splitlines()[1:]
    versions = {line.partition("==")[0]: line.partition("==")[2].split()[0] for line in packages}

    assert [line for line in packages if "--hash=sha256:" not in line] == []
    for line in lines:
        wanted = Requirement(line)
        assert wanted.specifier.contains(versions[canonicalize_name(wanted.name)]), line


def test_the_operator_is_tested_with_the_allocator_of_its_image() -> None:
    """What its tests and benchmarks say of memory and CPU holds for users."""
    text = (IMAGES / "operator" / "Dockerfile").read_text()

    assert {
        name: value for name, value in re.findall(r"\b(PYTHONMALLOC|GLIBC_TUNABLES)=(\S+)", text)
    } == ALLOCATOR
