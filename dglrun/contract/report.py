"""The keys of the report ConfigMap, which the job's pods patch and the operator copies into status."""

PROGRESS = "progress.json"
"""`{"stage": "Partitioning", "message": "...", "contract": 2, "percent": 40, "time": "<RFC 3339>"}`.

`percent` is optional; `contract` is the job image's number (`dglrun.contract.version`), 1 where it lacks."""

PARTITION = "partition.json"
"""The partition's quality as `status.partition` shows it (numParts, method, edgeCut, ...)."""

STAGE_PARTITIONING = "Partitioning"
STAGE_DELIVERING = "Delivering"
STAGE_DISPATCHING = "Dispatching"
STAGE_TRAINING = "Training"
STAGE_COLLECTING = "Collecting"
STAGE_COMPLETED = "Completed"
"""Written as the very last thing of a run that succeeded; nothing that happens to a pod later undoes it."""
