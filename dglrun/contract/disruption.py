"""By what a pod's status says that Kubernetes ended it for reasons that are not the pod's own."""

CONDITION = "DisruptionTarget"
"""True on a pod that is evicted, preempted, or taken from a node that is lost or drained."""
ENDED_BY_NODE = ("NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting")
"""Reasons of a failed pod by which kubelets before that condition said so. `Evicted` without it is for what
the pod used itself, as a disk that it filled."""
