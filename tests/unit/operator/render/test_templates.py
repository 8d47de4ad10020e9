"""Any template that the API server would store either runs or is refused by name; none is stuck for ever."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import DGLJob, InvalidJob
from dgl_operator.domain import validate
from dgl_operator.domain.verdict import wanted
from dgl_operator.render import desired
from dgl_operator.render.config import Addresses
from dglrun.contract.names import Mode, Role
from tests.support.jobs import IMAGES, Json, a_raw_job, a_template
from tests.support.junk import paths, put

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 99)
    | st.floats(allow_nan=False, allow_infinity=False, width=16)
    | st.text(max_size=5)
    | st.sampled_from(["x", "1e900000", "2Gi", "-1", "1e" + "9" * 5000, "/dev//shm/", "Z" * 70_000, "a\nb"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "limits", "memory", "x/gpu", "runAsUser", "mountPath", "A" * 500]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=4,
)


def a_whole_template() -> Json:
    """All that rendering reads of a template, and a little more."""
    memory = {"limits": {"memory": "1Gi", "x.y/gpu": 1}, "requests": {"cpu": 0.5}, "claims": [{"name": "c"}]}
    found = a_template(
        command=["dglrun"],
        args=["--num-partitions", "2", "--graph-name", "g"],
        workingDir="/w",
        env=[{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
        envFrom=[{"configMapRef": {"name": "x"}}],
        ports=[{"name": "web", "containerPort": 80, "protocol": "TCP"}],
        volumeMounts=[
            {"name": "v", "mountPath": "/v"},
            {"name": "w", "mountPath": "/dev/shm", "subPath": "s"},
        ],
        resources=memory,
        securityContext={"runAsNonRoot": True, "runAsUser": 1, "runAsGroup": 1},
        lifecycle={"preStop": {"exec": {"command": ["x"]}}},
    )
    found["metadata"] = {"labels": {"a": "b"}, "annotations": {"c": "d"}}
    main = found["spec"]["containers"][0]
    found["spec"] |= {
        "initContainers": [{**main, "name": "own"}],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"medium": "Memory"}}],
        "resources": memory,
        "resourceClaims": [{"name": "c"}],
        "securityContext": {"runAsNonRoot": True, "fsGroup": 1},
        "serviceAccountName": "account",
        "serviceAccount": "account",
        "automountServiceAccountToken": True,
        "restartPolicy": "Never",
        "hostPID": False,
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a"}],
        "imagePullSecrets": [{"name": "a"}],
    }
    found["spec"]["containers"].append({**main, "name": "side"})
    return found


WHOLE = a_whole_template()
MORE = [("spec", key) for key in ("hostname", "subdomain", "setHostnameAsFQDN", "shareProcessNamespace")]
PLACES = [path for path in paths(WHOLE) if path] + MORE


def rendered_or_refused(raw: Json) -> tuple[str, ...]:
    """What is said of the job; nothing is said of one that renders."""
    try:
        job = DGLJob.parse(raw)
    except InvalidJob as error:
        return error.problems
    if found := validate.problems(job):
        return found
    needed = frozenset(each for each in Role if wanted(job, each))
    desired.objects(job, Addresses(None, None, (None, None)))
    pods = desired.pods(job, needed, IMAGES)
    desired.rights(job, frozenset(pod["metadata"]["name"] for pod in pods))
    validate.warnings(job)
    return ()


def test_the_template_itself_renders() -> None:
    """Otherwise the other tests here would prove little."""
    assert rendered_or_refused(a_raw_job(launcher=WHOLE, worker=WHOLE, partitioner=WHOLE)) == ()


@settings(max_examples=800)
@given(
    st.sampled_from(PLACES),
    JUNK,
    st.sampled_from(["launcher", "worker", "partitioner"]),
    st.sampled_from([Mode.DGL_API, Mode.DIST_PARMETIS]),
)
def test_anything_at_any_place_of_a_template_is_refused_by_name_or_rendered(
    path: tuple[str | int, ...], junk: Any, role: str, mode: Mode
) -> None:
    """The CRD keeps unknown keys unchecked, so that a blank or mistyped one comes as far as here."""
    own = {"launcher": WHOLE, "worker": WHOLE, role: put(WHOLE, path, junk)}
    given_templates: dict[str, Any] = {
        key: value for key, value in own.items() if key != "partitioner" or mode.has_partitioner
    }

    for line in rendered_or_refused(a_raw_job(mode=mode, **given_templates)):
        assert line.startswith("spec.dglReplicaSpecs.")
        assert "expected" in line or "required" in line or "Input should be" in line
        assert ", got " in line
        assert len(line) < 700
        assert "\n" not in line


@pytest.mark.parametrize("path", PLACES, ids=lambda path: ".".join(map(str, path)))
def test_every_place_may_be_left_blank_or_is_named(path: tuple[str | int, ...]) -> None:
    """A key without a value is null; so is an entry of a list."""
    rendered_or_refused(a_raw_job(launcher=put(WHOLE, path, None), worker=put(WHOLE, path, None)))


def change(path: str, value: Any) -> Json:
    """The whole template with another value at a dotted path."""
    steps = tuple(int(step) if step.isdecimal() else step for step in path.split("."))
    found: Json = put(WHOLE, steps, value)
    return found


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("spec.containers.0.volumeMounts.0", {"name": "v"},
         "spec.containers[0].volumeMounts[0].mountPath: required, got nothing"),
        ("spec.containers.0.volumeMounts.0.mountPath", ["/v"],
         "spec.containers[0].volumeMounts[0].mountPath: expected a string, got ['/v']"),
        ("spec.containers.0.env.1", None, "spec.containers[0].env[1]: expected an object, got null"),
        ("spec.containers.0.env.0.value", 5, "spec.containers[0].env[0].value: expected a string, got 5"),
        ("spec.containers.0.envFrom", {"x": 1},
         "spec.containers[0].envFrom: expected a list of objects, got {'x': 1}"),
        ("spec.containers.0.args.1", 2, "spec.containers[0].args[1]: expected a string, got 2"),
        ("spec.containers.0.ports.0.containerPort", "80",
         "spec.containers[0].ports[0].containerPort: expected a whole number, got '80'"),
        ("spec.containers.0.resources.limits.memory", ["1Gi"],
         "spec.containers[0].resources.limits[memory]: expected a quantity such as 20Gi or 500m, got "
         "['1Gi']"),
        ("spec.containers.1.resources", [], "spec.containers[1].resources: expected an object, got []"),
        ("spec.volumes.0.name", {"a": 1}, "spec.volumes[0].name: expected a string, got {'a': 1}"),
        ("spec.volumes.1", "v", "spec.volumes[1]: expected an object, got 'v'"),
        ("spec.initContainers.0.name", "", "spec.initContainers[0].name: required, got nothing"),
        ("spec.serviceAccountName", 7, "spec.serviceAccountName: expected a string, got 7"),
        ("spec.hostPID", "no", "spec.hostPID: expected true or false, got 'no'"),
        ("metadata.labels.a", 1, "metadata.labels[a]: expected a string, got 1"),
        ("metadata.annotations", ["x"], "metadata.annotations: expected strings by name, got ['x']"),
        ("spec.containers.0.command", "y" * 70_000,
         "spec.containers[0].command: expected a list of strings, got '" + "y" * 199 + "…"),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_named_with_its_place(path: str, value: Any, said: str) -> None:
    """Instead of a KeyError; long values are cut."""
    worker = change(path, value)

    found = rendered_or_refused(a_raw_job(launcher=a_template(command=["dglrun"]), worker=worker))

    assert found == (f"spec.dglReplicaSpecs.Worker.template.{said}",)


def test_of_very_many_problems_the_first_are_named() -> None:
    """A status holds no hundred thousand lines."""
    worker = change("spec.containers.0.env", [None] * 100_000)

    assert len(rendered_or_refused(a_raw_job(worker=worker))) == 50
