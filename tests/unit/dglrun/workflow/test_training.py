"""A whole launch with real agents and processes; only kubectl and the API server are stood in for."""

import os
import re
import signal
import sys

import pytest

from dglrun.agent import procfs
from dglrun.contract import exitcodes
from tests.support.dglrun_pods import Pods
from tests.support.wait import read_until, wait_for
from tests.unit.dglrun.conftest import PodsOf

PLACES = ("--workspace", "ws", "--dataset-dir", "dataset", "--shm-dir", "../shm")
TRAIN = """
import atexit, os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    Path("../shm/segment-" + Path.cwd().name).write_text("memory")
    while not list(Path("..").glob("over")):
        time.sleep(0.05)
    sys.exit()
rank = int(os.environ["RANK"])
"""
HANG = """
atexit.register(time.sleep, 600)  # as DGL's exit barrier does
print("rank", rank, "hangs", flush=True)
def hang():
    time.sleep(600)
"""
GOOD = """
print("rank", rank, "of", os.environ["WORLD_SIZE"], sys.argv[1:])
time.sleep(0.3)
Path("../over").touch()
"""


def flags(script: str, *more: str) -> tuple[str, ...]:
    """A command line that trains with a script."""
    return ("-g", "tiny", "--train-entry-point", script, *PLACES, *more)


def wait_until_quiet(pods: Pods) -> None:
    """Nothing of the run is left; an agent that was dismissed takes a moment to leave, not its lease."""
    wait_for("no process is left", lambda: not pods.processes(), 20)


def test_a_good_training_ends_with_0_and_its_output_is_here(pods: Pods) -> None:
    """Parts and addresses reach the workers, rank 0's files come back, agents leave."""
    script = pods.script(
        TRAIN + GOOD + 'if rank == 0: Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text("weights")\n'
    )

    done = pods.run(*flags(script, "--num-epochs", "3", "--", "--lr", "0.1"))

    assert done.code == 0, done.output
    assert done.message == ""
    assert (pods.launcher / "ws/output/model.pt").read_text() == "weights"
    for index in (0, 1):
        work = pods.worker(index) / "ws/workload"
        assert (work / f"part{index}/graph.dgl").read_text().startswith(f"{index} graph.dgl")
        assert not (work / f"part{1 - index}").exists()
        assert (pods.worker(index) / "ws/hostfile_revised").read_text() == "127.0.0.1 30050\n" * 2
        given = (
            "['--graph_name', 'tiny', '--ip_config', 'ws/hostfile_revised', "
            "'--part_config', 'ws/workload/tiny.json', '--num_epochs', '3', '--lr', '0.1']"
        )
        assert f"[worker-{index} trainer 0] rank {index} of 2 {given}" in done.output
    assert list((pods.root / "shm").iterdir()) == []
    wait_until_quiet(pods)


def test_the_log_has_the_phases_of_2021(pods: Pods) -> None:
    """Phase lines, rules and seconds are as people's scripts know them."""
    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    said = re.sub(r"[\d.]+ seconds", "N seconds", done.output)
    for number, title in ((3, "dispatch partitions"), (4, "revise hostfile"), (5, "launch the training")):
        assert f"Phase {number}/5: {title}\n----------\n" in said
        assert f"----------\nPhase {number}/5 finished\nPhase : N seconds\n" in said
    assert said.endswith("Total : N seconds\n")


def test_a_single_worker_works(pods_of: PodsOf) -> None:
    """One worker, two trainers, two servers: ranks and world size are right."""
    pods = pods_of(workers=1)
    pods.give_partition()

    done = pods.run(*flags(pods.script(TRAIN + GOOD), "--num-trainers", "2", "--num-servers", "2"))

    assert done.code == 0, done.output
    assert "[worker-0 trainer 0] rank 0 of 2" in done.output
    assert "[worker-0 trainer 1] rank 1 of 2" in done.output


@pytest.mark.parametrize(
    ("how", "code", "words"),
    [
        ('raise RuntimeError("told to raise")', 1, "RuntimeError: told to raise"),
        ("print('before the end'); sys.exit(7)", 7, "before the end"),
        ("raise SystemExit('no data here')", 1, "no data here"),
        ("os.kill(os.getpid(), 9)", 137, "rank 1 hangs"),
        ("os.abort()", 134, "rank 1 hangs"),
    ],
)
def test_the_first_rank_that_fails_ends_the_run(pods: Pods, how: str, code: int, words: str) -> None:
    """Code, worker, rank and last log lines are told; exit handlers that hang do not matter."""
    fails = f"if rank == 1:\n    print('now', flush=True)\n    {how}\n"
    script = pods.script(TRAIN + HANG + f"time.sleep(0.2)\n{fails}hang()\n")

    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] now")
        done = pods.finish(process)

    assert done.code == code, done.output
    first, *rest = done.message.splitlines()
    assert first.startswith("dglrun: job-worker-1: trainer 0 (rank 1) ended with exit code " + str(code))
    assert words in "\n".join(rest)
    assert done.output.endswith(done.message)
    assert "Phase 5/5 error raised" in done.output
    wait_until_quiet(pods)
    assert list((pods.root / "shm").iterdir()) == []


def test_a_server_that_is_killed_fails_the_run(pods: Pods) -> None:
    """Trainers would wait without limit for a server that is gone."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    with pods.started(*flags(script)) as process:
        said = read_until(process, "[worker-1 server 0] started")
        said += read_until(process, "rank 1 hangs")
        pid = re.search(r"\[worker-1 server 0\] started \(process (\d+)\)", said)
        assert pid

        os.kill(int(pid[1]), signal.SIGKILL)
        done = pods.finish(process)

    assert done.code == 137
    assert done.message.startswith("dglrun: job-worker-1: server 0 ended with exit code 137 (SIGKILL)")


def test_a_server_that_never_serves_fails_the_run(pods: Pods) -> None:
    """A script that does not call initialize would leave the trainers waiting for ever."""
    script = pods.script("import os, time\nif os.environ['DGL_ROLE'] == 'client': time.sleep(600)\n")

    done = pods.run(*flags(script))

    assert done.code == 1
    assert "server 0 ended with exit code 1" in done.message
    assert "must call dgl.distributed.initialize" in done.message


@pytest.mark.parametrize("how", ["os.kill(os.getpid(), 9)", "raise ValueError('bad batch')", "sys.exit(5)"])
def test_a_sampler_that_dies_fails_the_run(pods: Pods, how: str) -> None:
    """A spawned child of a trainer that ends badly is noticed although its parent never asks."""
    script = pods.script(
        "import multiprocessing, os, sys, time\n"
        "if os.environ['DGL_ROLE'] == 'server':\n    time.sleep(600)\n"
        f"def sample():\n    time.sleep(2)\n    {how}\n"
        "if __name__ == '__main__':\n"
        "    if os.environ['RANK'] == '1':\n"
        "        multiprocessing.get_context('spawn').Process(target=sample, daemon=True).start()\n"
        "    time.sleep(600)\n"
    )

    done = pods.run(*flags(script))

    assert done.code == {"o": 137, "r": 1, "s": 5}[how[0]], done.output
    assert done.message.startswith("dglrun: job-worker-1: sampler of trainer 0 (rank 1)")
    if how.startswith("raise"):
        assert "ValueError: bad batch" in done.message


def test_a_script_that_is_missing_is_said(pods: Pods) -> None:
    """The message names the script; nothing hangs."""
    done = pods.run(*flags("code/none.py"))

    assert done.code == 2
    assert "code/none.py" in done.message


def test_sigterm_stops_everything(pods: Pods) -> None:
    """Exit code 143, no process, no segment on the workers that live on."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    with pods.started(*flags(script)) as process:
        read_until(process, "hangs")
        wait_for("segments", lambda: len(list((pods.root / "shm").iterdir())) == 2)

        process.send_signal(signal.SIGTERM)
        done = pods.finish(process)

    assert done.code == 143
    assert "ended by SIGTERM" in done.message
    wait_until_quiet(pods)
    assert list((pods.root / "shm").iterdir()) == []


def test_a_lost_connection_is_not_a_lost_trainer(pods: Pods) -> None:
    """The connection breaks, the training goes on, no line of output is missed, the run ends well."""
    count = (
        "for n in range(30):\n    print('step', n, flush=True)\n"
        "    while n == 10 and not Path('../broke').exists(): time.sleep(0.05)\n"
    )
    script = pods.script(TRAIN + count + GOOD)
    pods.put_proxies()
    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] step 3")
        pods.break_connection(1)
        said = read_until(process, "[worker-1 agent] the connection broke")
        (pods.root / "broke").touch()
        done = pods.finish(process)

    assert done.code == 0, done.output
    steps = re.findall(r"\[worker-1 trainer 0\] step (\d+)", said + done.output)
    assert [int(n) for n in steps] == list(range(4, 30))


def test_a_flood_of_output_harms_nothing(pods: Pods) -> None:
    """More lines than can be printed in a lease: none is lost, the order holds, the workers hear of us."""
    flood = "for n in range(60_000): print('line', n)\n"
    script = pods.script(TRAIN + flood + GOOD)

    done = pods.run(*flags(script, "--lease", "5"))

    assert done.code == 0, done.output[-2000:]
    for index in (0, 1):
        told = re.findall(rf"\[worker-{index} trainer 0\] line (\d+)\n", done.output)
        assert [int(n) for n in told] == list(range(60_000))


def test_a_log_that_nobody_reads_stops_no_training(pods: Pods) -> None:
    """Output waits on the workers, heartbeats go on; nothing is lost when the reader is back."""
    lease = 6
    flood = f"for n in range(60_000): print('line', n)\ntime.sleep({2 * lease})\n"
    marker = 'Path("../through." + str(rank)).touch()\n'
    script = pods.script(TRAIN + flood + marker + GOOD)

    with pods.started(*flags(script, "--lease", str(lease))) as process:
        for rank in (0, 1):
            wait_for(f"rank {rank} at its end", (pods.root / f"through.{rank}").exists, 120)
        done = pods.finish(process)

    assert done.code == 0, done.output[-2000:]
    for index in (0, 1):
        told = re.findall(rf"\[worker-{index} trainer 0\] line (\d+)\n", done.output)
        assert [int(n) for n in told] == list(range(60_000))


def test_letters_that_the_log_does_not_have_are_written_another_way(pods: Pods) -> None:
    """An error of the thread that prints left a good run waiting for ever."""
    script = pods.script(TRAIN + "os.write(1, b'loss \\xe4\\xb8\\xad\\n')\n" + GOOD)

    done = pods.run(*flags(script), PYTHONIOENCODING="latin-1")

    assert done.code == 0, done.output
    assert "[worker-1 trainer 0] loss \\u4e2d\n" in done.output


def test_a_training_needs_no_api_server(pods: Pods) -> None:
    """It stays away, a connection breaks and is made anew, the output comes; no kubectl runs meanwhile."""
    count = "for n in range(30):\n    print('step', n, flush=True)\n    time.sleep(0.1)\n"
    save = 'Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text(f"of {rank}")\n'
    script = pods.script(TRAIN + count + GOOD + save)
    pods.put_proxies()
    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] step 3")
        pods.stop_api_server()
        children = procfs.descendants(process.pid, procfs.table())
        pods.break_connection(1)
        read_until(process, "[worker-1 agent] the connection broke")
        done = pods.finish(process)

    assert children == ()
    assert done.code == 0, done.output
    assert "[worker-1 trainer 0] step 29" in done.output
    output = pods.launcher / "ws/output"
    assert [(output / name).read_text() for name in ("model.pt", "job-worker-1/model.pt")] == ["of 0", "of 1"]
    assert "dglrun pack" not in (pods.root / "execs").read_text()


IDLE = """
import os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    time.sleep(600)
rank = int(os.environ["RANK"])
def waits_for_ever():
    time.sleep(600)
"""


def test_a_training_that_hangs_shows_its_stacks_and_fails(pods: Pods) -> None:
    """DGL and torch wait without limit; the rank that stopped first is named, with what it waits in."""
    goes_on = (
        "if rank == 1:\n    Path('../waits').touch()\n    waits_for_ever()\n"
        "while not Path('../waits').exists():\n    time.sleep(0.1)\n"
        "for n in range(100):\n    print('step', n)\n    time.sleep(0.1)\n"
    )
    script = pods.script(IDLE + goes_on + "waits_for_ever()\n")

    done = pods.run(*flags(script, "--hang-timeout", "4"))

    assert done.code == 79, done.output
    first, *stack = done.message.splitlines()
    assert first.startswith("dglrun: the training hangs: no process was active for 4 s (--hang-timeout); ")
    assert "idle longest: job-worker-1: trainer 0 (rank 1), " in first
    assert "rank 0" not in first
    assert "in waits_for_ever" in "\n".join(stack)
    for who in ("worker-0 trainer 0", "worker-1 trainer 0", "worker-0 server 0"):
        assert re.search(rf"\[{who}\]   File \".*train.py\", line", done.output), done.output
    assert pods.processes() == {}


BUSY = "end = time.time() + 9\nwhile time.time() < end:\n    pass\nPath('../over').touch()\n"


def test_a_training_that_computes_in_silence_does_not_hang(pods: Pods) -> None:
    """A rank on a CPU is active while it uses one, though its peer waits and nobody writes a line."""
    wait = "if rank == 1:\n    while not Path('../over').exists():\n        time.sleep(0.5)\n    sys.exit()\n"

    done = pods.run(*flags(pods.script(TRAIN + wait + BUSY), "--hang-timeout", "4"))

    assert done.code == 0, done.output


def test_a_rank_on_a_gpu_that_only_spins_hangs(pods: Pods) -> None:
    """A barrier of nccl keeps a CPU busy, so that only output counts where the container has GPUs."""
    spin = "while True:\n    pass\n"

    done = pods.run(*flags(pods.script(IDLE + spin), "--hang-timeout", "4"), DGL_OPERATOR_GPUS_PER_WORKER="1")

    assert done.code == 79, done.output


def test_a_lost_launcher_leaves_nothing_running(pods: Pods) -> None:
    """Killed without a word, it stops renewing the lease: the workers end all by themselves."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    with pods.started(*flags(script, "--lease", "6")) as process:
        read_until(process, "hangs")
        process.kill()

    wait_for("nothing runs", lambda: not pods.processes())
    assert list((pods.root / "shm").iterdir()) == []


def test_a_new_launcher_never_mixes_with_remains(pods: Pods) -> None:
    """The agents of a launcher that was lost are ended before a new run begins."""
    script = pods.script(TRAIN + HANG + "hang()\n", "first.py")
    lease = "300"  # on a busy machine they would end themselves before the new launcher is there
    with pods.started(*flags(script, "--lease", lease)) as process:
        read_until(process, "hangs")
        process.kill()
    second = pods.script(TRAIN + GOOD, "second.py")

    done = pods.run(*flags(second))

    assert done.code == 0, done.output
    assert "ended the agent of an earlier run" in done.output
    assert not [line for line in pods.processes().values() if "first.py" in line]


def test_a_killed_agent_takes_its_processes_along(pods: Pods) -> None:
    """Without its agent a trainer must not live on; the run fails and names the worker."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 hangs")
        os.kill(pods.agent_pid(1), signal.SIGKILL)
        done = pods.finish(process)

    assert done.code == 75, done.output
    assert "job-worker-1: agent no agent runs on this worker" in done.message


def test_a_worker_that_is_deleted_fails_the_run(pods: Pods) -> None:
    """The connection breaks and the API server knows the pod no more: the loss is told at once."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    with pods.started(*flags(script, "--lease", "6")) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 hangs")
        pods.write_cluster(job_worker_1=None)
        os.kill(pods.agent_pid(1), signal.SIGKILL)
        done = pods.finish(process)

    assert done.code == 75
    assert "job-worker-1" in done.message
    assert "does not exist" in done.message


def test_a_worker_without_an_address_is_waited_for(pods: Pods) -> None:
    """No hostfile with holes, no launch without all addresses."""
    pods.write_cluster(job_worker_1={"phase": "Pending"})

    done = pods.run(*flags(pods.script(TRAIN + GOOD), "--start-timeout", "1"))

    assert done.code == 124
    assert "job-worker-1 has no IP" in done.message
    assert not (pods.root / "execs").exists()


def test_an_address_that_is_not_the_pods_is_refused(pods: Pods) -> None:
    """DGL would silently take the process for machine 0."""
    pods.write_cluster(job_worker_1={"phase": "Running", "podIP": "10.1.2.3"})

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 69
    assert "pod IP 10.1.2.3 is on no interface of this pod" in done.message


def test_a_partition_for_another_number_of_workers_is_refused(pods_of: PodsOf) -> None:
    """Nothing is sent; both numbers are named."""
    pods = pods_of(workers=2)
    pods.give_partition(parts=3)

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 65
    assert "num_parts: expected 2, found 3" in done.message
    assert not (pods.root / "execs").exists()


def test_parts_are_pulled_side_by_side(pods_of: PodsOf) -> None:
    """No receiver waits for another one: each sees the others begin before it ends."""
    pods = pods_of(workers=4)
    pods.give_partition()
    together = pods.root / "before_exec"
    together.write_text(
        '#!/bin/sh\n[ "$4" = dglrun.transfer.pull ] || exit 0\ntouch "../begun.$1"\n'
        "for _ in $(seq 1200); do [ $(ls .. | grep -c begun) = 4 ] && exit 0; sleep 0.05; done; exit 1\n"
    )
    together.chmod(0o755)

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 0, done.output


def test_an_output_that_only_another_worker_has_comes_too(pods: Pods) -> None:
    """DGL's rank 0 need not be torch's: who saved decides (dgl-runtime.md section 6)."""
    save = 'if rank == 1: Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text("weights")\n'

    done = pods.run(*flags(pods.script(TRAIN + GOOD + save)))

    assert done.code == 0, done.output
    assert (pods.launcher / "ws/output/model.pt").read_text() == "weights"


def test_an_output_that_cannot_be_uploaded_is_told_before_the_training(pods: Pods) -> None:
    """A mistake in --output would else be found after days."""
    done = pods.run(*flags(pods.script(TRAIN + GOOD), "--output", "ftp://host/run"))

    assert done.code == 65, done.output
    assert "dglrun: --output: ftp://host: expected a path or a URI" in done.output
    assert "the check of --output" in done.output
    assert not (pods.worker(0) / "ws/workload").exists()


def test_the_output_of_each_worker_has_its_own_place(pods: Pods) -> None:
    """Worker 0's files are at the top, those of others in a folder named after the worker; none is mixed."""
    save = 'Path(os.environ["DGL_OUTPUT_DIR"], "rank.txt").write_text(str(rank))\n'

    done = pods.run(*flags(pods.script(TRAIN + GOOD + save)))

    output = pods.launcher / "ws/output"
    assert done.code == 0, done.output
    assert (output / "rank.txt").read_text() == "0"
    assert (output / "job-worker-1/rank.txt").read_text() == "1"


def test_the_output_of_a_failed_training_comes_too(pods: Pods) -> None:
    """Checkpoints outlive the workers; code and message stay those of the failure."""
    save = (
        'out = Path(os.environ["DGL_OUTPUT_DIR"])\n(out / "epoch-3.pt").write_text(f"of {rank}")\n'
        "Path(f'../saved.{rank}').touch()\n"
        "while len(list(Path('..').glob('saved.*'))) < 2:\n    time.sleep(0.05)\n"
        "if rank == 1:\n    sys.exit(7)\ntime.sleep(600)\n"
    )

    done = pods.run(*flags(pods.script(TRAIN + save)))

    output = pods.launcher / "ws/output"
    assert done.code == 7, done.output
    assert done.message.startswith("dglrun: job-worker-1: trainer 0 (rank 1) ended with exit code 7")
    assert (output / "epoch-3.pt").read_text() == "of 0"
    assert (output / "job-worker-1/epoch-3.pt").read_text() == "of 1"
    assert "Phase 5/5 error raised" in done.output


def test_exit_handlers_of_a_failed_rank_run_while_all_is_stopped(pods: Pods) -> None:
    """They get their time although the run is over, the rank's failure is told first, its files come home."""
    late = (
        "if rank == 1:\n"
        "    def save():\n        Path('../failing').touch()\n        time.sleep(1)\n"
        "        Path(os.environ['DGL_OUTPUT_DIR'], 'last.pt').write_text('weights')\n"
        "    atexit.register(save)\n    raise ValueError('bad batch')\n"
        "while not Path('../failing').exists():\n    time.sleep(0.01)\n"
        "raise ConnectionError('Connection closed by peer')\n"
    )

    done = pods.run(*flags(pods.script(TRAIN + late)))

    assert done.code == 1, done.output
    assert done.message.startswith("dglrun: job-worker-1: trainer 0 (rank 1) ended with exit code 1")
    assert "ValueError: bad batch" in done.message
    assert (pods.launcher / "ws/output/last.pt").read_text() == "weights"


def test_the_output_of_a_worker_without_agent_comes_too(pods: Pods) -> None:
    """Nobody has counted its files, so it is asked."""
    save = 'Path(os.environ["DGL_OUTPUT_DIR"], "model.pt").write_text(f"of {rank}")\n'
    script = pods.script(TRAIN + HANG + save + "print('saved', flush=True)\nhang()\n")
    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] saved")
        os.kill(pods.agent_pid(1), signal.SIGKILL)
        done = pods.finish(process)

    assert done.code == 75, done.output
    assert (pods.launcher / "ws/output/job-worker-1/model.pt").read_text() == "of 1"


def test_files_of_any_name_are_output(pods: Pods) -> None:
    """A dangling link, a backslash or bytes that are no text cost nobody a finished training."""
    save = (
        'out = os.fsencode(os.environ["DGL_OUTPUT_DIR"])\n'
        "if rank == 0:\n"
        "    for name in (b'a\\\\b', b'two\\nlines', b'\\xff', b'-x'):\n"
        "        open(os.path.join(out, name), 'wb').write(name)\n"
        "    os.symlink('gone', os.path.join(out, b'latest'))\n"
    )

    done = pods.run(*flags(pods.script(TRAIN + GOOD + save)))

    output = os.fsencode(pods.launcher / "ws/output")
    assert done.code == 0, done.output
    assert sorted(os.listdir(output)) == sorted([b"a\\b", b"two\nlines", b"\xff", b"-x"])  # noqa: PTH208 - bytes
    assert "note: job-worker-0: not copied: ws/output/latest is a link to gone" in done.output
    assert "  'two\\nlines' (9 bytes)\n" in done.output


FULL = """
import os, sys
run = 'mkdir -p ws/output && mount -t tmpfs -o size=64k tmpfs ws/output && "$@"'
keep = 'code=$?; cp ws/output/job-worker-1/model.pt ..; exit $code'
argv = ["unshare", "--mount", "sh", "-c", f"{run}; {keep}", "sh"]
os.execvp(argv[0], [*argv, sys.executable, "-m", "tests.support.dglrun_main", *sys.argv[1:]])
"""


def test_a_full_disk_is_named_and_leaves_other_workers_alone(
    pods: Pods, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line with the file and an exit code of its own; what fits of the others is there."""
    save = (
        'out = Path(os.environ["DGL_OUTPUT_DIR"])\n'
        "if rank == 0:\n    (out / 'big').write_bytes(bytes(1 << 20))\n"
        "(out / 'model.pt').write_text('weights')\n"
    )
    main = pods.root / "full.py"
    main.write_text(FULL)
    monkeypatch.setattr("tests.support.dglrun_pods.MAIN", (str(main),))

    done = pods.run(*flags(pods.script(TRAIN + GOOD + save)))

    assert done.code == 71, done.output
    assert done.message == "dglrun: ws/output/big: cannot be written: No space left on device\n"
    assert (pods.root / "model.pt").read_text() == "weights"


def test_a_shared_output_folder_is_not_copied_onto_itself(pods: Pods) -> None:
    """On a volume that all pods mount each worker's copy would hold those of the workers before it."""
    shared = pods.root / "shared"
    save = 'Path(os.environ["DGL_OUTPUT_DIR"], f"of-{rank}").write_text("weights")\n'

    done = pods.run(*flags(pods.script(TRAIN + GOOD + save), "--output-dir", str(shared)))

    assert done.code == 0, done.output
    assert sorted(path.name for path in shared.iterdir()) == ["of-0", "of-1"]
    assert "is the launcher's own output folder" in done.output


def test_servers_that_outlive_the_trainers_are_stopped(pods: Pods, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainers' good end holds; the log says so."""
    script = pods.script(TRAIN + "print('rank', rank)\n")
    main = pods.root / "patience.py"
    main.write_text(
        "import dglrun.workflow.plan, runpy\ndglrun.workflow.plan.SERVERS_SECONDS = 1\n"
        "runpy.run_module('tests.support.dglrun_main', run_name='__main__')\n"
    )
    monkeypatch.setattr("tests.support.dglrun_pods.MAIN", (str(main),))

    done = pods.run(*flags(script))

    assert done.code == 0, done.output
    assert "servers outlived the trainers and are stopped" in done.output
    wait_until_quiet(pods)


def test_progress_is_reported_and_its_failure_is_harmless(pods: Pods) -> None:
    """The report has the stages in order, success last; without an API server the job goes on.

    A stage that is over before the one before it has been written is not seen.
    """
    order = ["Dispatching", "Training", "Collecting", "Completed"]
    script = pods.script(TRAIN + GOOD)
    with_reports = pods.run(*flags(script))
    stages = [progress["stage"] for progress in pods.reports()]
    (pods.root / "no-reports").touch()

    without = pods.run(*flags(script))

    assert with_reports.code == 0
    assert list(dict.fromkeys(stages)) == [stage for stage in order if stage in stages]
    assert {"Training", "Completed"} <= set(stages)
    assert stages[-1] == "Completed"
    assert without.code == 0
    assert "progress is not reported" in without.output


def test_what_rank_0_tells_is_reported(pods: Pods) -> None:
    """Epoch and loss of the last call stand in the report to the end; other ranks tell nothing."""
    tells = (
        "from dglrun import progress\nfor n in range(50): progress(epoch=n + 100 * rank, loss=1 / (n + 1))\n"
    )

    done = pods.run(*flags(pods.script(TRAIN + tells + GOOD)))

    assert done.code == 0, done.output
    last = pods.reports()[-1]
    assert (last["stage"], last["epoch"], last["loss"]) == ("Completed", 49, "0.02")
    assert all(report.get("epoch", 0) < 100 for report in pods.reports())


def refuse_starts(pods: Pods, how: str) -> None:
    """Have `kubectl exec` of an agent do something else first; parts are sent as usual."""
    refuse = pods.root / "before_exec"
    refuse.write_text(f'#!/bin/sh\n[ "$4" = dglrun.agent ] || exit 0\n{how}\n')
    refuse.chmod(0o755)


@pytest.mark.parametrize(
    "words",
    [
        'error: OCI runtime exec failed: exec: "/python": stat /python: no such file or directory',
        "/usr/bin/python3: No module named dglrun\ncommand terminated with exit code 1",
    ],
)
def test_a_container_that_cannot_run_dglrun_is_said(pods: Pods, words: str) -> None:
    """A worker image without dglrun ends the run soon, with kubectl's words."""
    (pods.root / "words").write_text(words)
    refuse_starts(pods, "cat ../words >&2; exit 1")

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 69
    assert f"could not be started: {words.splitlines()[-1]}" in done.message


@pytest.mark.parametrize("package", ["dglrun", "dglrun/agent"])
def test_a_worker_of_another_release_is_refused(pods: Pods, package: str) -> None:
    """By the words of its Python, with the exit code of a contract that differs; it is asked once."""
    folder = pods.root / "image"
    for each in ("dglrun", package):
        (folder / each).mkdir(parents=True, exist_ok=True)
        (folder / each / "__init__.py").touch()
    refuse_starts(pods, f"echo >>../tries.$1; cd {folder}; {sys.executable} -m dglrun.agent >&2; exit 1")

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == exitcodes.CONTRACT
    assert "the worker's image is of another release than the launcher's" in done.message
    assert done.message.count("\n") <= 1
    assert {each.read_text() for each in pods.root.glob("tries.*")} == {"\n"}


def test_a_start_that_does_not_reach_the_worker_is_tried_again(pods: Pods) -> None:
    """Whatever kubectl calls it; the log says each thing once."""
    refuse_starts(
        pods,
        "n=$(cat ../tries.$1 2>/dev/null || echo 0); echo $((n+1)) >../tries.$1\n"
        '[ $n -ge 4 ] || { echo "error: the way to the pod has a hole" >&2; exit 1; }',
    )

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 0, done.output
    assert (pods.root / "tries.job-worker-0").read_text() == "5\n"
    assert done.output.count("[worker-0 agent] not started: error: the way to the pod has a hole") == 1


def test_a_worker_that_is_never_reached_is_told_with_kubectls_words(pods: Pods) -> None:
    """At the deadline the words of the last attempt are there."""
    refuse_starts(pods, '[ "$1" != job-worker-1 ] || { echo "error: a hole" >&2; exit 1; }')

    done = pods.run(*flags(pods.script(TRAIN + GOOD), "--start-timeout", "10"))

    assert done.code == 69
    assert re.search(r"no agent within 10 s on \[.*'job-worker-1'\]", done.message)
    assert "job-worker-1: error: a hole" in done.message


def test_a_worker_that_may_not_be_reached_ends_the_run(pods: Pods) -> None:
    """The API server is asked itself; kubectl's words decide nothing."""
    (pods.root / "forbidden").write_text("job-worker-1\n")
    refuse_starts(pods, '[ "$1" != job-worker-1 ] || { echo "error: a hole" >&2; exit 1; }')

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 69
    assert "this account may not exec into pod job-worker-1" in done.message


def test_a_busy_api_server_is_asked_again(pods: Pods) -> None:
    """Kubectl exec that fails to connect is begun again, parts and starts alike."""
    busy = pods.root / "before_exec"
    busy.write_text(
        "#!/bin/sh\nn=$(cat ../tries.$1 2>/dev/null || echo 0); echo $((n+1)) >../tries.$1\n"
        '[ $n -ge 2 ] && exit 0\necho "Error from server (TooManyRequests): wait" >&2; exit 1\n'
    )
    busy.chmod(0o755)

    done = pods.run(*flags(pods.script(TRAIN + GOOD)))

    assert done.code == 0, done.output


def test_sigterm_while_parts_are_pulled_ends_at_once(pods: Pods) -> None:
    """Starts that wait for a slow container hold nobody up; nothing was started on the workers."""
    stuck = pods.root / "wrap"
    stuck.write_text(
        "#!/bin/sh\nshift\n"
        '[ "$3" = dglrun.transfer.pull ] && { touch ../stuck; exec sleep 600; }\nexec "$@"\n'
    )
    stuck.chmod(0o755)
    with pods.started(*flags(pods.script(TRAIN + GOOD))) as process:
        wait_for("a start is stuck", (pods.root / "stuck").exists)

        process.send_signal(signal.SIGTERM)
        done = pods.finish(process)

    assert done.code == 143, done.output
    assert not (pods.worker(0) / "ws").exists()


def test_sigterm_while_a_connection_is_broken_stops_that_worker_too(pods: Pods) -> None:
    """The stop is told again when the connection is taken up again."""
    script = pods.script(TRAIN + HANG + "hang()\n")
    pods.put_proxies()
    with pods.started(*flags(script)) as process:
        read_until(process, "[worker-1 trainer 0] rank 1 hangs")
        pods.break_connection(1)
        process.send_signal(signal.SIGTERM)
        done = pods.finish(process)

    assert done.code == 143
    wait_until_quiet(pods)
