"""The partitioner that is made from the worker's template and the launcher's container."""

import pytest

from dgl_operator.render import pods
from dgl_operator.render.merge import Json
from dglrun.contract.names import Role
from tests.support.jobs import IMAGES, a_job, a_template
from tests.unit.operator.render.test_render import main_of, mount, volume, with_pod


def claim(name: str, of: str) -> Json:
    return {"name": name, "persistentVolumeClaim": {"claimName": of}}


def made_partitioner(launcher: Json, worker: Json) -> Json:
    """The partitioner of a job with these two templates."""
    return pods.pod(a_job(launcher=launcher, worker=worker), Role.PARTITIONER, 0, IMAGES)


def test_the_partitioner_gets_the_launchers_environment_and_the_launchers_wins() -> None:
    """What stands beside --partition-entry-point reaches the partition script."""
    launcher = a_template(
        command=["dglrun"],
        env=[{"name": "ROOT", "value": "/l"}, {"name": "DATA", "value": "$(ROOT)/data"}],
        envFrom=[{"configMapRef": {"name": "of-launcher"}}],
    )
    worker = a_template(
        env=[{"name": "DATA", "value": "/w"}, {"name": "CUT", "value": "$(DATA)/cut"}],
        envFrom=[{"secretRef": {"name": "of-worker"}}],
    )

    main = main_of(made_partitioner(launcher, worker))

    assert main["env"][:3] == [
        {"name": "ROOT", "value": "/l"},
        {"name": "DATA", "value": "$(ROOT)/data"},
        {"name": "CUT", "value": "$(DATA)/cut"},
    ]
    assert main["envFrom"] == [
        {"secretRef": {"name": "of-worker"}},
        {"configMapRef": {"name": "of-launcher"}},
    ]


def test_the_partitioner_mounts_what_the_launcher_mounts_and_the_launchers_wins() -> None:
    """With the volumes that these mounts name; what the launcher mounts nowhere is not taken."""
    launcher = with_pod(
        a_template(command=["dglrun"], volumeMounts=[mount("code", "/code/"), mount("raw", "/raw")]),
        volumes=[claim("code", "of-launcher"), claim("raw", "raw"), claim("unused", "x")],
    )
    worker = with_pod(
        a_template(volumeMounts=[mount("code", "/code"), mount("tmp", "/tmp")]),
        volumes=[claim("code", "of-worker"), {"name": "tmp", "emptyDir": {}}],
    )

    pod = made_partitioner(launcher, worker)

    assert main_of(pod)["volumeMounts"][:3] == [
        mount("tmp", "/tmp"),
        mount("code", "/code/"),
        mount("raw", "/raw"),
    ]
    assert (volume(pod, "code"), volume(pod, "raw")) == (claim("code", "of-launcher"), claim("raw", "raw"))
    assert volume(pod, "unused") is None


def test_one_name_for_two_volumes_gives_the_partitioner_both() -> None:
    """Each mount shows what its template says, the worker's init container included."""
    launcher = with_pod(
        a_template(command=["dglrun"], volumeMounts=[mount("data", "/a"), mount("pack", "/p")]),
        volumes=[claim("data", "of-launcher"), claim("pack", "of-launcher"), claim("data-launcher", "x")],
    )
    worker = with_pod(
        a_template(volumeMounts=[mount("data", "/b")]),
        volumes=[claim("data", "of-worker"), claim("pack", "of-worker")],
        initContainers=[{"name": "fetch", "image": "x", "volumeMounts": [mount("pack", "/p")]}],
    )

    pod = made_partitioner(launcher, worker)

    assert main_of(pod)["volumeMounts"][:3] == [
        mount("data", "/b"),
        mount("data-launcher-1", "/a"),
        mount("pack-launcher", "/p"),
    ]
    assert (volume(pod, "data"), volume(pod, "pack")) == (
        claim("data", "of-worker"),
        claim("pack", "of-worker"),
    )
    assert volume(pod, "data-launcher-1") == claim("data-launcher-1", "of-launcher")
    assert volume(pod, "pack-launcher") == claim("pack-launcher", "of-launcher")


def test_a_volume_that_both_define_alike_is_one_volume() -> None:
    """A claim that all of them read."""
    shared = claim("data", "graphs")
    launcher = with_pod(a_template(command=["dglrun"], volumeMounts=[mount("data", "/a")]), volumes=[shared])
    worker = with_pod(a_template(volumeMounts=[mount("data", "/b")]), volumes=[shared])

    pod = made_partitioner(launcher, worker)

    assert main_of(pod)["volumeMounts"][:2] == [mount("data", "/b"), mount("data", "/a")]
    assert [each["name"] for each in pod["spec"]["volumes"]].count("data") == 1
    assert len(pod["spec"]["volumes"]) == 4


@pytest.mark.parametrize("path", ["/dgl_workspace/dataset", "/dgl_workspace/output/"])
def test_the_launchers_dataset_and_output_stay_with_the_launcher(path: str) -> None:
    """Partitions are delivered into the first, and a volume that one node mounts blocks no partitioner."""
    launcher = with_pod(
        a_template(command=["dglrun"], volumeMounts=[mount("mine", path)]), volumes=[claim("mine", "x")]
    )

    pod = made_partitioner(launcher, a_template())

    assert volume(pod, "mine") is None
    assert path not in str(pod)
