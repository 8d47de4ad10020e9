"""Files between the pods of a job, by tar streams through `kubectl exec`."""
