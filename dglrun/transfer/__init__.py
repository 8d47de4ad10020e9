"""Files between the pods of a job: pulled over TLS (`pull`), or as tar streams through `kubectl exec`."""
