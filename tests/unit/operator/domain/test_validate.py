"""What the API server cannot refuse is refused by the operator before anything is created."""

from typing import Any

import pytest

from dgl_operator.domain import validate
from dglrun.contract.names import Mode
from tests.support.jobs import DGLRUN, Json, a_job, a_raw_job, a_template


def test_the_builders_jobs_are_valid_in_every_mode() -> None:
    """Otherwise the other tests here would prove little."""
    assert [validate.problems(a_job(mode=mode)) for mode in Mode] == [()] * 4


@pytest.mark.parametrize("spelling", [("--num-partitions", "2"), ("--num-partitions=2",)])
def test_partitions_must_equal_workers_and_the_message_names_both(spelling: tuple[str, ...]) -> None:
    """Not hours later by an assertion."""
    problems = validate.problems(a_job(workers=3, args=["--graph-name", "g", *spelling]))

    assert problems == (
        "spec.dglReplicaSpecs.Launcher: expected --num-partitions to equal Worker.replicas (3), "
        "since worker i trains part i, got 2",
    )


@pytest.mark.parametrize(
    "args",
    [
        ["--graph-name", "g"],
        ["--num-partitions", "$(PARTS)"],
        ["--", "--num-partitions", "7"],
        ["--num-partitions"],
        ["--num-partitions", "9" * 5000],
    ],
)
def test_a_number_that_cannot_be_told_is_left_to_dglrun(args: list[str]) -> None:
    """What follows `--` is the training script's."""
    assert validate.problems(a_job(workers=3, args=args)) == ()


def test_another_command_may_have_such_a_flag() -> None:
    """Only dglrun's flags are known."""
    launcher = a_template(command=["python", "mine.py"], args=["--num-partitions", "7"])

    assert validate.problems(a_job(launcher=launcher)) == ()


def with_pod(**spec: Any) -> Json:
    template = a_template()
    return {"spec": {**template["spec"], **spec}}


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (with_pod(restartPolicy="Always"), "restartPolicy: expected Never"),
        (with_pod(hostname="me"), "hostname: expected nothing"),
        (with_pod(subdomain="me"), "subdomain: expected nothing"),
        (
            with_pod(initContainers=[{"name": "kubectl-download", "image": "x"}]),
            "initContainers: expected a name",
        ),
        (with_pod(volumes=[{"name": "config-volume", "emptyDir": {}}]), "volumes: expected a name"),
        (
            with_pod(volumes=[{"name": "shm-volume", "emptyDir": {}}]),
            "expected shm-volume mounted at /dev/shm",
        ),
        (
            a_template(volumeMounts=[{"name": "v", "mountPath": "/etc/dgl/"}]),
            "expected /etc/dgl free, got 'v'",
        ),
        (
            a_template(volumeMounts=[{"name": "v", "mountPath": "/opt/kube"}]),
            "expected /opt/kube free, got 'v'",
        ),
        (a_template(env=[{"name": "DGL_OPERATOR_ENV", "value": "0"}]), "expected no DGL_OPERATOR_*"),
        (a_template(ports=[{"name": "web", "containerPort": 30050}]), "expected 30050 (dglserver) free"),
        (a_template(ports=[{"name": "dglserver", "containerPort": 8080}]), "expected 30050 (dglserver) free"),
        (a_template(resources={"limits": {"memory": "lots"}}), "expected a quantity such as 20Gi"),
        (a_template(env="PATH=/bin"), "env: expected a list of objects, got 'PATH=/bin'"),
        (a_template(resources=["10Gi"]), "resources: expected an object"),
        (a_template(resources={"limits": ["10Gi"]}), "resources.limits: expected amounts by name"),
        (a_template(resources={"limits": {"memory": "-1Gi"}}), "expected a quantity of at least 0"),
        (a_template("kubectl-download"), "containers: expected a name that the operator does not use"),
        (
            a_template(resources={"limits": {"memory": "1e9999999"}}),
            "expected a quantity of at most 40 digits",
        ),
        (a_template(securityContext="root"), "securityContext: expected an object, got 'root'"),
        ({"metadata": "x", **a_template()}, "metadata: expected an object, got 'x'"),
    ],
)
def test_what_clashes_with_the_operators_own_parts_is_named(template: Json, said: str) -> None:
    """A conflict is an error and nothing of the user's is overwritten."""
    problems = validate.problems(a_job(worker=template))

    assert len(problems) == 1
    assert said in problems[0]
    assert "Worker" in problems[0]


@pytest.mark.parametrize(
    "template",
    [
        a_template(ports=[{"name": "dglserver", "containerPort": 30050}]),
        a_template(ports=[{"containerPort": 30050, "protocol": "TCP"}]),
        a_template(ports=[{"name": "metrics", "containerPort": 9100}]),
        a_template(volumeMounts=[{"name": "mine", "mountPath": "/dev/shm"}]),
        with_pod(restartPolicy="Never"),
    ],
)
def test_what_agrees_with_the_operators_own_parts_is_accepted(template: Json) -> None:
    """Saying the same is no conflict."""
    assert validate.problems(a_job(worker=template)) == ()


def test_a_users_volume_of_our_name_at_our_path_is_accepted() -> None:
    """So that a claim takes the place of the empty directory."""
    launcher = {
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "command": ["dglrun"],
                    "volumeMounts": [{"name": "dataset-volume", "mountPath": "/dgl_workspace/dataset"}],
                }
            ],
            "volumes": [{"name": "dataset-volume", "persistentVolumeClaim": {"claimName": "data"}}],
        }
    }

    assert validate.problems(a_job(launcher=launcher)) == ()


@pytest.mark.parametrize("mode", [Mode.PARMETIS, Mode.DIST_PARMETIS])
def test_a_mode_without_back_end_is_refused_by_one_switch(mode: Mode) -> None:
    """The switch turned, the same job is fine."""
    job = a_job(mode=mode)

    assert validate.unsupported(job, frozenset({Mode.DGL_API, Mode.SKIP})) == (
        "spec.partitionMode: expected one of DGL-API, Skip, whose back ends are in the image, "
        f"got {mode.value}"
    )
    assert validate.unsupported(job, frozenset(Mode)) is None


def test_a_service_account_of_the_users_own_is_kept_with_a_warning() -> None:
    """Its rights remain the user's responsibility."""
    launcher = a_template(command=["dglrun"])
    launcher["spec"]["serviceAccountName"] = "trainer"

    warnings = validate.warnings(a_job(launcher=launcher, args=DGLRUN))

    assert warnings == ("Launcher keeps its serviceAccountName trainer, which must hold the rights of ours",)


def test_the_rules_of_the_api_come_first() -> None:
    """A job stored under an older CRD may break them."""
    raw = a_raw_job()
    raw["spec"]["dglReplicaSpecs"]["Launcher"]["replicas"] = 2

    problems = validate.problems(a_job().__class__.parse(raw))

    assert problems == ("spec.dglReplicaSpecs: expected exactly one Launcher (replicas: 1), got 2",)
