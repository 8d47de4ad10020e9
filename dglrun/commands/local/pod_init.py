"""Process 1 of a sandbox: makes its namespaces and file system, says that it is ready, and reaps.

Started as a file, `python -I -S pod_init.py`, with a JSON object on stdin; it imports the standard library
alone. Its parent here is the process that has unshared the namespaces. Both end with `dglrun local`: the
kernel kills process 1 when its parent ends, and with it all of the sandbox.

The root is an overlay of this machine's: what a pod writes outside its mounts is in memory and goes with it.
"""

import ctypes
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_RDONLY, _REMOUNT, _BIND, _MOVE, _REC, _PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18
_PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> int:
    """Make the sandbox; the parent's part returns when process 1 has ended."""
    wanted = json.loads(sys.stdin.readline())
    _end_with_parent(wanted["parent"])
    said, words = os.pipe()
    flags = _NEWNS | _NEWUTS | _NEWIPC | _NEWPID | (_NEWNET if wanted["has_network"] else 0)
    _check(_libc.unshare(flags), "unshare")
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(said)
        _be_first(wanted, words, parent)
    os.close(words)
    with os.fdopen(said) as answer:
        print(json.dumps({"pid": child, "failed": answer.readline()}), flush=True)
    os.waitpid(child, 0)
    return 0


def _be_first(wanted: dict[str, Any], words: int, parent: int) -> None:
    try:
        # Of the parent's own number nothing is known in here: another namespace counts its processes anew.
        _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        _make_root(wanted)
        name = wanted["hostname"].encode()
        _check(_libc.sethostname(name, len(name)), "sethostname")
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
    except OSError as error:
        os.write(words, f"{error.filename or ''} {error.strerror}".strip().encode() + b"\n")
        os._exit(1)
    os.close(words)  # an end without words: all is well
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _make_root(wanted: dict[str, Any]) -> None:
    scratch = wanted["scratch"]
    _mount("none", "/", None, _REC | _PRIVATE)
    others = _mounts_below_root()
    _mount("tmpfs", scratch, "tmpfs", 0)
    new = f"{scratch}/new"
    for folder in ("upper", "work", "new"):
        Path(scratch, folder).mkdir()
    layers = f"lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work"
    _mount("overlay", new, "overlay", 0, layers)
    for place in others:
        if Path(new + place).exists():
            _mount(place, new + place, None, _BIND | _REC)
    for path, text in wanted["files"].items():
        Path(new + path).unlink(missing_ok=True)
        Path(new + path).write_text(text)
    for mount in wanted["mounts"]:
        _place(new, mount)
    _mount("proc", f"{new}/proc", "proc", 0)
    os.chdir(new)
    _mount(new, "/", None, _MOVE)
    os.chroot(".")
    os.chdir("/")


def _mounts_below_root() -> list[str]:
    """Other file systems of this machine, without those below others, which come with them."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = sorted({_unescaped(line.split()[4]) for line in lines} - {"/", "/proc"})
    found: list[str] = []
    for place in places:
        if not place.startswith("/proc/") and not any(place.startswith(f"{each}/") for each in found):
            found.append(place)
    return found


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def _place(new: str, mount: dict[str, Any]) -> None:
    source, target = mount["source"], new + mount["target"]
    if source is not None and not Path(source).is_dir():
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    else:
        Path(target).mkdir(parents=True, exist_ok=True)
    if source is None:
        _mount("tmpfs", target, "tmpfs", 0, "mode=1777")
        return
    _mount(source, target, None, _BIND | _REC)
    if mount["is_read_only"]:
        _mount("none", target, None, _BIND | _REMOUNT | _RDONLY)


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    done = _libc.mount(
        os.fsencode(source), os.fsencode(target), kind and kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    _check(done, f"mount {kind or source} at {target}:")


def _end_with_parent(parent: int) -> None:
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")
    if os.getppid() != parent:  # it ended before the kernel was told
        os._exit(1)


def _check(done: int, what: str) -> None:
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as problem:
        print(json.dumps({"pid": 0, "failed": f"{problem.filename or ''} {problem.strerror}".strip()}))
        sys.exit(1)
