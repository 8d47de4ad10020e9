"""Watch a collection of the API server in a thread and hand each event to a function."""

import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import urllib3.exceptions
from kubernetes import client, config

from tests.benchmarks.operator_bench.bodies import Json

OnEvent = Callable[[str, Json], None]

SECONDS = 60
"""The server ends a stream after this time; the next one goes on where it ended."""


class Expired(Exception):
    """The version to go on from is too old: list again."""


class Watch:
    """One collection, by a label selector; everything that exists comes first as ADDED."""

    def __init__(self, path: str, selector: str, on_event: OnEvent) -> None:
        settings = client.Configuration()
        config.load_kube_config(client_configuration=settings)
        self._client = client.ApiClient(settings)
        self._path = path
        self._selector = selector
        self._on_event = on_event
        self._listed = threading.Event()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> "Watch":
        """Begin; returns when the first list is in."""
        self._thread.start()
        if not self._listed.wait(30):
            raise TimeoutError(f"watch of {self._path}: no list within 30 s")
        return self

    def stop(self) -> None:
        """Hand on no more events; the stream ends by itself within a minute."""
        self._stopped = True

    def _run(self) -> None:
        version = ""
        while not self._stopped:
            try:
                version = version or self._list()
                for event in self._stream(version):
                    version = self._take(event)
            except Expired:
                version = ""
            except (urllib3.exceptions.HTTPError, OSError):
                continue

    def _list(self) -> str:
        page = json.loads(self._get({}).read())
        for item in page["items"]:
            self._on_event("ADDED", item)
        self._listed.set()
        return str(page["metadata"]["resourceVersion"])

    def _take(self, event: Json) -> str:
        item = event["object"]
        if event["type"] == "ERROR":
            raise Expired
        if event["type"] != "BOOKMARK" and not self._stopped:
            self._on_event(event["type"], item)
        return str(item["metadata"]["resourceVersion"])

    def _stream(self, version: str) -> Iterator[Json]:
        query = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "true"}
        answer = self._get({**query, "timeoutSeconds": str(SECONDS)})
        rest = b""
        for chunk in answer.response.stream(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (json.loads(line) for line in lines)

    def _get(self, query: dict[str, str]) -> Any:
        request = self._client.param_serialize(
            "GET",
            self._path,
            query_params=[*query.items(), ("labelSelector", self._selector)],
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        answer = self._client.call_api(*request, _request_timeout=(10, SECONDS + 30))
        if answer.status >= 400:
            raise Expired if answer.status == 410 else OSError(f"GET {self._path}: HTTP {answer.status}")
        return answer
