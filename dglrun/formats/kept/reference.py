"""Which kept partition a job uses: what one pod of it hands to the next, as a small JSON file.

Standard library only, as `kept_partition`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from dglrun.contract import exitcodes
from dglrun.errors import RunError
from dglrun.formats.kept import fingerprint, kept_partition
from dglrun.formats.kept.fingerprint import PartitionInput
from dglrun.formats.kept.kept_partition import KeptPartition


@dataclass(frozen=True)
class Reference:
    """A place in a store, and what is there for this job.

    Attributes:
        place: URI of the store, below which fingerprints lie.
        input: What the job's partition is made of.
        kept: The partition, once there is one.
    """

    place: str
    input: PartitionInput
    kept: KeptPartition | None = None


def write(reference: Reference, path: Path) -> None:
    """Write a reference whole or not at all.

    Raises:
        RunError: it cannot be written.
    """
    kept = json.loads(kept_partition.encode(reference.kept)) if reference.kept else None
    text = json.dumps({"place": reference.place, "input": asdict(reference.input), "kept": kept})
    draft = path.with_name(f"{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text + "\n")
        draft.replace(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}", exitcodes.IO) from error


def read(path: Path) -> Reference:
    """Read what `write` wrote.

    Raises:
        RunError: it is missing, or something else.
    """
    try:
        return decode(path.read_bytes())
    except OSError as error:
        what = f"expected what the partitioner has found out, found none: {error.strerror or error}"
        raise RunError(f"{path}: {what}", exitcodes.DATA) from error
    except ValueError as error:
        raise RunError(f"{path}: {error}", exitcodes.DATA) from error


def decode(text: bytes) -> Reference:
    """Read the text of a reference.

    Raises:
        ValueError: it is none.
    """
    try:
        raw = json.loads(text)
        found, place = raw["kept"], raw["place"]
        wanted = fingerprint.decode(raw["input"])
    except (ValueError, TypeError, KeyError):
        raise ValueError("expected the reference to a kept partition") from None
    if not isinstance(place, str):
        raise ValueError("expected a place as text")
    return Reference(place, wanted, None if found is None else kept_partition.of_object(found))
