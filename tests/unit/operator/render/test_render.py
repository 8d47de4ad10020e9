"""What is rendered: golden files for each mode, and promises that a reader may miss in them."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dgl_operator.api.v1alpha1 import DGLJob
from dgl_operator.render import config, desired, pods, scripts
from dgl_operator.render.config import Addresses
from dgl_operator.render.merge import Json
from dgl_operator.render.settings import Rendering
from dglrun.contract import env, hostfile, version
from dglrun.contract.names import Mode, Role
from tests.cluster.daemons import running
from tests.support import golden
from tests.support.jobs import DGLRUN, IMAGES, a_job, a_template
from tests.support.wait import wait_for

ADDRESSES = Addresses("10.0.0.1", "10.0.0.2", ("10.0.0.10", "10.0.0.11"))
GPU = {"limits": {"memory": "20Gi", "nvidia.com/gpu": 2}, "requests": {"memory": "10Gi", "nvidia.com/gpu": 2}}


def with_pod(template: Json, **spec: Any) -> Json:
    return {**template, "spec": {**template["spec"], **spec}}


def with_everything() -> DGLJob:
    """A job that uses what the API of pods offers."""
    launcher = with_pod(
        a_template(
            command=["dglrun"],
            args=["--graph-name", "g"],
            volumeMounts=[mount("data", "/dgl_workspace/dataset")],
        ),
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "graphs"}}],
        initContainers=[{"name": "fetch", "image": "fetch:v1"}],
        securityContext={"runAsNonRoot": True, "runAsUser": 1000, "fsGroup": 1000},
        serviceAccountName="trainer",
    )
    worker = with_pod(
        a_template(
            env=[{"name": "OMP_NUM_THREADS", "value": "4"}],
            ports=[{"name": "metrics", "containerPort": 9100}],
            resources=GPU,
            readinessProbe={"exec": {"command": ["true"]}},
            volumeMounts=[mount("fast", "/dev/shm")],
        ),
        volumes=[{"name": "fast", "emptyDir": {"medium": "Memory"}}],
        nodeSelector={"pool": "gpu"},
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}],
    )
    worker["spec"]["containers"].append({"name": "exporter", "image": "exporter:v1"})
    worker["metadata"] = {"labels": {"team": "graphs"}, "annotations": {"sidecar.istio.io/inject": "false"}}
    return a_job("full", launcher=launcher, worker=worker, slotsPerWorker=2)


def mount(name: str, path: str) -> Json:
    return {"name": name, "mountPath": path}


def explicit() -> DGLJob:
    """A job with a Partitioner template."""
    partitioner = a_template("cut", image="example/partition:v1", resources={"limits": {"memory": "64Gi"}})
    partitioner["spec"]["serviceAccountName"] = "reader"
    return a_job("explicit", partitioner=partitioner)


JOBS = {
    "dgl-api": (a_job(worker=a_template(resources={"limits": {"memory": "20Gi"}})), ADDRESSES),
    "parmetis": (a_job(mode=Mode.PARMETIS), ADDRESSES),
    "dist-parmetis": (a_job(mode=Mode.DIST_PARMETIS), Addresses("10.0.0.1", None, ("10.0.0.10", None))),
    "skip": (a_job(mode=Mode.SKIP), Addresses()),
    "everything": (with_everything(), ADDRESSES),
    "explicit-partitioner": (explicit(), Addresses()),
    "dataset-volume": (
        a_job(
            datasetVolume={"persistentVolumeClaim": {"claimName": "graphs"}, "mountPath": "/graphs"},
            serviceAccountAnnotations={"example.org/role": "trainer"},
        ),
        ADDRESSES,
    ),
    "twelve-workers": (
        a_job(workers=12),
        Addresses("10.0.0.1", "10.0.0.2", tuple(f"10.0.1.{i}" for i in range(12))),
    ),
}


@pytest.mark.parametrize("name", list(JOBS))
def test_a_job_renders_as_its_golden_file_says(name: str) -> None:
    """All objects, one pod of each kind, the last worker for the workers, and the rights at last."""
    job, addresses = JOBS[name]
    roles = frozenset(role for role in Role if role is not Role.WORKER or job.spec.partition_mode.has_workers)
    if not job.spec.partition_mode.has_partitioner:
        roles -= {Role.PARTITIONER}

    made = tuple(desired.pods(job, roles, IMAGES))

    shown = [pod for pod in made if pod["metadata"]["name"].rpartition("-")[2] != "0"]
    if name == "twelve-workers":
        shown = [made[-1]]
    rights = desired.rights(job, frozenset(pod["metadata"]["name"] for pod in made))
    objects = (*desired.objects(job, addresses), *desired.policies(job, Rendering(IMAGES)))
    golden.check(f"render/{name}", golden.as_yaml([*objects, *shown, *rights]))


@pytest.mark.parametrize("mode", list(Mode))
def test_each_container_with_code_of_ours_is_told_the_contract_version(mode: Mode) -> None:
    """Whatever the pod: code that is not told takes the operator for an old one."""
    job = a_job(mode=mode)
    told = {"name": "DGL_OPERATOR_CONTRACT_VERSION", "value": str(version.CURRENT)}

    for pod in desired.pods(job, frozenset({Role.LAUNCHER}) | _other_roles(mode), IMAGES):
        for container in [main_of(pod), *pod["spec"].get("initContainers", [])]:
            assert told in container["env"], (pod["metadata"]["name"], container["name"])


def _other_roles(mode: Mode) -> frozenset[Role]:
    roles = {Role.WORKER: mode.has_workers, Role.PARTITIONER: mode.has_partitioner}
    return frozenset(role for role, is_there in roles.items() if is_there)


def main_of(pod: Json) -> Json:
    found: Json = pod["spec"]["containers"][0]
    return found


def volume(pod: Json, name: str) -> Json | None:
    return next((each for each in pod["spec"].get("volumes", []) if each["name"] == name), None)


@pytest.mark.parametrize(
    ("limit", "size"),
    [
        ("20Gi", 10 * 2**30),
        ("1Gi", 2**29),
        ("1G", 500_000_000),
        ("1500M", 750_000_000),
        (1 << 30, 2**29),
        ("1e9", 500_000_000),
        (None, 2**30),
    ],
)
def test_shared_memory_is_half_the_limit_in_bytes(limit: object, size: int) -> None:
    """Below 2 GB as well, and a default without a limit."""
    resources = {"limits": {"memory": limit}} if limit else {}
    pod = pods.pod(a_job(worker=a_template(resources=resources)), Role.WORKER, 0, IMAGES)

    assert volume(pod, "shm-volume") == {
        "name": "shm-volume",
        "emptyDir": {"medium": "Memory", "sizeLimit": str(size)},
    }


def test_the_partitioner_runs_the_launchers_command_on_the_workers_image_without_gpus() -> None:
    """Neither extended resources nor claims; sidecars and probes stay with the workers."""
    job = with_everything()

    pod = pods.pod(job, Role.PARTITIONER, 0, IMAGES)

    main = main_of(pod)
    assert (main["command"], main["args"]) == (["dglrun"], ["--graph-name", "g"])
    assert main["resources"] == {"limits": {"memory": "20Gi"}, "requests": {"memory": "10Gi"}}
    assert len(pod["spec"]["containers"]) == 1
    assert "readinessProbe" not in main
    assert pod["spec"]["nodeSelector"] == {"pool": "gpu"}
    assert {"name": env.PHASE, "value": env.PHASE_PARTITIONER} in main["env"]
    assert {"name": "OMP_NUM_THREADS", "value": "4"} in main["env"]
    assert pod["spec"]["serviceAccountName"] == "full-partitioner"


@pytest.mark.parametrize(
    "device", ["nvidia.com/gpu", "amd.com/gpu", "nvidia.com/mig-1g.5gb", "gpu.intel.com/i915", "rdma/hca"]
)
def test_no_device_of_the_workers_reaches_the_partitioner(device: str) -> None:
    """It would hold it idle while the workers wait for it."""
    resources = {"limits": {device: "1"}, "requests": {"cpu": "1", device: "1"}}
    job = a_job(worker=a_template(resources=resources))

    main = main_of(pods.pod(job, Role.PARTITIONER, 0, IMAGES))

    assert main["resources"] == {"requests": {"cpu": "1"}}


def test_an_explicit_partitioner_template_wins() -> None:
    """Its image, resources, account and container name; the launcher's command where it has none."""
    pod = pods.pod(explicit(), Role.PARTITIONER, 0, IMAGES)

    assert (main_of(pod)["name"], main_of(pod)["image"]) == ("cut", "example/partition:v1")
    assert main_of(pod)["command"] == ["dglrun"]
    assert pod["spec"]["serviceAccountName"] == "reader"


def test_an_explicit_partitioner_keeps_its_own_command() -> None:
    """The user's word is the last."""
    job = a_job(partitioner=a_template(command=["python", "cut.py"]))

    assert main_of(pods.pod(job, Role.PARTITIONER, 0, IMAGES))["command"] == ["python", "cut.py"]
    assert "args" not in main_of(pods.pod(job, Role.PARTITIONER, 0, IMAGES))


def test_the_gpus_of_a_worker_stand_in_ipconfig_and_its_environment() -> None:
    """Decision 3: the container's limit, 0 without."""
    job = with_everything()
    files = config.config_map(job, ADDRESSES)["data"]

    assert [worker.gpus for worker in hostfile.parse_workers(files["ipconfig"])] == [2, 2]
    main = main_of(pods.pod(job, Role.WORKER, 1, IMAGES))
    assert {"name": env.GPUS_PER_WORKER, "value": "2"} in main["env"]
    assert {"name": env.WORKER_INDEX, "value": "1"} in main["env"]
    assert "slots=2" in files["hostfile"]


@pytest.mark.parametrize(
    ("mode", "own"),
    [
        (Mode.DGL_API, ["kubectl-download", "watcher-loop-partitioner", "watcher-loop-worker"]),
        (Mode.PARMETIS, ["kubectl-download", "watcher-loop-partitioner", "watcher-loop-worker"]),
        (Mode.DIST_PARMETIS, ["kubectl-download", "watcher-loop-worker"]),
        (Mode.SKIP, []),
    ],
)
def test_the_launchers_init_containers_come_in_their_order_before_the_users(
    mode: Mode, own: list[str]
) -> None:
    """The user's find the partitions delivered and the workers ready."""
    launcher = with_pod(a_template(command=["dglrun"]), initContainers=[{"name": "mine", "image": "x"}])

    pod = pods.pod(a_job(mode=mode, launcher=launcher), Role.LAUNCHER, 0, IMAGES)

    assert [each["name"] for each in pod["spec"]["initContainers"]] == [*own, "mine"]


def test_a_users_volume_at_the_dataset_path_is_used_by_both() -> None:
    """By the launcher and by the watcher into which the partitions are delivered."""
    pod = pods.pod(with_everything(), Role.LAUNCHER, 0, IMAGES)

    watcher = next(
        each for each in pod["spec"]["initContainers"] if each["name"] == "watcher-loop-partitioner"
    )
    assert mount("data", "/dgl_workspace/dataset") in watcher["volumeMounts"]
    assert mount("data", "/dgl_workspace/dataset") in main_of(pod)["volumeMounts"]
    assert volume(pod, "dataset-volume") is None


@pytest.mark.parametrize(
    ("users", "own"),
    [
        ([mount("shared", "/dgl_workspace/")], [mount("shared", "/dgl_workspace/")]),
        (
            [mount("shared", "/dgl_workspace"), mount("fast", "/dgl_workspace/dataset")],
            [mount("fast", "/dgl_workspace/dataset")],
        ),
        ([mount("code", "/dgl_workspace/code")], [mount("dataset-volume", "/dgl_workspace/dataset")]),
        (
            [{**mount("shared", "/dgl_workspace"), "readOnly": True}],
            [mount("dataset-volume", "/dgl_workspace/dataset")],
        ),
        (
            [{**mount("shared", "/dgl_workspace"), "subPathExpr": "$(POD)"}],
            [mount("dataset-volume", "/dgl_workspace/dataset")],
        ),
    ],
)
def test_a_users_volume_that_holds_the_dataset_folder_takes_the_partitions(
    users: list[Json], own: list[Json]
) -> None:
    """An empty directory over it would hide a shared workspace's partitions from the launcher."""
    volumes = [{"name": each["name"], "emptyDir": {}} for each in users]
    launcher = with_pod(a_template(command=["dglrun"], volumeMounts=users), volumes=volumes)

    pod = pods.pod(a_job(launcher=launcher), Role.LAUNCHER, 0, IMAGES)

    assert receiving_mounts(pod) == own
    assert (volume(pod, "dataset-volume") is None) == (own[0]["name"] != "dataset-volume")


def receiving_mounts(pod: Json) -> list[Json]:
    """What the container has into which the partitioner delivers, beside the configuration."""
    found = [each for each in pod["spec"]["initContainers"] if each["name"] == "watcher-loop-partitioner"]
    return [each for each in found[0]["volumeMounts"] if each["mountPath"] != "/etc/dgl"]


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/dgl_workspace", [mount("job-data-volume", "/dgl_workspace")]),
        ("/dgl_workspace/dataset", [mount("job-data-volume", "/dgl_workspace/dataset")]),
        (
            "/dgl_workspace/dataset/raw",
            [
                mount("dataset-volume", "/dgl_workspace/dataset"),
                mount("job-data-volume", "/dgl_workspace/dataset/raw"),
            ],
        ),
        ("/data", [mount("dataset-volume", "/dgl_workspace/dataset"), mount("job-data-volume", "/data")]),
    ],
)
def test_the_dataset_volume_is_where_the_partitions_come(path: str, own: list[Json]) -> None:
    """What the partitioner leaves on it is seen there, and nothing is mounted over it."""
    job = a_job(datasetVolume={"hostPath": {"path": "/srv"}, "mountPath": f"{path}/"})

    pod = pods.pod(job, Role.LAUNCHER, 0, IMAGES)

    assert receiving_mounts(pod) == own


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("read_only", [False, True])
def test_the_dataset_volume_is_at_one_path_in_every_main_container(mode: Mode, read_only: bool) -> None:
    """Sidecars and the user's init containers may mount it by its name."""
    source = {"nfs": {"server": "nfs.example.org", "path": "/graphs"}}
    given = {**source, "mountPath": "//graphs/", "readOnly": read_only}
    explicit = a_template("cut") if mode.has_partitioner else None
    job = a_job(mode=mode, partitioner=explicit, datasetVolume=given)

    made = list(desired.pods(job, frozenset({Role.LAUNCHER}) | _other_roles(mode), IMAGES))

    wanted = mount("job-data-volume", "/graphs") | ({"readOnly": True} if read_only else {})
    assert len(made) == {Mode.SKIP: 1, Mode.DIST_PARMETIS: 3}.get(mode, 4)
    for pod in made:
        assert wanted in main_of(pod)["volumeMounts"]
        assert volume(pod, "job-data-volume") == {"name": "job-data-volume", **source}


def test_pods_without_a_dataset_volume_have_none() -> None:
    """The field is an offer."""
    for pod in desired.pods(a_job(), frozenset(Role), IMAGES):
        assert volume(pod, "job-data-volume") is None


@pytest.mark.parametrize("mode", list(Mode))
def test_annotations_reach_each_account_and_each_pod_has_one(mode: Mode) -> None:
    """A cloud gives a pod the identity of its account; workers get one that may do nothing."""
    wanted = {"example.org/role": "trainer"}
    job = a_job(mode=mode, serviceAccountAnnotations=wanted)
    roles = frozenset({Role.LAUNCHER}) | _other_roles(mode)

    made = list(desired.pods(job, roles, IMAGES))
    accounts = {
        body["metadata"]["name"]: body["metadata"]
        for body in desired.objects(job, Addresses())
        if body["kind"] == "ServiceAccount"
    }
    rights = desired.rights(job, frozenset(pod["metadata"]["name"] for pod in made))

    assert {pod["spec"]["serviceAccountName"] for pod in made} == set(accounts)
    assert all(metadata["annotations"].items() >= wanted.items() for metadata in accounts.values())
    assert "sage-worker" not in {body["metadata"]["name"] for body in rights}
    for pod in made:
        is_worker = pod["metadata"]["labels"]["dgl-operator/role"] == "worker"
        assert pod["spec"].get("automountServiceAccountToken") == (False if is_worker else None)


def test_workers_have_no_account_without_annotations() -> None:
    """As before: the account `default` of their namespace, without a token."""
    (first, *_) = desired.pods(a_job(), frozenset({Role.WORKER}), IMAGES)

    assert "serviceAccountName" not in first["spec"]
    assert not any(
        body["metadata"]["name"] == "sage-worker" for body in desired.objects(a_job(), Addresses())
    )


def test_a_users_own_shared_memory_is_kept() -> None:
    """At the same path; ours is left out."""
    pod = pods.pod(with_everything(), Role.WORKER, 0, IMAGES)

    assert volume(pod, "shm-volume") is None
    assert volume(pod, "fast") is not None


def test_our_init_containers_meet_restricted_where_the_users_pod_does() -> None:
    """And carry capabilities only where they may be needed."""
    strict = pods.pod(with_everything(), Role.LAUNCHER, 0, IMAGES)["spec"]["initContainers"][0][
        "securityContext"
    ]
    plain = pods.pod(a_job(), Role.LAUNCHER, 0, IMAGES)["spec"]["initContainers"][0]["securityContext"]

    assert strict == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert plain == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def test_a_worker_idles_unless_it_has_a_command() -> None:
    """`sleep 365d`; dglrun starts what trains. Arguments alone are for the image's own entry point."""
    idle = pods.pod(a_job(), Role.WORKER, 0, IMAGES)
    busy = pods.pod(a_job(worker=a_template(command=["serve"])), Role.WORKER, 0, IMAGES)
    served = pods.pod(a_job(worker=a_template(args=["--serve"])), Role.WORKER, 0, IMAGES)

    assert main_of(idle)["command"] == ["sleep", "365d"]
    assert main_of(busy)["command"] == ["serve"]
    assert ("command" not in main_of(served), main_of(served)["args"]) == (True, ["--serve"])


def test_a_workers_ports_are_kept_beside_dgls() -> None:
    """The 2021 operator wrote over them."""
    ports = main_of(pods.pod(with_everything(), Role.WORKER, 0, IMAGES))["ports"]

    assert ports == [
        {"name": "metrics", "containerPort": 9100},
        {"name": "dglserver", "containerPort": 30050, "protocol": "TCP"},
    ]


def test_the_template_is_not_changed_by_rendering() -> None:
    """Values in, values out."""
    job = with_everything()
    before = job.model_dump_json()

    desired.objects(job, ADDRESSES)
    tuple(desired.pods(job, frozenset(Role), IMAGES))

    assert job.model_dump_json() == before


def test_kubexec_passes_the_shells_own_checks(tmp_path: Path) -> None:
    """`sh -n` and shellcheck."""
    script = tmp_path / "kubexec.sh"
    script.write_text(config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"])

    subprocess.run(["sh", "-n", str(script)], check=True)
    subprocess.run(["shellcheck", str(script)], check=True)


@pytest.mark.parametrize(
    ("argv", "called"),
    [
        (["sage-worker-0", "echo", "hi"], "sage-worker-0 -c main -- /bin/sh -c echo hi"),
        (["sage-worker-0 -c side", "ls"], "sage-worker-0 -c side -- /bin/sh -c ls"),
        (["sage-launcher", "ls"], "sage-launcher -- /bin/sh -c ls"),
        (["sage-worker-1", "a b", "'c d'"], "sage-worker-1 -c main -- /bin/sh -c a b 'c d'"),
    ],
)
def test_kubexec_runs_kubectl_as_the_2021_script_did(tmp_path: Path, argv: list[str], called: str) -> None:
    """`kubexec.sh POD CMD...`, and "POD -c CONTAINER" as first argument."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text('#!/bin/sh\necho "$@"\n')
    kubectl.chmod(0o755)
    text = config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"]
    script = tmp_path / "kubexec.sh"
    script.write_text(text.replace("/opt/kube/kubectl", str(kubectl)))

    done = subprocess.run(["sh", str(script), *argv], capture_output=True, text=True, check=True)

    assert done.stdout == f"exec --namespace default {called}\n"


UNREACHABLE = """#!/bin/sh
# kubectl exec ...: runs the command, unless there are tries left that do not reach the pod
n=$(cat {folder}/away 2>/dev/null || echo 0)
if [ "$n" -gt 0 ]; then echo $((n-1)) >{folder}/away; echo "error: a hole on the way" >&2; exit 1; fi
while [ "$1" != -- ]; do shift; done
shift
echo "$*" >>{folder}/ran
exec "$@"
"""


@pytest.mark.parametrize(
    ("away", "command", "code", "ran"),
    [
        (0, "exit 7", 7, ["/bin/sh -c exit 7"]),
        (0, "exit 1", 1, ["/bin/sh -c exit 1", "true"]),
        (2, "exit 0", 0, ["true", "/bin/sh -c exit 0"]),
        (3, "exit 7", 7, ["true", "/bin/sh -c exit 7"]),
    ],
)
def test_kubexec_waits_for_a_pod_that_cannot_be_reached(
    tmp_path: Path, away: int, command: str, code: int, ran: list[str]
) -> None:
    """MPI is started once more when the API server is back; what has failed in the pod is not."""
    kubectl, script = tmp_path / "kubectl", tmp_path / "kubexec.sh"
    kubectl.write_text(UNREACHABLE.format(folder=tmp_path))
    kubectl.chmod(0o755)
    (tmp_path / "away").write_text(str(away))
    text = config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"]
    script.write_text(text.replace("/opt/kube/kubectl", str(kubectl)).replace("sleep 2", "sleep 0"))

    done = subprocess.run(["sh", str(script), "sage-worker-0", command], check=False)

    assert done.returncode == code
    assert (tmp_path / "ran").read_text().splitlines() == ran


def test_a_signal_to_kubexec_ends_its_kubectl(tmp_path: Path) -> None:
    """Mpirun ends what it has started; a kubectl that goes on would hold the stream."""
    kubectl, script, pid = tmp_path / "kubectl", tmp_path / "kubexec.sh", tmp_path / "pid"
    kubectl.write_text(f"#!/bin/sh\necho $$ >{pid}.part; mv {pid}.part {pid}; exec sleep 600\n")
    kubectl.chmod(0o755)
    text = config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"]
    script.write_text(text.replace("/opt/kube/kubectl", str(kubectl)))
    with subprocess.Popen(["sh", str(script), "sage-worker-0", "ls"]) as process:
        wait_for("kubectl", pid.exists)

        process.terminate()

        assert process.wait(60) == 143
        wait_for("the end of kubectl", lambda: not running(int(pid.read_text())))


def test_a_signal_to_kubexec_while_it_starts_kubectl_ends_that_too(tmp_path: Path) -> None:
    """The shell does not know its number yet: kubectl lived on, and its command in the pod."""
    kubectl, script = tmp_path / "kubectl", tmp_path / "kubexec.sh"
    kubectl.write_text("#!/bin/sh\nexec sleep 600\n")
    kubectl.chmod(0o755)
    text = config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"]
    text = text.replace("/opt/kube/kubectl", str(kubectl)).replace("child=$!", "kill -TERM $$\n    child=$!")
    script.write_text(text)

    # Returns when nobody holds its output any more.
    done = subprocess.run(
        ["sh", str(script), "sage-worker-0", "ls"], capture_output=True, timeout=60, check=False
    )

    assert done.returncode == 143


def test_kubexec_runs_nothing_that_a_name_contains(tmp_path: Path) -> None:
    """Names are words to the shell, whatever the API server lets through one day."""
    kubectl, mark = tmp_path / "kubectl", tmp_path / "ran"
    kubectl.write_text('#!/bin/sh\necho "$@"\n')
    kubectl.chmod(0o755)
    hostile = f"m;touch${{IFS}}{mark}$(touch${{IFS}}{mark})"
    text = scripts.kubexec(namespace=hostile, job="sage", container=hostile)
    script = tmp_path / "kubexec.sh"
    script.write_text(text.replace("/opt/kube/kubectl", str(kubectl)))

    done = subprocess.run(
        ["sh", str(script), "sage-worker-0", "ls"], capture_output=True, text=True, check=True
    )

    assert done.stdout == f"exec --namespace {hostile} sage-worker-0 -c {hostile} -- /bin/sh -c ls\n"
    assert not mark.exists()


def test_kubexec_without_a_command_is_a_usage_error(tmp_path: Path) -> None:
    """Not a shell that waits."""
    script = tmp_path / "kubexec.sh"
    script.write_text(config.config_map(a_job(), ADDRESSES)["data"]["kubexec.sh"])

    done = subprocess.run(["sh", str(script), "pod"], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (2, "usage: kubexec.sh POD COMMAND...\n")


def test_the_arguments_of_the_launcher_reach_its_pod_verbatim() -> None:
    """And the partitioner's."""
    job = a_job()
    wanted = [word.format(workers=2) for word in DGLRUN]

    assert main_of(pods.pod(job, Role.LAUNCHER, 0, IMAGES))["args"] == wanted
    assert main_of(pods.pod(job, Role.PARTITIONER, 0, IMAGES))["args"] == wanted


def test_init_containers_use_what_the_administrator_gives_them() -> None:
    """All of them, in the partitioner, too."""
    given = replace(IMAGES, resources={"limits": {"memory": "1Gi"}})
    job = a_job()

    made = [pods.pod(job, role, 0, given) for role in (Role.LAUNCHER, Role.PARTITIONER)]

    inits = [each for pod in made for each in pod["spec"]["initContainers"]]
    assert [each["resources"] for each in inits] == [{"limits": {"memory": "1Gi"}}] * 4
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in inits)
