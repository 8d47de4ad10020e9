"""Any template that the API server would store either runs or is refused by name; none is stuck for ever."""

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from dgl_operator.api.v1alpha1 import DGLJob, InvalidJob
from dgl_operator.domain import decide, validate
from dgl_operator.render import desired
from dgl_operator.render.config import Addresses
from dglrun.contract.names import Role
from tests.support.jobs import IMAGES, Json, a_raw_job, a_template

JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 99) | st.sampled_from(["", "x", "1e900000", "2Gi", "-1"]),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["name", "limits", "memory", "x/gpu", "runAsUser"]), inner, max_size=2
        )
    ),
    max_leaves=4,
)
KEYS = (
    ("metadata",), ("metadata", "labels"), ("metadata", "annotations"), ("spec",),
    *(("spec", key) for key in (
        "securityContext", "resources", "initContainers", "volumes", "nodeSelector", "tolerations",
        "serviceAccountName", "restartPolicy", "imagePullSecrets",
    )),
    *(("spec", "containers", 0, key) for key in (
        "resources", "securityContext", "env", "ports", "volumeMounts", "command", "args", "lifecycle",
    )),
    ("spec", "containers", 0, "resources", "limits"),
    ("spec", "containers", 0, "resources", "limits", "memory"),
    ("spec", "initContainers", 0, "resources"),
    ("spec", "resources", "limits"),
)  # fmt: skip


def a_whole_template() -> Json:
    found = a_template(resources={"limits": {"memory": "1Gi"}})
    found["metadata"] = {"labels": {}}
    found["spec"]["initContainers"] = [{"name": "own", "image": "x", "resources": {}}]
    found["spec"]["resources"] = {}
    return found


def with_junk(template: Json, path: tuple[str | int, ...], junk: Any) -> Json:
    found = copy.deepcopy(template)
    holder: Any = found
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = junk
    return found


@given(st.sampled_from(KEYS), JUNK, st.sampled_from(["launcher", "worker", "partitioner"]))
def test_a_key_with_anything_in_it_is_refused_or_rendered(
    path: tuple[str | int, ...], junk: Any, role: str
) -> None:
    """The CRD keeps unknown keys unchecked, so a blank or mistyped one comes as far as here."""
    template = with_junk(a_whole_template(), path, junk)
    roles: dict[str, Any] = {role: template}

    try:
        job = DGLJob.parse(a_raw_job(**roles))
    except InvalidJob:
        return
    if validate.problems(job):
        return

    needed = frozenset(each for each in Role if decide.wanted(job, each))
    desired.objects(job, Addresses(None, None, (None, None)))
    desired.pods(job, needed, IMAGES)
