"""What the run tells of itself while it lasts: plain lines in the log, and the job's report ConfigMap."""

import json
import queue
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Protocol

from dglrun.contract import report, version

EVERY_SECONDS = 10.0
"""A stage's message is reported as often as this."""
COMPLETED_SECONDS = 60.0
"""How long the end of a run that has succeeded waits until all is reported."""
_LONGEST = 300


class ConfigMaps(Protocol):
    """The part of the API server client that takes reports."""

    def patch_config_map(self, name: str, data: Mapping[str, str]) -> None:
        """Set keys of a ConfigMap, leaving its others."""


class Reporter:
    """Writes progress.json into the report, best effort: a failing report never fails or delays the job.

    Args:
        api: The API server; None: nothing is reported.
        name: The report ConfigMap.
    """

    def __init__(self, api: ConfigMaps | None, name: str | None) -> None:
        self._api, self._name, self._replaces = api, name, False
        self._lock = threading.RLock()  # the printer's thread reports lines, and may not outlive a `replaces`
        self._queue: queue.SimpleQueue[dict[str, str] | None] = queue.SimpleQueue()
        self._stage, self._last, self._complained = "", 0.0, False
        self._message, self._told = "", dict[str, object]()
        self._thread = threading.Thread(target=self._write, daemon=True)
        if api and name:
            self._thread.start()

    def stage(self, stage: str, message: str, percent: int | None = None) -> None:
        """Report that a stage has begun or goes on; within a stage every EVERY_SECONDS at most."""
        with self._lock:
            self._report(stage, message, percent)

    def _report(self, stage: str, message: str, percent: int | None) -> None:
        now, self._message = time.monotonic(), message
        if not (self._api and self._name) or (stage == self._stage and now - self._last < EVERY_SECONDS):
            return
        if stage != self._stage:
            self._told.pop("percent", None)  # of the stage before
        self._stage, self._last = stage, now
        progress: dict[str, object] = {"stage": stage, "message": message[:_LONGEST], **self._told}
        progress["contract"] = version.CURRENT
        if self._replaces and stage == report.STAGE_TRAINING:
            progress["replaces"] = True
        if percent is not None:
            progress["percent"] = percent
        progress["time"] = datetime.now(UTC).isoformat(timespec="seconds")
        self._queue.put({report.PROGRESS: json.dumps(progress)})

    def replaces(self, does: bool) -> None:
        """Report at once whether the training goes on from now on when a lost worker is replaced."""
        with self._lock:
            if does != self._replaces:
                self._replaces, self._last = does, float("-inf")
                self.stage(self._stage, self._message)

    def values(self, values: Mapping[str, object]) -> None:
        """Report what the training script tells, with the stage that it is in; the last ones stay.

        Args:
            values: Epoch, loss and percent; what cannot stand in a report is left out.
        """
        with self._lock:
            self._told = {**self._told, **report.script_values(values)}
            if self._stage:
                self.stage(self._stage, self._message)

    def partition(self, quality: Mapping[str, object]) -> None:
        """Report the partition's quality; it is sent with whatever else waits, however long that takes."""
        if self._api and self._name:
            self._queue.put({report.PARTITION: json.dumps(quality)})

    def complete(self, message: str) -> None:
        """Report that the run has succeeded, after all else that was reported; waits until that arrived.

        The operator then completes a job whose finished launcher pod it never saw.
        """
        self.stage(report.STAGE_COMPLETED, message)
        self.close(COMPLETED_SECONDS)

    def close(self, seconds: float = 3.0) -> None:
        """Let what was reported arrive, within `seconds`."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(seconds)

    def _write(self) -> None:
        while (data := self._waiting()) is not None:
            try:
                self._api.patch_config_map(self._name, data)  # type: ignore[union-attr, arg-type]
            except Exception as error:
                self._complain(error)

    def _waiting(self) -> dict[str, str] | None:
        """All that is to be reported by now, of each key the newest; None: no more will come."""
        found = self._queue.get()
        while found is not None and not self._queue.empty():
            newer = self._queue.get()
            if newer is None:
                self._queue.put(None)
                break
            found = {**found, **newer}
        return found

    def _complain(self, error: Exception) -> None:
        if not self._complained:
            print(f"dglrun: note: progress is not reported: {error}", flush=True)
            self._complained = True
