"""`dglrun local`: the pods of a DGLJob on this machine, without Kubernetes."""

import argparse
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar

from dglrun.commands.arguments import UsageError
from dglrun.commands.local import job as jobs
from dglrun.commands.local import run as runs
from dglrun.commands.local.job import Mount
from dglrun.commands.local.workdir import Workdir

_T = TypeVar("_T")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("job", type=Path, metavar="JOB.yaml", help="file with one DGLJob")
    parser.add_argument(
        "--workdir", type=Path, metavar="DIR", help="folder of the run (default: dgl-local/NAME-OF-THE-JOB)"
    )
    parser.add_argument(
        "--mount",
        type=_pair(":", "DIR:PATH", _mount),
        action="append",
        default=[],
        metavar="DIR:PATH",
        help="what the image has at PATH, read-only in every pod; may be repeated",
    )
    parser.add_argument(
        "--volume",
        type=_pair("=", "NAME=DIR", lambda name, folder: (name, folder)),
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="what the job's volume NAME is here; may be repeated",
    )
    parser.add_argument("--keep", action="store_true", help="keep the files of the pods")
    parser.add_argument(
        "--no-isolation", action="store_true", help="no namespaces, even as root: one worker at most"
    )


def run(args: argparse.Namespace) -> int:
    """Run a job; returns the exit code of its launcher, or of the partitioner that failed."""
    job = jobs.read(args.job, {name: Path(folder) for name, folder in args.volume})
    for note in job.notes:
        runs.say(f"note: {note}")
    mounts = tuple(args.mount)
    for mount in mounts:
        if mount.source is None or not mount.source.exists():
            raise UsageError(f"--mount: expected a folder or file of this machine, got {mount.source}")
    workdir = Workdir(args.workdir or Path("dgl-local", job.name))
    try:
        if workdir.clear():
            runs.say("note: removed the files of an earlier run")
        code = _perform(job, workdir, mounts, not args.no_isolation)
        _conclude(workdir)
    finally:
        if not args.keep:
            workdir.remove()
        workdir.close()
    return code


def _perform(job: jobs.LocalJob, workdir: Workdir, mounts: tuple[Mount, ...], is_isolated: bool) -> int:
    return runs.prepare(job, workdir, mounts, is_isolated).perform()


def _conclude(workdir: Workdir) -> None:
    files = [path for path in workdir.output.rglob("*") if path.is_file()]
    if files:
        runs.say(f"output, {len(files)} files: {workdir.output}")


def _mount(source: str, path: str) -> Mount:
    if not path.startswith("/"):
        raise argparse.ArgumentTypeError(f"expected an absolute path in the pods, got {path!r}")
    return Mount(str(PurePosixPath(path)), Path(source).absolute(), is_read_only=True, is_of_image=True)


def _pair(sign: str, form: str, make: Callable[[str, str], _T]) -> Callable[[str], _T]:
    def read(text: str) -> _T:
        first, found, second = text.partition(sign)
        if not (first and found and second):
            raise argparse.ArgumentTypeError(f"expected {form}, got {text!r}")
        return make(first, second)

    return read
