"""Two workers whose checkpoints are on a real S3 server: new pods go on from what all ranks have there."""

import re
from pathlib import Path

import pytest

from dglrun.formats import store
from tests.support.dglrun_pods import ROOT, Pods
from tests.support.wait import read_until, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.dgl]

HELD, LAST = 3, 6
"""Epochs after which the training that is lost waits, and after which each one ends."""
LEARN = f"""
import hashlib, os, sys, time
from pathlib import Path
if os.environ["DGL_ROLE"] == "server":
    while not Path("../over").exists():
        time.sleep(0.05)
    sys.exit()
import torch
from torch import distributed as dist
sys.path.insert(0, {str(ROOT / "images/examples/graphsage/code")!r})
import checkpoints

dist.init_process_group("gloo")
rank, folder = dist.get_rank(), checkpoints.folder()

def least(number):
    lowest = torch.tensor(number)
    dist.all_reduce(lowest, dist.ReduceOp.MIN)
    return int(lowest.item())

torch.manual_seed(5)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
inputs = torch.randn(2, 40, 6)[rank]  # each rank has samples of its own
begin = checkpoints.newest_of_all(checkpoints.saved(folder), least)
if begin:
    state = checkpoints.load(folder, begin)
    assert state["rank"] == rank
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
print(f"rank {{rank}} begins after epoch {{begin}}", flush=True)
for epoch in range(begin + 1, {LAST} + 1):
    optimizer.zero_grad()
    (model(inputs) - inputs.sum(dim=1, keepdim=True)).pow(2).mean().backward()
    for each in model.parameters():
        dist.all_reduce(each.grad)
    optimizer.step()
    state = {{"rank": rank, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}
    checkpoints.save(folder, epoch, state)
    if epoch == {HELD} and Path("../hold").exists():
        print(f"rank {{rank}} waits", flush=True)
        time.sleep(600)
flat = torch.cat([each.detach().flatten() for each in model.parameters()])
print(f"rank {{rank}} has learnt {{hashlib.sha256(flat.numpy().tobytes()).hexdigest()}}", flush=True)
dist.barrier()
Path("../over").touch()
"""
"""Adam's steps depend on all earlier ones: who begins anew, or with another state, differs."""


def workers(folder: Path) -> Pods:
    """Two new workers with their parts ready on the launcher."""
    pods = Pods(folder)
    pods.give_partition()
    return pods


def training(pods: Pods, *more: str) -> tuple[str, ...]:
    """The launcher's command line."""
    places = ("--workspace", "ws", "--dataset-dir", "dataset", "--shm-dir", "../shm")
    return ("-g", "tiny", *places, "--train-entry-point", pods.script(LEARN), *more)


def learnt(output: str) -> set[str]:
    """The hashes of the parameters that the ranks have at the end."""
    found = re.findall(r"rank \d has learnt (\w+)", output)
    assert len(found) == 2, output
    return set(found)


@pytest.mark.usefixtures("server")
def test_new_workers_go_on_from_the_checkpoints_in_the_bucket(tmp_path: Path) -> None:
    """All pods of the first start and their disks are lost; the model is that of an undisturbed training."""
    kept = ("--checkpoints", "s3://data/runs", "--checkpoint-interval", "1")
    first, names = workers(tmp_path / "first"), store.place("s3://data/runs/tests/job")
    (first.root / "hold").touch()
    with first.started(*training(first, *kept)) as process:
        read_until(process, "waits")
        wanted = {f"rank-{rank}/epoch-{HELD}.pt" for rank in (0, 1)}
        wait_for("the checkpoints of both ranks", lambda: wanted <= set(names.files()), 120)

    second, undisturbed = workers(tmp_path / "second"), workers(tmp_path / "undisturbed")
    resumed = second.run(*training(second, *kept))
    whole = undisturbed.run(*training(undisturbed))

    assert (resumed.code, whole.code) == (0, 0), resumed.output + whole.output
    for rank in (0, 1):
        assert f"rank {rank} begins after epoch {HELD}" in resumed.output
        assert f"rank {rank} begins after epoch 0" in whole.output
    assert learnt(resumed.output) == learnt(whole.output)
    assert len(learnt(whole.output)) == 1
