"""`make modern`: examples on torch 2.2.1 + dgl 2.1.0, and DGL's own 2.x example if it is given.

The pair comes from PyPI and takes 5 GB, too much for the gate; so it has this command. The result is
written to docs/reference/modern-stack.md.
"""

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.cluster import other
from tests.cluster.places import Places
from tests.e2e import install
from tests.e2e.demo import say, tool
from tests.e2e.jobs import ROOT, VERSION, Job, example, main_container, moment, set_flag, set_image
from tests.e2e.kubectl import Kubectl, Object
from tests.support import measured
from tests.support.wait import wait_for

NAMESPACE = "dgl-modern"
SUFFIX = "-modern"
IMAGE = f"graphsage:{VERSION}{SUFFIX}"
EXAMPLE_SHA256 = "326044afaed070a59c3c0b9959e4f2e34858149eff64f8b97dd1911e22013041"
PAGE = ROOT / "docs" / "reference" / "modern-stack.md"
SECONDS = 1200


@dataclass(frozen=True)
class Result:
    """How one job ended."""

    title: str
    accuracy: str
    seconds: float


def main() -> int:
    """Build, run, write the page; the exit code says whether all jobs were Completed."""
    own = other.given(Places.here()) is None
    tool("up")
    tool("load", "operator", "watcher-loop", "kubectl-download", "graphsage-modern")
    if own:
        os.environ["KUBECONFIG"] = tool("kubeconfig", capture=True).strip()
    install.operator()
    kubectl = Kubectl(NAMESPACE)
    if kubectl.get("namespace", NAMESPACE) is None:
        kubectl.run("create", "namespace", NAMESPACE)
    wait_for("default ServiceAccount", lambda: kubectl.get("serviceaccount", "default"), 30)
    results = [run(kubectl, title, body, pattern) for title, body, pattern in jobs(kubectl)]
    PAGE.write_text(page(results))
    say(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


def jobs(kubectl: Kubectl) -> Iterator[tuple[str, Object, str]]:
    """The jobs to run: title, body, pattern of the accuracy in the launcher's log."""
    yield "DGL-API example", modern("modern"), r"Test accuracy: (\d\.\d+)"
    for name in ("chunked-dgl-api", "dist-parmetis"):
        yield f"{name}, trained on GraphBolt's form", by_graphbolt(name), r"Test accuracy: (\d\.\d+)"
    path = os.environ.get("DGL_EXAMPLE_2")
    if not path:
        say("DGL_EXAMPLE_2 names no node_classification.py of DGL v2.1.0: its run is left out")
        return
    text = Path(path).read_text()
    if hashlib.sha256(text.encode()).hexdigest() != EXAMPLE_SHA256:
        sys.exit(f"{path} is not v2.1.0's examples/distributed/graphsage/node_classification.py")
    data = {"node_classification.py": text}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dgl"}, "data": data})
    yield "DGL's own node_classification.py, unmodified", unmodified(), r"Test Acc (\d\.\d+)"


def modern(name: str, *script_args: str) -> Object:
    """The DGL-API example with the modern image."""
    body = example("dgl-api", name, extra_args=("--", *script_args) if script_args else ())
    set_image(body, IMAGE)
    return body


def by_graphbolt(name: str) -> Object:
    """An example on the chunked graph; its parts get GraphBolt's form, and its training samples from it."""
    body = example(name, f"bolt-{name}")
    set_image(body, IMAGE)
    args = main_container(body, "Launcher")["args"]
    at = args.index("--") if "--" in args else len(args)
    args[at:] = ["--use-graphbolt", "--", "--use_graphbolt", *args[at + 1 :]]
    return body


def unmodified() -> Object:
    """The same job with DGL's script as the training entry point."""
    body = modern("unmodified", "--eval_every", "3", "--num_hidden", "64")
    for role in ("Launcher", "Worker"):
        spec = body["spec"]["dglReplicaSpecs"][role]["template"]["spec"]
        spec.setdefault("volumes", []).append({"name": "dgl", "configMap": {"name": "dgl"}})
        main_container(body, role).setdefault("volumeMounts", []).append({"name": "dgl", "mountPath": "/dgl"})
    set_flag(body, "--train-entry-point", "/dgl/node_classification.py")
    set_flag(body, "--num-epochs", "3")
    return body


def run(kubectl: Kubectl, title: str, body: Object, pattern: str) -> Result:
    """Run one job to its end."""
    name = body["metadata"]["name"]
    kubectl.run("delete", "dgljob", name, "--ignore-not-found", "--cascade=foreground")
    say(f"{title}: kubectl apply")
    kubectl.apply(body)
    job = Job(kubectl, name)
    since = time.monotonic()
    job.wait_phase("Completed", seconds=SECONDS)
    found = re.findall(pattern, kubectl.logs(job.launcher))
    if not found:
        sys.exit(f"{title}: no accuracy in the log of {job.launcher}")
    say(f"{title}: Completed in {time.monotonic() - since:.0f} s, accuracy {found[-1]}")
    status = job.status()
    took = moment(status["completionTime"]) - moment(status["startTime"])
    return Result(title, found[-1], took.total_seconds())


def page(results: list[Result]) -> str:
    """The results as a Markdown page."""
    rows = [f"| {r.title} | Completed | {r.accuracy} | {r.seconds:.0f} s |" for r in results]
    return "\n".join(
        [
            "# The modern stack: torch 2.2.1 + dgl 2.1.0",
            "",
            "<!-- written by make modern; do not edit -->",
            f"Run on {datetime.now(UTC):%Y-%m-%d} at commit {measured.commit()} by `make modern`,",
            f"two workers on one node with {os.cpu_count()} cores.",
            "The image is `images/job` with `--build-arg STACK=pypi`, and `images/examples/graphsage` on it.",
            "",
            "| Job | End | Test accuracy | apply → Completed |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
