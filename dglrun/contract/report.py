"""The keys of the report ConfigMap, which the job's pods patch and the operator copies into status."""

import contextlib
import math
from collections.abc import Mapping

PROGRESS = "progress.json"
"""`{"stage": "Partitioning", "message": "...", "contract": 2, "percent": 40, "time": "<RFC 3339>"}`.

`percent` is optional; `contract` is the job image's number (`dglrun.contract.version`), 1 where it lacks.
`epoch` (a whole number) and `loss` (a number as text) are there if the training script has told them.
`replaces` is true while the launcher goes on when the operator replaces a lost worker; where it lacks, a lost
worker is the end of the attempt."""

PARTITION = "partition.json"
"""The partition's quality as `status.partition` shows it (numParts, method, edgeCut, ...)."""

STAGE_PARTITIONING = "Partitioning"
STAGE_DELIVERING = "Delivering"
STAGE_DISPATCHING = "Dispatching"
STAGE_TRAINING = "Training"
STAGE_COLLECTING = "Collecting"
STAGE_COMPLETED = "Completed"
"""Written as the very last thing of a run that succeeded; nothing that happens to a pod later undoes it."""

_MAX_EPOCH = 2**31 - 1


def script_values(raw: Mapping[str, object]) -> dict[str, int | str]:
    """Of what a script says of its progress that which can stand in the report, in its form there.

    Args:
        raw: By `epoch`, `loss` and `percent`; numbers, or what `float` makes numbers of.
    """
    found: dict[str, int | str] = {}
    if (epoch := _number(raw.get("epoch"))) is not None and 0 <= epoch <= _MAX_EPOCH:
        found["epoch"] = int(epoch)
    if (loss := _number(raw.get("loss"))) is not None:
        found["loss"] = f"{loss:.6g}"
    if (percent := _number(raw.get("percent"))) is not None and 0 <= percent <= 100:
        found["percent"] = int(percent)
    return found


def _number(value: object) -> float | None:
    """A finite number, None for anything else: whatever a user's object raises when it is asked."""
    if value is None or isinstance(value, bool):
        return None
    with contextlib.suppress(Exception):
        number = float(value)  # type: ignore[arg-type]
        return number if math.isfinite(number) else None
    return None
