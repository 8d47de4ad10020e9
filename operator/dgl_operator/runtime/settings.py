"""The operator's command line."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dgl_operator.api import quantity
from dgl_operator.render.settings import Images
from dgl_operator.runtime.leader_election import Election

OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
RECONCILE_WORKERS = 16
PARALLEL_CALLS = 8
"""Calls that one job makes side by side, for its pods."""


@dataclass(frozen=True)
class Address:
    """Where a server listens; port 0 switches it off."""

    host: str
    port: int


@dataclass(frozen=True)
class Settings:
    """What the administrator chose.

    Attributes:
        namespaces: Namespaces that are watched; none for the whole cluster.
        images: Images of the init containers. They have no default: any default would name a registry
            that the project does not own, and their containers run with the account of each job.
        has_network_policy: Whether a job that does not say gets a NetworkPolicy.
        resync_seconds: Time between two full lists.
        has_kueue: Whether jobs that name a queue wait for Kueue to admit them.
        election: How the leader of several operators is elected; None: this one acts at once.
    """

    namespaces: tuple[str, ...]
    images: Images
    has_network_policy: bool
    health: Address
    metrics: Address
    log_level: str
    log_format: str
    resync_seconds: float
    has_kueue: bool = False
    election: Election | None = None


def parse(argv: Sequence[str] | None = None) -> Settings:
    """Read the command line; a wrong one ends the process with code 2 and one line."""
    parser = _parser()
    found = parser.parse_args(argv)
    return Settings(
        namespaces=tuple(dict.fromkeys(found.namespace)),
        images=Images(
            found.watcher_loop_image,
            found.kubectl_download_image,
            found.init_image_pull_policy,
            found.init_container_resources,
        ),
        has_network_policy=found.job_network_policy == "true",
        health=found.health_probe_bind_address,
        metrics=found.metrics_bind_address,
        log_level=found.log_level.upper(),
        log_format=found.log_format,
        resync_seconds=found.resync_period,
        has_kueue=found.kueue == "true",
        election=_election(parser, found),
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dgl-operator", description="Runs DGLJobs.", allow_abbrev=False)
    parser.add_argument(
        "--namespace", action="append", default=[], metavar="NS", help="watch only NS; repeatable"
    )
    for name in ("watcher-loop", "kubectl-download"):
        parser.add_argument(
            f"--{name}-image",
            type=_image,
            required=True,
            metavar="IMAGE",
            help=f"image of the init container {name}, with its registry; required",
        )
    parser.add_argument(
        "--init-image-pull-policy", default="IfNotPresent", choices=("IfNotPresent", "Always", "Never")
    )
    parser.add_argument(
        "--init-container-resources",
        type=_resources,
        metavar="JSON",
        help="requests and limits of the init containers, as in a pod (default: as the reference says)",
    )
    parser.add_argument(
        "--job-network-policy",
        default="true",
        choices=("true", "false"),
        help="whether a job whose spec.networkPolicy.enabled is unset gets a NetworkPolicy",
    )
    parser.add_argument(
        "--kueue",
        default="false",
        choices=("true", "false"),
        help="whether jobs with the label kueue.x-k8s.io/queue-name wait for their admission by Kueue",
    )
    parser.add_argument(
        "--health-probe-bind-address", type=_address, default=":8081", metavar="HOST:PORT", help="0: off"
    )
    parser.add_argument(
        "--metrics-bind-address", type=_address, default=":8080", metavar="HOST:PORT", help="0: off"
    )
    parser.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    parser.add_argument("--log-format", default="json", choices=("json", "plain"))
    parser.add_argument("--resync-period", type=_seconds, default=300.0, metavar="SECONDS")
    _add_election(parser.add_argument_group("several operators"))
    return parser


def _add_election(group: argparse._ArgumentGroup) -> None:
    """The flags of Kubernetes' own controllers."""
    group.add_argument(
        "--leader-elect",
        default="false",
        choices=("true", "false"),
        help="elect a leader by a Lease, so that several operators may run; only the leader acts",
    )
    group.add_argument(
        "--leader-elect-resource-namespace",
        metavar="NS",
        help="namespace of the Lease (default: that of the operator's pod)",
    )
    group.add_argument("--leader-elect-resource-name", default="dgl-operator", metavar="NAME")
    group.add_argument(
        "--leader-elect-lease-duration",
        type=_seconds,
        default=Election.lease,
        metavar="SECONDS",
        help="without a renewal for so long others may take it (default: 10)",
    )
    group.add_argument(
        "--leader-elect-renew-deadline",
        type=_seconds,
        default=Election.renew_deadline,
        metavar="SECONDS",
        help="a leader that cannot renew it for so long ends (default: 7)",
    )
    group.add_argument(
        "--leader-elect-retry-period",
        type=_seconds,
        default=Election.retry,
        metavar="SECONDS",
        help="between two tries (default: 2)",
    )


def _election(parser: argparse.ArgumentParser, found: argparse.Namespace) -> Election | None:
    if found.leader_elect != "true":
        return None
    namespace = found.leader_elect_resource_namespace or _own_namespace()
    if not namespace:
        parser.error("--leader-elect needs --leader-elect-resource-namespace outside of a pod")
    lease, deadline = found.leader_elect_lease_duration, found.leader_elect_renew_deadline
    retry = found.leader_elect_retry_period
    if not retry < deadline < lease:
        parser.error(
            "expected --leader-elect-retry-period below --leader-elect-renew-deadline below "
            f"--leader-elect-lease-duration, got {retry:g}, {deadline:g}, {lease:g}"
        )
    return Election(namespace, found.leader_elect_resource_name, lease, deadline, retry)


def _own_namespace() -> str:
    try:
        return OWN_NAMESPACE.read_text().strip()
    except OSError:
        return ""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, which is what a pod's log and termination message have room for."""

    def error(self, message: str) -> NoReturn:
        """End with code 2."""
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def _image(text: str) -> str:
    if not text or text != "".join(text.split()):
        raise argparse.ArgumentTypeError(f"expected the name of an image, got {text!r}")
    return text


def _resources(text: str) -> dict[str, Any]:
    """Requests and limits with quantities that Kubernetes takes."""
    try:
        found = json.loads(text)
        given = {kind: dict(found.get(kind) or {}) for kind in ("requests", "limits")}
        for amount in (each for amounts in given.values() for each in amounts.values()):
            quantity.parse(amount)
    except (ValueError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(
            f'expected JSON such as {{"limits": {{"memory": "512Mi"}}}}, got {text!r}: {error}'
        ) from None
    if unknown := set(found) - set(given):
        raise argparse.ArgumentTypeError(f"expected requests and limits, got {sorted(unknown)[0]!r}")
    return {kind: amounts for kind, amounts in given.items() if amounts}


def _address(text: str) -> Address:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"expected HOST:PORT, got {text!r}")
    return Address(host.strip("[]"), int(port))


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"expected seconds above 0, got {text!r}")
    return seconds
