"""What the job says of itself in its report ConfigMap. The job's pods write it, so it is not trusted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from dgl_operator.api.v1alpha1 import PartitionStatus, Progress
from dgl_operator.domain import fields
from dglrun.contract import report

ModelT = TypeVar("ModelT", bound=BaseModel)

MAX_BYTES = 16 * 1024
MAX_MESSAGE = 1024


@dataclass(frozen=True)
class Report:
    """The readable part of a report, and one line for each part that is not."""

    progress: Progress | None = None
    partition: PartitionStatus | None = None
    problems: tuple[str, ...] = ()

    @property
    def stage(self) -> str | None:
        """The stage that dglrun is in, None before it said so."""
        return self.progress.stage if self.progress else None

    @property
    def replaces(self) -> bool:
        """Whether the launcher trains, and goes on when a lost worker is replaced alone."""
        return self.stage == report.STAGE_TRAINING and bool(self.progress and self.progress.replaces)

    @property
    def is_completed(self) -> bool:
        """Whether the run has said that it succeeded, the last thing that it says."""
        return self.stage == report.STAGE_COMPLETED


def read(data: Mapping[str, str]) -> Report:
    """Read the ConfigMap's data; what is malformed is left out and named."""
    problems: list[str] = []
    progress = _parse(Progress, report.PROGRESS, data, problems)
    partition = _parse(PartitionStatus, report.PARTITION, data, problems)
    if progress:
        progress = progress.model_copy(update={"message": progress.message[:MAX_MESSAGE]})
    return Report(progress, partition, tuple(problems))


def _parse(model: type[ModelT], key: str, data: Mapping[str, str], problems: list[str]) -> ModelT | None:
    text = fields.text(data.get(key)).strip()
    if not text:
        return None
    if len(text.encode()) > MAX_BYTES:
        problems.append(f"{key}: expected at most {MAX_BYTES} bytes, got more")
        return None
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        problems.append(f"{key}: {where}: {first['msg']}".replace(": :", ":"))
        return None
