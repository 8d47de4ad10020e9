"""Enforcement of NetworkPolicies, which the node's own network ignores: kube-router, while it is asked for.

It enforces policies and does nothing else of what it can. It is no part of the running node: hundreds of
policies of a benchmark would cost the two cores more than what is measured.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import builds, commands, configs, daemons, steps
from tests.cluster.daemons import Daemon
from tests.cluster.places import Places

NAME = "policies"
FIRST_CHAIN = "KUBE-ROUTER-FORWARD"
"""Made by the first synchronisation."""

_CHAIN = re.compile(r"^:(KUBE-(?:ROUTER|POD-FW|NWPLCY)-\S+)", re.MULTILINE)
_JUMP = re.compile(r"^-A ((?:INPUT|OUTPUT|FORWARD) .*-j KUBE-ROUTER-\S+)$", re.MULTILINE)
_SET = re.compile(r"^(?:inet6:)?KUBE-(?:SRC|DST|NWPLCY)-\S+$", re.MULTILINE)


def controller(places: Places) -> Daemon:
    """Return the controller with its arguments."""
    return Daemon(
        NAME,
        (
            str(builds.program("kube-router", places)),
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            f"--kubeconfig={places.kubeconfig}",
            f"--hostname-override={configs.NODE_NAME}",
            f"--service-cluster-ip-range={configs.SERVICE_RANGE}",
            "--health-port=0",
            "--v=1",
        ),
    )


@contextmanager
def enforced(places: Places) -> Iterator[None]:
    """Enforce policies on our own node within the block; longer where they were enforced before."""
    daemon = controller(places)
    was_running = daemons.alive(daemon, places)
    start(places)
    try:
        yield
    finally:
        if not was_running:
            stop(places)


def start(places: Places) -> None:
    """Start the controller unless it runs, and wait until it has read the policies there are."""
    builds.ensure(builds.POLICIES, places)
    daemon = controller(places)
    if not daemons.alive(daemon, places):
        daemons.start(daemon, places)
    steps.until(
        "the first rules of the policy controller",
        lambda: commands.attempt("iptables", "-w", "-S", FIRST_CHAIN)[0] == 0,
        seconds=60,
        check=lambda: daemons.check([daemon], places),
    )


def stop(places: Places) -> None:
    """End the controller and remove what it has put into the packet filter, while the proxy goes on there."""
    daemons.end([pid for name, pid in daemons.recorded(places).items() if name == NAME], grace=5)
    controller(places).pid_file(places).unlink(missing_ok=True)
    _, saved, _ = commands.attempt("iptables-save", "-t", "filter")
    if removal := removal_of_rules(saved):
        commands.run("iptables-restore", "-w", "--noflush", stdin=removal)
    remove_sets()


def removal_of_rules(saved: str) -> str:
    """Return what takes the controller's chains out of a saved filter table, empty if there are none.

    It names single rules and chains, as another program may write to the table meanwhile.
    """
    chains = _CHAIN.findall(saved)
    if not chains:
        return ""
    jumps = [f"-D {rule}" for rule in _JUMP.findall(saved)]
    emptied = [f":{chain} - [0:0]" for chain in chains]
    return "\n".join(["*filter", *emptied, *jumps, *(f"-X {chain}" for chain in chains), "COMMIT", ""])


def sets() -> list[str]:
    """Return the controller's sets of addresses."""
    _, out, _ = commands.attempt("ipset", "list", "-n")
    return _SET.findall(out)


def remove_sets() -> None:
    """Remove the controller's sets of addresses; its rules, which use them, must be gone."""
    for name in sets():
        commands.run("ipset", "destroy", name)
