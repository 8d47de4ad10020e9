"""The APIs by which a scheduler binds the workers of a job all or none, the preferred one first."""

from enum import Enum

KIND = "PodGroup"
PLURAL = "podgroups"
COSCHEDULING_LABEL = "scheduling.x-k8s.io/pod-group"
"""By which a pod names its group to coscheduling."""
GROUP_FIELD = "schedulingGroup"
"""By which a pod's spec names its group to Kubernetes' own scheduler."""

DEFAULT_SCHEDULER = "default-scheduler"
"""The cluster's own scheduler: a pod that names none is given this name."""


class GangApi(Enum):
    """An API with a PodGroup; the value is its group and version."""

    KUBERNETES = "scheduling.k8s.io/v1alpha2"
    COSCHEDULING = "scheduling.x-k8s.io/v1alpha1"

    @property
    def group(self) -> str:
        """The API group."""
        return self.value.partition("/")[0]
