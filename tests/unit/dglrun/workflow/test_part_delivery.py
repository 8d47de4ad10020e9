"""A partition served to pods that pull it: who is started, when again, and how it fails."""

import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.partition_files import PartitionFiles
from dglrun.transfer.pull import file_server, wire
from dglrun.transfer.pull.sums import sum_of
from dglrun.transfer.streams import Streams
from dglrun.workflow import part_delivery
from dglrun.workflow.part_delivery import PartDelivery, address_towards
from dglrun.workflow.steps import Puller, Serve
from tests.support.dglrun_pods import ROOT, write_partition
from tests.support.wait import wait_for

pytestmark = pytest.mark.timeout(120)

PULL = f"cd {shlex.quote(str(ROOT))}; exec {shlex.quote(sys.executable)} -S -m dglrun.transfer.pull --detach"


def nobody_knows(_pod: str) -> str | None:
    """The API server knows the pod, or does not answer."""
    return None


def deliver(
    tmp_path: Path,
    shell: str = PULL,
    *,
    workers: int = 1,
    limit: int = 16,
    seconds: float = 60.0,
    gone: Callable[[str], str | None] = nobody_knows,
) -> list[str]:
    """Serve a partition to pods in which `shell` stands for kubectl; returns how far it told to be."""
    write_partition(tmp_path / "dataset", workers)
    argv = ("sh", "-c", shell)
    pullers = tuple(
        Puller(f"job-worker-{part}", "127.0.0.1", argv, part, str(tmp_path / f"{part}/workload"))
        for part in range(workers)
    )
    config = str(tmp_path / "dataset/tiny.json")
    step = Serve("job-launcher", config, pullers, limit, 4, 2, keeps_sums=False, seconds=seconds)
    partition, told = PartitionFiles.find(Path(config), workers), list[str]()

    def tell(line: str, percent: int) -> None:
        told.append(f"{percent} %: {line}")

    PartDelivery(step, partition, Streams(), nobody_knows, gone, tell).run()
    return told


def test_each_worker_gets_its_part_and_the_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In the folder `workload`, however few may pull at a time."""
    deliver(tmp_path, workers=3, limit=1)

    for part in range(3):
        found = sorted(path.name for path in (tmp_path / f"{part}/workload").iterdir())
        assert found == [f"part{part}", "tiny.json"]
    said = capfd.readouterr().out
    assert said.count("sent 4 files, ") == 3


@pytest.mark.parametrize(("tries", "index"), [(0, 0), (1, 0), (2, 1), (100, -1)])
def test_a_copy_that_breaks_when_something_has_come_is_begun_again_soonest(tries: int, index: int) -> None:
    """It waited the longest pause: nothing had been tried since, and 0 - 1 is the last index."""
    assert part_delivery.pause_after(tries) == part_delivery.PAUSES[index]


def test_how_far_all_are_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the log for each and for all, and to the job's status in percent."""
    monkeypatch.setattr(part_delivery, "EVERY_SECONDS", 0.0)

    told = deliver(tmp_path, workers=2)

    said = capfd.readouterr().out
    assert "of 2 pods have their files, " in said
    assert "dglrun:   job-worker-1: " in said
    assert told[-1].startswith("100 %: 2 of 2 pods have their files, ")


def test_a_receiver_that_is_not_heard_of_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It said that it goes on and was killed, or its network is not there yet."""
    monkeypatch.setattr(part_delivery, "SILENT_SECONDS", 0.2)
    dies = f"[ -e {tmp_path}/once ] || {{ cat >/dev/null; touch {tmp_path}/once; echo started; exit; }}"

    deliver(tmp_path, f"{dies}\n{PULL}")

    assert (
        "the copy to job-worker-0 is begun again: nothing was heard of the receiver" in capfd.readouterr().out
    )
    assert (tmp_path / "0/workload/tiny.json").exists()


def test_a_receiver_that_is_heard_of_is_not_started_again_though_its_stream_broke(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream has done its work, whatever kubectl says at its end."""
    connected, looked, look = tmp_path / "connected", threading.Event(), PartDelivery._look_at_start

    def hold(part: memoryview) -> bytes:
        connected.touch()
        looked.wait(30)
        return sum_of(part)

    def look_at_start(*args: Any) -> None:
        look(*args)
        looked.set()

    monkeypatch.setattr(file_server, "sum_of", hold)
    monkeypatch.setattr(PartDelivery, "_look_at_start", look_at_start)
    pull = PULL.replace("exec ", "")
    breaks = f"while [ ! -e {connected} ]; do sleep 0.05; done; echo 'connection reset' >&2; exit 1"

    deliver(tmp_path, f"echo >>{tmp_path}/starts\n{pull} >/dev/null\n{breaks}")

    assert (tmp_path / "starts").read_text() == "\n"
    assert (tmp_path / "0/workload/tiny.json").exists()


def test_a_receiver_that_has_given_up_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A firewall that was loaded anew had refused it for some seconds; it says so when that is over."""
    monkeypatch.setattr(part_delivery, "BROKEN_SECONDS", 0.2)
    monkeypatch.setattr(part_delivery, "SILENT_SECONDS", 0.2)
    (tmp_path / "gives_up.py").write_text(GIVES_UP)
    gives_up = f"PYTHONPATH=. {shlex.quote(sys.executable)} -S {tmp_path}/gives_up.py"
    gives_up = f"touch {tmp_path}/once; cd {shlex.quote(str(ROOT))}; {gives_up}; exit"
    first = f"[ -e {tmp_path}/once ] || {{ {gives_up}; }}"

    deliver(tmp_path, f"{first}\n{PULL}")

    assert "the copy to job-worker-0 is begun again: nothing came from job-launcher" in capfd.readouterr().out
    assert (tmp_path / "0/workload/tiny.json").exists()


GIVES_UP = """
import sys
from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.transfer.pull import order
from dglrun.transfer.pull.receiver import Receiver

class Unlucky(Receiver):
    def _run(self):
        raise RunError("nothing came from job-launcher for 10.0 s", exitcodes.UNAVAILABLE)

try:
    Unlucky(order.decode(sys.stdin.readline())).run()
except RunError:
    print("started")
"""
"""A receiver that has given up, and whose owner can be reached again."""


def test_a_receiver_that_places_for_long_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all blocks and asks for nothing, which is no reason to end it."""
    placing, go_on, looks = tmp_path / "placing", tmp_path / "go_on", list[bool]()
    look = PartDelivery._look_at_start

    def look_at_start(*args: Any) -> None:
        if placing.exists():  # before, it has no connection at times, on a busy machine for longer than this
            monkeypatch.setattr(part_delivery, "BROKEN_SECONDS", 0.1)
            looks.append(True)
        look(*args)
        if len(looks) >= 30:
            go_on.touch()

    monkeypatch.setattr(part_delivery, "_TICK", 0.05)
    monkeypatch.setattr(wire, "SILENCE_SECONDS", 1.0)  # the owner's, on other connections
    monkeypatch.setattr(PartDelivery, "_look_at_start", look_at_start)
    (tmp_path / "slow.py").write_text(SLOW.format(placing=str(placing), go_on=str(go_on)))
    slow = f"{shlex.quote(sys.executable)} -S {tmp_path}/slow.py --detach"

    deliver(tmp_path, f"echo >>{tmp_path}/starts; cd {shlex.quote(str(ROOT))}; PYTHONPATH=. exec {slow}")

    assert (tmp_path / "starts").read_text() == "\n"
    assert (tmp_path / "0/workload/tiny.json").exists()


SLOW = """
import sys
from pathlib import Path
from dglrun.transfer.pull.__main__ import main
from dglrun.transfer.pull.staging import Staging
from tests.support.wait import wait_for

place = Staging.place

def slow(self, manifest):
    Path({placing!r}).touch()
    wait_for("the owner", Path({go_on!r}).exists)
    place(self, manifest)

Staging.place = slow
sys.exit(main(sys.argv[1:]))
"""
"""A receiver that places as long as the test wants."""


@pytest.mark.parametrize(
    ("shell", "seconds", "code", "words"),
    [
        ("echo no such command >&2; exit 127", 60.0, exitcodes.UNAVAILABLE, "no such command"),
        ("echo 'connection refused' >&2; exit 1", 2.0, exitcodes.UNAVAILABLE, "nothing was sent for 2 s"),
        ("cat >/dev/null; echo started", 2.0, exitcodes.UNAVAILABLE, "nothing was sent for 2 s"),
        (f"touch 0; {PULL}", 60.0, exitcodes.IO, "cannot be written: Not a directory"),
    ],
)
def test_a_copy_that_fails_names_pod_and_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, seconds: float, code: int, words: str
) -> None:
    """A command that the pod refuses, an API server or receiver that stays away, a folder that is none."""
    monkeypatch.chdir(tmp_path)

    with pytest.raises(RunError, match=f"copy to job-worker-0 failed: .*{words}") as caught:
        deliver(tmp_path, shell, seconds=seconds)

    assert caught.value.code == code


def test_an_api_server_that_refuses_for_a_while_is_no_refusal_by_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Caches that do not know the pod or the role yet: more often than a container may refuse."""
    monkeypatch.setattr(part_delivery, "PAUSES", (0.01,))
    says = [f"Error from server ({word}): not yet" for word in ("NotFound", "Forbidden")]
    refuses = "".join(
        f"[ -e {tmp_path}/try{at} ] || {{ touch {tmp_path}/try{at}; echo '{says[at % 2]}' >&2; exit 1; }}\n"
        for at in range(part_delivery.REFUSALS + 1)
    )

    deliver(tmp_path, refuses + PULL)

    assert (tmp_path / "0/workload/tiny.json").exists()


def test_a_pod_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its receiver has gone silent, and the API server says why."""
    monkeypatch.setattr(part_delivery, "SILENT_SECONDS", 0.1)

    with pytest.raises(RunError, match="copy to job-worker-0 failed: it was evicted") as caught:
        deliver(tmp_path, "cat >/dev/null; echo started", gone=lambda _pod: "it was evicted")

    assert caught.value.code == exitcodes.LOST


def test_an_api_server_that_does_not_answer_about_one_pod_holds_up_no_other(tmp_path: Path) -> None:
    """Another worker is done meanwhile, and the next one begins."""
    last, waited = tmp_path / "2/workload/tiny.json", list[bool]()

    def gone(_pod: str) -> None:
        wait_for("the others", last.exists)
        waited.append(True)

    once = f"[ -e {tmp_path}/once ] || {{ touch {tmp_path}/once; echo 'connection refused' >&2; exit 1; }}"
    first = f'IFS= read -r order\ncase "$order" in *{tmp_path}/0/workload\\"*) {once};; esac'
    pull = f"cd {shlex.quote(str(ROOT))}; printf '%s\\n' \"$order\" | {PULL.split('exec ')[1]}"

    deliver(tmp_path, f"{first}\n{pull}", workers=3, limit=2, gone=gone)

    assert waited == [True]


def test_the_address_is_the_one_on_the_way_to_the_other_pod() -> None:
    """A pod may have several networks."""
    assert address_towards("127.0.0.1") == "127.0.0.1"
    assert address_towards("127.0.0.9") == "127.0.0.1"
