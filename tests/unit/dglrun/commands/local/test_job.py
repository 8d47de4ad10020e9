"""What `dglrun local` reads in a job, what it refuses, and that pods get what the operator gives them."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import config as operator_config
from dgl_operator.render import environment, pod_templates, scripts
from dgl_operator.render.config import Addresses
from dglrun.commands.arguments import UsageError
from dglrun.commands.local import config_files, job, pod_environment, render
from dglrun.commands.local.job import LocalJob, Mount
from dglrun.commands.local.places import IN_NAMESPACES
from dglrun.commands.local.pod import Pod
from dglrun.commands.local.render import Machine
from dglrun.contract import env, names
from dglrun.contract.names import Mode, Role
from tests.support.job_cases import EXAMPLES
from tests.support.jobs import a_raw_job, a_template


def read(folder: Path, body: Any, **volumes: Path) -> LocalJob:
    """Read a job from a file."""
    path = folder / "job.yaml"
    path.write_text(body if isinstance(body, str) else yaml.safe_dump(body))
    return job.read(path, volumes)


def pod_of(found: LocalJob, role: Role, index: int = 0, mounts: tuple[Mount, ...] = ()) -> Pod:
    """A pod on a made-up machine."""
    machine = Machine(Path("/run"), IN_NAMESPACES, True, {}, Path("/lib"), Path("/usr"), 4, None, mounts)
    return render.pod(found, role, index, machine)


WITHOUT_SECRETS = [path for path in EXAMPLES if "envFrom" not in path.read_text()]
"""There are no Secrets without Kubernetes."""


@pytest.mark.parametrize("path", WITHOUT_SECRETS, ids=lambda path: path.stem)
def test_an_example_is_read(path: Path) -> None:
    """With as many workers as it says, and the launcher's command line."""
    raw = yaml.safe_load(path.read_text())
    specs = raw["spec"]["dglReplicaSpecs"]
    volumes = [each for spec in specs.values() for each in spec["template"]["spec"].get("volumes", ())]

    given = [each["name"] for each in volumes if each.keys() & {"persistentVolumeClaim", "configMap"}]

    found = job.read(path, dict.fromkeys(given, path.parent))

    main = specs["Launcher"]["template"]["spec"]["containers"][0]
    assert found.mode.value == raw["spec"]["partitionMode"]
    assert found.workers == specs.get("Worker", {"replicas": 0})["replicas"]
    assert list(found.templates[Role.LAUNCHER].command) == [*main["command"], *main["args"]]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("a: [", "expected YAML, got an error: "),
        ("a: 1\n---\nb: 2", "expected one document, a DGLJob, got 2"),
        ("kind: Pod", "kind: expected DGLJob, got 'Pod'"),
        ("- 1", "kind: expected DGLJob, got [1]"),
        (a_raw_job("Sage"), "metadata.name: expected at most 51 lower-case letters"),
        ({**a_raw_job(), "spec": {"partitionMode": "METIS"}}, "spec.partitionMode: expected one of DGL-API"),
        (
            a_raw_job(launcher=a_template()),
            "Launcher.template.spec.containers[0].command: expected a command",
        ),
        (
            a_raw_job(worker=a_template(args=["--serve"])),
            "Worker.template.spec.containers[0].command: expected a command",
        ),
        (
            a_raw_job(worker=a_template(envFrom=[{"secretRef": {"name": "s"}}])),
            "envFrom: expected none: there are no ConfigMaps and Secrets here",
        ),
        (
            a_raw_job(
                worker=a_template(env=[{"name": "A", "valueFrom": {}}, {"name": "B", "valueFrom": {"x": 1}}])
            ),
            "env[B]: expected a value",
        ),
        (
            a_raw_job(worker=a_template(env=[{"name": "DGL_OPERATOR_X", "value": "1"}])),
            "env: expected no DGL_OPERATOR_*",
        ),
        (a_raw_job(workers=0), "Worker.replicas: expected a whole number of at least 1, got 0"),
        (
            a_raw_job(worker={"spec": {"initContainers": [{"name": "a"}], "containers": [{"name": "b"}]}}),
            "initContainers: expected none",
        ),
        (a_raw_job(worker={"spec": {"containers": []}}), "containers: expected at least one container"),
        (
            a_raw_job(worker=a_template(volumeMounts=[{"name": "v", "mountPath": "/data"}])),
            "volumeMounts: expected the name of a volume, got 'v'",
        ),
    ],
)
def test_what_cannot_run_here_is_refused_by_name(tmp_path: Path, body: Any, says: str) -> None:
    """In one line: the file, where, what was expected, what was found."""
    with pytest.raises(UsageError) as refused:
        read(tmp_path, body)

    message = str(refused.value)
    assert message.startswith(f"{tmp_path}/job.yaml: ")
    assert says in message
    assert ", got " in message
    assert "\n" not in message


def with_volume(volume: dict[str, Any], **mount: Any) -> dict[str, Any]:
    """A job whose worker mounts a volume."""
    worker = a_template(volumeMounts=[{"name": "v", "mountPath": "/data", **mount}])
    worker["spec"]["volumes"] = [{"name": "v", **volume}]
    return a_raw_job(worker=worker)


def test_the_dataset_volume_is_in_every_pod(tmp_path: Path) -> None:
    """At the path where the operator mounts it, or the one that the job says."""
    host, claim = {"hostPath": {"path": str(tmp_path)}}, {"persistentVolumeClaim": {"claimName": "c"}}
    at_default = read(tmp_path, a_raw_job(datasetVolume=host))
    elsewhere = read(
        tmp_path,
        a_raw_job(datasetVolume={**claim, "mountPath": "/graphs/", "readOnly": True}),
        **{"job-data-volume": tmp_path},
    )

    for role in Role:
        assert Mount("/data", tmp_path, "volume-job-data-volume") in pod_of(at_default, role).mounts
        assert Mount("/graphs", tmp_path, "volume-job-data-volume", True) in pod_of(elsewhere, role).mounts


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"nfs": {}},
            "spec.datasetVolume: expected emptyDir, hostPath or --volume job-data-volume=DIR, got 'nfs'",
        ),
        ({}, "--volume job-data-volume=DIR, got nothing"),
        ("/srv", "spec.datasetVolume: expected a mapping, got '/srv'"),
        (
            {"mountPath": "/etc/dgl", "emptyDir": {}},
            "spec.datasetVolume.mountPath: expected a free absolute path",
        ),
    ],
)
def test_a_dataset_volume_that_is_not_here_is_refused(tmp_path: Path, given: Any, says: str) -> None:
    """With the flag that makes it one."""
    with pytest.raises(UsageError, match=re.escape(says)):
        read(tmp_path, a_raw_job(datasetVolume=given))


def test_volumes_are_folders_of_this_machine(tmp_path: Path) -> None:
    """A hostPath the one that it names, another kind the one of the command line."""
    (tmp_path / "host/sub").mkdir(parents=True)
    host = read(tmp_path, with_volume({"hostPath": {"path": str(tmp_path / "host")}}, subPath="sub"))
    claim = read(tmp_path, with_volume({"persistentVolumeClaim": {}}, readOnly=True), v=tmp_path / "host")
    empty = read(tmp_path, with_volume({"emptyDir": {}}))

    assert [each.templates[Role.WORKER].mounts for each in (host, claim, empty)] == [
        (Mount("/data", tmp_path / "host/sub", "v"),),
        (Mount("/data", tmp_path / "host", "v", is_read_only=True),),
        (Mount("/data", None, "v"),),
    ]


@pytest.mark.parametrize(
    ("volume", "says"),
    [
        ({"persistentVolumeClaim": {"claimName": "c"}}, "emptyDir, hostPath or --volume v=DIR, got 'persist"),
        ({"hostPath": {"path": "/nowhere"}}, "a folder or file of this machine, got '/nowhere'"),
    ],
)
def test_a_volume_that_is_not_here_is_refused(tmp_path: Path, volume: dict[str, Any], says: str) -> None:
    """By its name."""
    with pytest.raises(UsageError, match=r"volumes\[v\]: expected") as refused:
        read(tmp_path, with_volume(volume))

    assert says in str(refused.value)


def jobs_of_all_modes() -> list[Any]:
    """A job of each mode."""
    return [pytest.param(a_raw_job(mode=mode), id=mode.value) for mode in Mode]


@pytest.mark.parametrize("body", jobs_of_all_modes())
def test_the_variables_are_the_operators(tmp_path: Path, body: dict[str, Any]) -> None:
    """Each role's, as the operator renders them, but that nobody replaces a lost worker there."""
    found, operators = read(tmp_path, body), DGLJob.parse(body)

    for role in found.templates:
        image = pod_templates.of(operators, role)["spec"]["containers"][0]["image"]
        rendered = {item["name"]: item["value"] for item in environment.of_main(operators, role, 1, image)}
        rendered.pop(env.REPLACEMENT_TIMEOUT, None)
        assert pod_environment.of_operator(found, role, 1) == rendered


@pytest.mark.parametrize("mode", [mode for mode in Mode if mode.has_workers])
def test_the_files_of_the_config_map_are_the_operators(tmp_path: Path, mode: Mode) -> None:
    """Names, addresses, columns; kubexec.sh has its own test."""
    body = a_raw_job(mode=mode, slotsPerWorker=3)
    found, operators = read(tmp_path, body), DGLJob.parse(body)
    ips = render.addresses(found, is_isolated=True)
    known = Addresses(
        launcher=ips["sage-launcher"],
        partitioner=ips["sage-partitioner"] if mode.has_partitioner else None,
        workers=(ips["sage-worker-0"], ips["sage-worker-1"]),
    )

    files = config_files.files(found, ips, "/opt/kube/kubectl")

    rendered = operator_config.config_map(operators, known)["data"]
    assert files.keys() == rendered.keys()
    assert {**files, names.KUBEXEC: ""} == {**rendered, names.KUBEXEC: ""}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("sage-worker-1", "sage-worker-1 -c main"),
        ("sage-worker-1 -c other", "sage-worker-1 -c other"),
        ("sage-launcher", "sage-launcher"),
    ],
)
def test_kubexec_takes_pods_and_commands_as_the_operators(tmp_path: Path, target: str, words: str) -> None:
    """A worker's main container needs no name, and a shell in the pod reads the command."""
    body = a_raw_job()
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    kubectl.chmod(0o755)
    ips = render.addresses(job_of := read(tmp_path, body), is_isolated=True)
    ours = config_files.files(job_of, ips, str(kubectl))[names.KUBEXEC]
    rendered = scripts.kubexec("default", "sage", "main").replace("/opt/kube/kubectl", str(kubectl))

    said = [
        subprocess.run(["sh", "-c", text, "kubexec.sh", target, "a;", "b c"], capture_output=True, check=True)
        for text in (ours, rendered)
    ]

    expected = ["exec", "--namespace", "default", *words.split(), "--", "/bin/sh", "-c", "a; b c", ""]
    assert [done.stdout.decode() for done in said] == ["|".join(expected)] * 2


def test_a_partitioner_has_the_launchers_command_and_both_variables(tmp_path: Path) -> None:
    """The launcher's win, and its mounts come but for those of dataset and output."""
    launcher = a_template(
        command=["dglrun"], args=["--graph-name=g"], env=[{"name": "A", "value": "launcher"}]
    )
    worker = a_template(env=[{"name": "A", "value": "worker"}, {"name": "B", "value": "$(A)-b"}])

    found = pod_of(read(tmp_path, a_raw_job(launcher=launcher, worker=worker)), Role.PARTITIONER)

    assert found.command == ("dglrun", "--graph-name=g")
    assert (found.env["A"], found.env["B"]) == ("launcher", "launcher-b")


@pytest.mark.parametrize(
    ("word", "expanded"),
    [("$(A)", "1"), ("$$(A)", "$(A)"), ("$(NONE)", "$(NONE)"), ("x-$(A)-$(B)", "x-1-2"), ("$A", "$A")],
)
def test_references_are_filled_in_as_the_kubelet_does(tmp_path: Path, word: str, expanded: str) -> None:
    """In arguments; what is unknown stays, a doubled $ escapes."""
    main = a_template(command=["run", word], env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])

    found = pod_of(read(tmp_path, a_raw_job(launcher=main)), Role.LAUNCHER)

    assert found.command == ("run", expanded)


def test_notes_say_what_has_no_effect_here(tmp_path: Path) -> None:
    """Images, limits and sidecars."""
    worker = a_template(resources={"limits": {"cpu": 1}})
    worker["spec"]["containers"].append({"name": "logs", "image": "b"})

    notes = "\n".join(read(tmp_path, a_raw_job(worker=worker)).notes)

    assert "image example/graphsage:v1" in notes
    assert "limits of CPU and memory" in notes
    assert "Worker: sidecars do not run: logs" in notes


def test_the_pods_run_the_dglrun_and_the_python_that_run_here(tmp_path: Path) -> None:
    """First on PATH; of this machine's variables only those of locale, proxies and libraries come along."""
    host = {"PATH": "/usr/bin", "LANG": "C.UTF-8", "SECRET": "1", "PYTHONPATH": "/more"}
    machine = Machine(Path("/run"), IN_NAMESPACES, True, host, Path("/lib"), Path("/venv"), 4, None, ())

    found = render.pod(read(tmp_path, a_raw_job()), Role.WORKER, 0, machine).env

    assert found["PATH"] == "/opt/dglrun:/venv/bin:/usr/bin"
    assert found["PYTHONPATH"] == "/lib:/more"
    assert found["LANG"] == "C.UTF-8"
    assert "SECRET" not in found


def test_the_workers_share_the_machine_and_their_trainers_the_share(tmp_path: Path) -> None:
    """Two trainers that took all CPUs each trained at half the speed of the same ones started by hand."""
    machine = Machine(Path("/run"), IN_NAMESPACES, True, {}, Path("/lib"), Path("/venv"), 8, None, ())
    found = read(tmp_path, a_raw_job())

    assert render.pod(found, Role.WORKER, 0, machine).env[env.CPUS] == "4"
    assert render.pod(found, Role.LAUNCHER, 0, machine).env[env.CPUS] == "8"
    assert "OMP_NUM_THREADS" not in render.pod(found, Role.WORKER, 0, machine).env
