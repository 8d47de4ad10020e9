"""Read the command line and say how each command ended."""

import argparse
import shlex
import time
from collections.abc import Callable, Sequence

from tests.cluster import builds, cluster, deliver, kind, other, policies, smoke, steps
from tests.cluster.places import Places

Command = Callable[[Places, list[str]], None]


def main(argv: Sequence[str]) -> int:
    """Run one command; return 0, or 1 with a message when something failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("command", choices=sorted(COMMANDS), help="what to do")
    parser.add_argument("names", nargs="*", help="of images or tool modules; all when none is given")
    options = parser.parse_args(argv)
    start = time.monotonic()
    try:
        COMMANDS[options.command](Places.here(), options.names)
    except steps.StepError as failure:
        print(f"\n{options.command} failed: {failure}", flush=True)
        return 1
    if options.command in TIMED:
        print(f"{time.monotonic() - start:7.1f} s  in all", flush=True)
    return 0


def _up(places: Places, _: list[str]) -> None:
    given = other.given(places)
    if given is None:
        other.refuse_registry()
        cluster.up(places)
        steps.note(f"export KUBECONFIG={places.kubeconfig}")
    else:
        other.check(given, places)


def _down(places: Places, _: list[str]) -> None:
    cluster.down(places)


def _enforce(places: Places, _: list[str]) -> None:
    """Have NetworkPolicies enforced until the node goes down."""
    if other.given(places) or kind.chosen():
        raise steps.StepError("only the one-node cluster of this tool lacks a policy controller of its own")
    with steps.step("start the policy controller"), cluster.locked(places):
        policies.start(places)


def _status(places: Places, _: list[str]) -> None:
    cluster.print_status(places)


def _smoke(places: Places, _: list[str]) -> None:
    smoke.run(places)


def _build_tools(places: Places, names: list[str]) -> None:
    """Build the named modules; of all only those that this host's kind of cluster needs."""
    own_node = (*builds.NODE, *builds.POLICIES)
    cluster_tools = () if other.given(places) else ("kind",) if kind.chosen() else own_node
    usual = (*builds.CLIENTS, *builds.CHECKS, *builds.STORAGE, *builds.QUEUES, *cluster_tools)
    builds.ensure(names or usual, places)


def _images(places: Places, names: list[str]) -> None:
    deliver.build(names, places, load=other.given(places) is None and deliver.cluster_runs(places))


def _load(places: Places, names: list[str]) -> None:
    """Build and load what is out of date; for a cluster that the user brought say what it must hold."""
    if other.given(places) is None:
        deliver.build(names, places, load=True)
    else:
        other.tell_images(names)


def _kubeconfig(places: Places, _: list[str]) -> None:
    print(other.given(places) or places.kubeconfig)


def _env(places: Places, _: list[str]) -> None:
    """Print what a shell is to `eval`; the audit log is known of our own clusters only."""
    given = other.given(places)
    print(f"export KUBECONFIG={shlex.quote(str(given or places.kubeconfig))}")
    print(f'export PATH={shlex.quote(str(places.bin))}:"$PATH"')
    if given is None:
        print(f"export DGL_OPERATOR_AUDIT_LOG={shlex.quote(str(places.audit_log))}")


COMMANDS: dict[str, Command] = {
    "up": _up,
    "down": _down,
    "enforce": _enforce,
    "status": _status,
    "images": _images,
    "load": _load,
    "smoke": _smoke,
    "build-tools": _build_tools,
    "kubeconfig": _kubeconfig,
    "env": _env,
}

TIMED = {"up", "down", "enforce", "smoke", "build-tools", "images", "load"}
