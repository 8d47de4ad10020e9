"""The operator's process under observation: life, probe, memory, log, metrics."""

import json
import re
import threading
import time
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.fuzz.findings import Finding
from tests.support.operator_process import OperatorProcess

PROBE_SECONDS = 1.0
SILENT_SECONDS = 30.0
"""The kubelet asks every ten seconds and restarts after three failures."""
_COUNTER = re.compile(
    r"^(dgl_operator_\w*(?:error|unreadable|quarantine|stalled)\w*_total)(?:{.*})? ([0-9.e+]+)$", re.MULTILINE
)
_OWN_FRAME = re.compile(r'File ".*?/(dgl_operator/[^"]+)", line \d+, in (\S+)')


@dataclass(frozen=True)
class LogError:
    """A log line of level error, or text that no logger wrote.

    Attributes:
        job: `<namespace>/<name>` that the line names, empty if it names none.
        bug: Type of the exception and the operator's innermost frame, empty for a line without a traceback.
    """

    job: str
    message: str
    bug: str


class Watched:
    """Samples a running operator from its own thread until told to stop."""

    def __init__(self, process: OperatorProcess) -> None:
        self.process = process
        self.problem: Finding | None = None
        self.peak_mib = 0.0
        self._read = 0
        self._stopped = threading.Event()
        self._answered = time.monotonic()
        self._thread = threading.Thread(target=self._sample, name="watched", daemon=True)
        self._read = process.log.stat().st_size if process.log.exists() else 0
        self._thread.start()

    def stop(self) -> None:
        """End the observation."""
        self._stopped.set()
        self._thread.join(10)

    def errors(self) -> list[LogError]:
        """Errors that were logged since the last call."""
        with self.process.log.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return errors_of(whole.decode(errors="replace"))

    def counted_errors(self) -> float | None:
        """Sum of the operator's counters of errors and quarantined objects, None where it does not answer."""
        try:
            text = self.process.metrics()
        except (OSError, HTTPException):
            return None
        return sum(float(value) for _, value in _COUNTER.findall(text))

    def _sample(self) -> None:
        while not self._stopped.wait(0.2):
            if not self.process.is_running:
                self.problem = Finding("the operator's process ended", f"exit code {self.process.poll()}")
                return
            self.peak_mib = max(self.peak_mib, self.process.memory_mib())
            self._probe()

    def _probe(self) -> None:
        now = time.monotonic()
        if now - self._answered < PROBE_SECONDS:
            return
        try:
            status, text = self.process.get("/healthz")
        except (OSError, HTTPException) as error:
            status, text = 0, str(error)
        if status == 200:
            self._answered = time.monotonic()
        elif status or now - self._answered > SILENT_SECONDS:
            self.problem = self.problem or Finding("/healthz is not 200", f"{status}: {text}")


def errors_of(log: str) -> list[LogError]:
    """Return the errors of a log with one JSON object a line; other lines are one error each block."""
    found, foreign = [], []
    for line in log.splitlines():
        record = _record(line)
        if record is None:
            foreign.append(line)
        elif record.get("level") in ("error", "critical"):
            found.append(_error(record))
    if any("Traceback" in line or "Error" in line for line in foreign):
        text = "\n".join(foreign)
        found.append(LogError("", text[-2000:], bug_of(text)))
    return found


def bug_of(traceback: str) -> str:
    """Type of the exception that was raised last and where, as `KeyError in domain/observed.py _pod`."""
    frames = _OWN_FRAME.findall(traceback)
    where = f" in {frames[-1][0].removeprefix('dgl_operator/')} {frames[-1][1]}" if frames else ""
    _, frame, after = traceback.rpartition('\n  File "')
    lines = after.splitlines()[1:] if frame else []
    raised = next((line for line in lines if line and not line[0].isspace()), "")
    return raised.partition(":")[0].rpartition(".")[2] + where if raised else ""


def _record(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _error(record: dict[str, Any]) -> LogError:
    message, trace = str(record.get("message")), str(record.get("error") or "")
    job = re.match(r"([a-z0-9-]+/[^\s:]+): ", message)
    told = f"{message[:500]}\n{trace[-1500:]}" if trace else message[:1500]
    return LogError(job[1] if job else "", told, bug_of(trace) if trace else "")


def tail(log: Path, size: int = 3000) -> str:
    """The end of a log."""
    return log.read_text(errors="replace")[-size:]
