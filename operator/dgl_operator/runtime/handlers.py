"""kopf's part: the operator's start and end in kopf's event loop, its signals and its exit.

The watches are the informers' (docs/adr): kopf's would end the process at the first object that Python
cannot decode, and hold every object whole.
"""

import asyncio
from typing import Any

import kopf

from dgl_operator.runtime.service import Service
from dglrun.contract import names

_GRACE_SECONDS = 20
"""Shorter than the pod's grace period; kopf would wait ten minutes before it kills the process."""


def register(registry: kopf.OperatorRegistry, service: Service) -> None:
    """Start the service with kopf, and end it with kopf."""

    @kopf.on.startup(registry=registry, errors=kopf.ErrorsMode.PERMANENT)
    async def start(settings: kopf.OperatorSettings, **_: Any) -> None:
        _configure(settings)
        await asyncio.to_thread(service.start)

    @kopf.on.cleanup(registry=registry)
    async def stop(**_: Any) -> None:
        await asyncio.to_thread(service.stop)


def _configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.process.ultimate_exiting_timeout = _GRACE_SECONDS
    settings.networking.request_timeout = 60
