"""kopf's part: watch streams that feed the store and the queue. No finalizer, no annotation.

`on.event` alone writes nothing to the watched objects; errors and retries are the queue's.
"""

from typing import Any

import kopf

from dgl_operator.runtime.kinds import CHILDREN, Kind
from dgl_operator.runtime.service import Service
from dglrun.contract import names

_GRACE_SECONDS = 20
"""Shorter than the pod's grace period; kopf would wait ten minutes before it kills the process."""


def register(registry: kopf.OperatorRegistry, service: Service) -> None:
    """Subscribe the service to jobs and to all that carries the job label."""

    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        _configure(settings)
        await service.start()

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await service.stop()

    for kind in (Kind.JOB, *CHILDREN):
        _watch(registry, kind, service)


def _watch(registry: kopf.OperatorRegistry, kind: Kind, service: Service) -> None:
    @kopf.on.event(kind.group, _version(kind), kind.plural, registry=registry, id=f"seen-{kind.plural}")
    async def seen(event: kopf.RawEvent, **_: Any) -> None:
        service.notice(kind, event["type"], dict(event["object"]))


def _version(kind: Kind) -> str:
    return kind.api_version.rpartition("/")[2]


def _configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.process.ultimate_exiting_timeout = _GRACE_SECONDS
    settings.networking.request_timeout = 60
    settings.watching.reconnect_backoff = 1.0
    settings.watching.chunk_size = 500
    for kind in CHILDREN:
        settings.watching.label_selectors[f"{kind.plural}.{kind.group}".rstrip(".")] = names.LABEL_JOB
