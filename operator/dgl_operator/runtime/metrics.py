"""Prometheus metrics of the operator."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from dgl_operator.api.v1alpha1 import JobStatus, Phase, Restarts
from dgl_operator.domain.attempts import Cause

disable_created_metrics()  # type: ignore[no-untyped-call] # a series for each counter that nobody reads

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics in a registry of their own, so that tests do not share one."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.created = self._counter("jobs_created", "Jobs first seen by the operator")
        self.succeeded = self._counter("jobs_succeeded", "Jobs that were Completed")
        self.failed = Counter(
            "dgl_operator_jobs_failed", "Jobs that Failed, by reason", ["reason"], registry=self._registry
        )
        self.restarts = Counter(
            "dgl_operator_job_restarts",
            "Attempts beyond the first, by what they were made for",
            ["cause"],
            registry=self._registry,
        )
        self.errors = self._counter(
            "reconcile_errors", "Reconciles that failed and will be retried, bugs included"
        )
        self._quarantined = Counter(
            "dgl_operator_quarantined_objects",
            "Times that an object could not be decoded or kept, by resource",
            ["resource"],
            registry=self._registry,
        )
        self.watch_errors = Counter(
            "dgl_operator_watch_errors",
            "Lists and watches that failed and were tried again, by resource",
            ["resource"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "dgl_operator_reconcile_seconds",
            "Duration of one reconcile",
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def watch_depth(self, depth: Callable[[], float]) -> None:
        """Show the queue's depth, read at each scrape."""
        gauge = Gauge("dgl_operator_queue_depth", "Jobs queued or being reconciled", registry=self._registry)
        gauge.set_function(depth)

    def watch_leadership(self, name: str, is_leader: Callable[[], bool]) -> None:
        """Show whether this operator leads, under the name that Kubernetes' own controllers use."""
        gauge = Gauge(
            "leader_election_master_status",
            "Whether this operator holds the Lease (1) or stands by (0)",
            ["name"],
            registry=self._registry,
        )
        gauge.labels(name).set_function(lambda: float(is_leader()))

    def quarantine(self, resource: str) -> None:
        """Count an object that cannot be read."""
        self._quarantined.labels(resource).inc()

    def note(self, old: JobStatus, new: JobStatus, reason: str) -> None:
        """Count the transition that a status write made."""
        if old.phase is None:
            self.created.inc()
        before, after = (status.restarts or Restarts() for status in (old, new))
        for cause in Cause:
            self.restarts.labels(cause.value).inc(
                max(0, getattr(after, cause.value) - getattr(before, cause.value))
            )
        if new.phase is old.phase:
            return
        if new.phase is Phase.COMPLETED:
            self.succeeded.inc()
        if new.phase is Phase.FAILED:
            self.failed.labels(reason).inc()

    def text(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(f"dgl_operator_{name}", what, registry=self._registry)
