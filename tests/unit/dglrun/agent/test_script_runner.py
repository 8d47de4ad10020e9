"""`python -m dglrun.agent.script_runner train.py` is `python train.py`, but for a bad end."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.dglrun_pods import ROOT

SHOW = """
import json, os, pathlib, pickle, sys
import __main__
class Model: pass
def where(): return pathlib.Path(__file__).name
if __name__ == "__main__":
    print(json.dumps({
        "argv": sys.argv[1:], "name": __name__, "file": os.path.basename(__file__),
        "path": sys.path[0] == os.path.dirname(os.path.realpath(__file__)),
        "spec": __spec__ is None, "main": __main__.where(), "cached": __cached__,
        "pickled": isinstance(pickle.loads(pickle.dumps(Model())), Model),
        "argv0": os.path.basename(sys.argv[0]),
    }))
"""


def run(folder: Path, script: str, *args: str, **env: str) -> tuple[int, str]:
    """Run a script by dglrun.agent.script_runner; returns code and output."""
    path = folder / "train.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "dglrun.agent.script_runner", str(path), *args],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "DGLRUN_CAUSES": str(folder), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


WITHOUT_LAST_RESORT = "import faulthandler\nfaulthandler.dump_traceback_later = lambda *_, **__: None\n"
"""Begins a script that the timer alone ends: the last resort, 0.5 s later, is too close on a busy machine."""


def cause(folder: Path) -> dict[str, object]:
    """The one cause that was recorded."""
    (path,) = folder.glob("*.json")
    found: dict[str, object] = json.loads(path.read_text())
    return found


def test_the_script_sees_what_it_always_sees(tmp_path: Path) -> None:
    """sys.argv, sys.path, __name__, __file__, pickling of its own classes: as without us."""
    code, ours = run(tmp_path, SHOW, "--lr", "0.1")
    argv = [sys.executable, str(tmp_path / "train.py"), "--lr", "0.1"]
    plain = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert code == 0
    assert json.loads(ours) == json.loads(plain.stdout)


def test_spawned_children_find_the_script(tmp_path: Path) -> None:
    """DGL spawns its samplers: the script's functions must be found in them, and run there only."""
    script = (
        "import multiprocessing, os\nprint('imported', __name__, flush=True)\n"
        "def work(n):\n    print('working', n, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context('spawn').Process(target=work, args=(3,))\n"
        "    p.start(); p.join(); print('code', p.exitcode)\n"
    )

    code, said = run(tmp_path, script)

    assert code == 0
    assert said.splitlines() == ["imported __main__", "imported __mp_main__", "working 3", "code 0"]


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        ("raise RuntimeError('told to')", 1, "RuntimeError: told to"),
        ("def f():\n    return 1 / 0\nf()", 1, "ZeroDivisionError"),
        ("import sys; sys.exit(7)", 7, "sys.exit(7)"),
        ("raise SystemExit(3)", 3, "sys.exit(3)"),
        ("raise SystemExit('no data')", 1, "no data"),
        ("exit(256)", 1, "sys.exit(256)"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--x'])", 2, "sys.exit(2)"),
        ("raise KeyboardInterrupt", 1, "KeyboardInterrupt"),
        ("this is no python", 1, "SyntaxError"),
    ],
)
def test_a_bad_end_is_quick_and_true(tmp_path: Path, end: str, code: int, words: str) -> None:
    """Nothing waits without need; the cause is recorded, the traceback is the script's own."""
    got, said = run(tmp_path, end + "\n")

    assert (got, cause(tmp_path)["code"]) == (code, code)
    assert words in str(cause(tmp_path)["words"])
    assert "dglrun/script.py" not in said
    if code == 1 and "Error" in words:
        assert words in said
        assert "train.py" in said


@pytest.mark.parametrize(("end", "code"), [("1 / 0", 1), ("sys.exit(7)", 7), ("raise KeyboardInterrupt", 1)])
def test_exit_handlers_and_open_files_have_their_end(tmp_path: Path, end: str, code: int) -> None:
    """A logger that is flushed at exit, a file that nobody closed: what they hold tells why it failed."""
    script = (
        "import atexit, logging, logging.handlers, sys\n"
        "log = logging.FileHandler('log.txt')\n"
        "logging.getLogger().addHandler(logging.handlers.MemoryHandler(1000, target=log))\n"
        "logging.error('step 3')\n"
        "table = open('loss.csv', 'w')\ntable.write('3,0.5')\n"
        "atexit.register(print, 'handler')\natexit.register(lambda: 1 / 0)\n"
    )

    got, said = run(tmp_path, script + end + "\n")

    assert got == code
    assert "handler\n" in said
    assert (tmp_path / "log.txt").read_text() == "step 3\n"
    assert (tmp_path / "loss.csv").read_text() == "3,0.5"


@pytest.mark.parametrize(
    ("handler", "code", "first"),
    [
        ("time.sleep(600)", 7, WITHOUT_LAST_RESORT),
        ("ctypes.PyDLL(None).sleep(600)", 1, ""),
        ("threading.Event().wait()", 7, WITHOUT_LAST_RESORT),
    ],
)
def test_an_exit_handler_that_hangs_is_cut_off(tmp_path: Path, handler: str, code: int, first: str) -> None:
    """Even C code that lets no other thread run; then the code is 1."""
    script = f"import atexit, ctypes, sys, threading, time\natexit.register(lambda: {handler})\nsys.exit(7)\n"

    got, _ = run(tmp_path, first + script)

    assert (got, cause(tmp_path)["code"]) == (code, 7)


def test_a_signal_shows_where_the_script_and_its_children_are(tmp_path: Path) -> None:
    """Whoever finds a process that hangs can ask it; it goes on."""
    script = (
        "import multiprocessing, os, signal, time\n"
        "def ask_in_child():\n    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "def ask():\n    os.kill(os.getpid(), signal.SIGUSR1)\n"
        "if __name__ == '__main__':\n    ask()\n"
        "    p = multiprocessing.get_context('spawn').Process(target=ask_in_child)\n"
        "    p.start(); p.join(); print('code', p.exitcode)\n"
    )

    code, said = run(tmp_path, script)

    assert code == 0
    assert "in ask\n" in said
    assert "in ask_in_child\n" in said
    assert "code 0\n" in said


def test_the_barrier_of_dgl_is_left_out(tmp_path: Path) -> None:
    """It waits for all clients, among them those that will never come."""
    script = (
        "import atexit, sys, time, types\n"
        "dgl = sys.modules['dgl.distributed.dist_context'] = types.ModuleType('dist_context')\n"
        "dgl.exit_client = lambda: print('waits') or time.sleep(600)\n"
        "atexit.register(print, 'mine')\natexit.register(dgl.exit_client)\n"
        "raise ValueError\n"
    )

    code, said = run(tmp_path, script)

    assert code == 1
    assert "mine" in said
    assert "waits" not in said


@pytest.mark.parametrize("end", ["pass", "import sys; sys.exit()", "import sys; sys.exit(0)"])
def test_a_good_end_takes_the_normal_way(tmp_path: Path, end: str) -> None:
    """Exit handlers run: DGL's barrier and the end of its servers depend on them."""
    code, said = run(tmp_path, f"import atexit\natexit.register(print, 'handler')\n{end}\n")

    assert (code, said) == (0, "handler\n")
    assert list(tmp_path.glob("*.json")) == []


def test_a_caught_exit_is_no_end(tmp_path: Path) -> None:
    """Only what reaches the top counts."""
    script = "import sys\ntry:\n    sys.exit(5)\nexcept SystemExit:\n    print('went on')\n"

    assert run(tmp_path, script) == (0, "went on\n")


def test_the_scripts_own_exception_hook_is_used(tmp_path: Path) -> None:
    """A pretty printer of tracebacks that the script has set keeps its work."""
    script = "import sys\nsys.excepthook = lambda t, v, tb: print('mine', v)\nraise ValueError('x')\n"

    assert run(tmp_path, script) == (1, "mine x\n")


def test_a_server_that_does_not_serve_is_an_error(tmp_path: Path) -> None:
    """A server's initialize never returns; a script that ends normally never called it."""
    served = run(tmp_path, "import sys; sys.exit()\n", DGL_ROLE="server")
    ended = run(tmp_path, "pass\n", DGL_ROLE="server")

    assert served[0] == 0
    assert ended[0] == 1
    assert "must call dgl.distributed.initialize" in str(cause(tmp_path)["words"])


def test_a_spawned_child_that_raises_leaves_at_once(tmp_path: Path) -> None:
    """A sampler might hang at its end, too; its cause is recorded under its own pid."""
    script = (
        "import multiprocessing\n"
        "def work():\n    import atexit, time\n    atexit.register(time.sleep, 600)\n"
        "    raise ValueError('bad batch')\n"
        "if __name__ == '__main__':\n"
        "    p = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    p.start(); p.join(); print('code', p.exitcode, p.pid)\n"
    )

    code, said = run(tmp_path, script)

    assert code == 0
    assert f"code 1 {cause(tmp_path)['pid']}" in said
    assert "ValueError: bad batch" in str(cause(tmp_path)["words"])


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    """With the folder in which it was looked for."""
    done = subprocess.run(
        [sys.executable, "-m", "dglrun.agent.script_runner", "none.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "none.py" in done.stderr
    assert str(tmp_path) in done.stderr
