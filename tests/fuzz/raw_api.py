"""The API server as plain bytes: what is fuzzed may be text that no reader of JSON takes."""

import json
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import urllib3.exceptions
from kubernetes import client, config

from dgl_operator.runtime.kinds import Kind
from tests.fuzz import json_text

Json = dict[str, Any]
TIMEOUT_SECONDS = 60
MOST_BYTES = 3_000_000
BUSY_SECONDS = 60.0
"""A CRD that somebody changes makes the API server ask for patience."""
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
_NAMES_ONLY = "includeObject=None&resourceVersion=0"
POOL = 24


class Answer(NamedTuple):
    """Status and text of an answer."""

    status: int
    text: bytes

    @property
    def is_accepted(self) -> bool:
        """Whether the request was done."""
        return self.status < 300

    @property
    def refusal(self) -> str:
        """Status, reason and the kind of the first cause, such as `422 Invalid FieldValueForbidden`."""
        try:
            told = json.loads(self.text)
        except (ValueError, RecursionError):
            return f"{self.status}"
        causes = (told.get("details") or {}).get("causes") or [{}]
        words = [str(self.status), told.get("reason") or "", causes[0].get("reason") or ""]
        return " ".join(word for word in words if word)


@dataclass(frozen=True)
class Row:
    """A job as `kubectl get` shows it."""

    name: str
    phase: str


class RawApi:
    """Requests with the rights of KUBECONFIG; no answer is ever read as a whole."""

    def __init__(self) -> None:
        settings = client.Configuration()
        config.load_kube_config(client_configuration=settings)
        settings.connection_pool_maxsize = POOL
        self._host = settings.host
        self._client = client.ApiClient(settings)
        self._pool = self._client.rest_client.pool_manager

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str = "application/json",
        accept: str = "",
    ) -> Answer:
        """One request; a lost connection is an error of the run and raised as it is.

        A server that asks for patience is asked again, and what is only read also after any error of its own.
        """
        headers = {"Content-Type": content_type, "Accept": accept or "application/json"}
        self._client.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            answer = self._once(method, path, body, headers)
            may_pass = answer.status == 429 or (method == "GET" and answer.status >= 500)
            if not may_pass or time.monotonic() > deadline:
                return answer
            time.sleep(1)

    def _once(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Answer:
        """One try; the API server hangs up on whoever sends more than it takes."""
        try:
            answer = self._pool.request(
                method, self._host + path, body=body, headers=headers, timeout=TIMEOUT_SECONDS, retries=2
            )
        except urllib3.exceptions.HTTPError:
            if body is None or len(body) < MOST_BYTES:
                raise
            return Answer(413, b'{"reason": "HungUp"}')
        return Answer(answer.status, answer.data)

    def rows(self, namespace: str) -> dict[str, Row]:
        """All jobs of a namespace by name, without their content."""
        return {
            cells["Name"]: Row(cells["Name"], cells.get("Phase") or "")
            for cells in self._table(Kind.JOB, namespace)
        }

    def names(self, kind: Kind, namespace: str) -> set[str]:
        """Names of all objects of a kind."""
        return {str(cells["Name"]) for cells in self._table(kind, namespace)}

    def status(self, namespace: str, job: str) -> Json | None:
        """The status of a job, empty before it has one, None when the job is gone."""
        answer = self.request("GET", Kind.JOB.path(namespace, job))
        if answer.status == 404:
            return None
        text = json_text.top_value(answer.text, "status")
        found: Json = json.loads(text) if text else {}
        return found

    def storage_bytes(self) -> int:
        """Size of etcd's file, 0 where the API server does not tell."""
        for line in self.request("GET", "/metrics").text.decode().splitlines():
            if line.startswith("apiserver_storage_size_bytes"):
                return int(float(line.rpartition(" ")[2]))
        return 0

    def _table(self, kind: Kind, namespace: str) -> list[Json]:
        answer = self.request("GET", f"{kind.path(namespace)}?{_NAMES_ONLY}", accept=_TABLE)
        if not answer.is_accepted:
            raise RuntimeError(f"list of {kind.plural} in {namespace}: {answer.status} {answer.text[:500]!r}")
        table = json.loads(answer.text)
        columns = [column["name"] for column in table["columnDefinitions"]]
        return [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"] or ()]
