"""The jobs of both sides: four pods each, the same labels, nodes and lifetimes."""

from typing import Any

from tests.support.jobs import a_raw_job

Json = dict[str, Any]

RUN = "benchmark.dgl-operator/run"
"""Label of everything that one side submits, and of the fake nodes."""
JOB = "benchmark.dgl-operator/job"
ROLE = "benchmark.dgl-operator/role"
NODE = "benchmark.dgl-operator/node"
"""Label and taint of the fake nodes: nothing else runs on them, and the jobs run nowhere else."""

LAUNCHER, PARTITIONER, WORKER = "launcher", "partitioner", "worker"


def dgl_job(name: str, run: str) -> Json:
    """A DGLJob with launcher, partitioner and two workers."""
    raw = a_raw_job(
        name,
        workers=2,
        launcher=_template(name, run, LAUNCHER, command=["dglrun"], args=_DGLRUN),
        partitioner=_template(name, run, PARTITIONER),
        worker=_template(name, run, WORKER),
    )
    return {**raw, "metadata": {"name": name, "labels": {RUN: run}}}


def mpi_job(name: str, run: str) -> Json:
    """An MPIJob with launcher and three workers: as many pods, and clean-up as in a DGLJob."""
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name, "labels": {RUN: run}},
        "spec": {
            "slotsPerWorker": 1,
            "runPolicy": {"cleanPodPolicy": "Running"},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": _template(name, run, LAUNCHER, command=["mpirun"])},
                "Worker": {"replicas": 3, "template": _template(name, run, WORKER)},
            },
        },
    }


_DGLRUN = ["--graph-name", "graphsage", "--num-partitions", "2", "--train-entry-point", "code/train.py"]


def _template(job: str, run: str, role: str, **main: Any) -> Json:
    return {
        "metadata": {"labels": {RUN: run, JOB: job, ROLE: role}},
        "spec": {
            "nodeSelector": {NODE: "true"},
            "tolerations": [{"key": NODE, "operator": "Exists"}],
            "containers": [{"name": "main", "image": "example/graphsage:v1", **main}],
        },
    }
