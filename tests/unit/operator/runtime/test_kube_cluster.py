"""What the client makes of an API server's answers: errors by kind, pages by size, watches line by line."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.config import kube_config

from dgl_operator.runtime import kube_cluster
from dgl_operator.runtime.cluster import (
    AlreadyExists,
    ClusterBusy,
    Conflict,
    NotFound,
    Place,
    Refused,
    WatchExpired,
)
from dgl_operator.runtime.kinds import Json, Kind
from dgl_operator.runtime.kube_cluster import KubeCluster

Reply = tuple[int, dict[str, str], bytes]
POD: Json = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "p", "namespace": "n", "uid": "u", "resourceVersion": "5"},
}


class FakeApiServer:
    """Answers each request by a function of method, path with query, and body."""

    def __init__(self, answer: Callable[[str, str, Json | None], Reply]) -> None:
        self.asked: list[tuple[str, str, Json | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, body))
                status, headers, data = answer(self.command, self.path, body)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with suppress(BrokenPipeError):  # a client that has read enough, or given up
                    self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_any  # noqa: N815

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        serve = self.server.serve_forever
        threading.Thread(target=serve, kwargs={"poll_interval": 0.01}, daemon=True).start()


Serve = Callable[[Callable[[str, str, Json | None], Reply]], tuple[KubeCluster, FakeApiServer]]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a fake API server and returns a client of it."""
    started: list[FakeApiServer] = []

    def one(answer: Callable[[str, str, Json | None], Reply]) -> tuple[KubeCluster, FakeApiServer]:
        api = FakeApiServer(answer)
        started.append(api)
        named: dict[str, Any] = {"server": f"http://127.0.0.1:{api.server.server_address[1]}"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": named}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        return KubeCluster(), api

    yield one
    for api in started:
        api.server.shutdown()
        api.server.server_close()


def answered(*_asked: object) -> Reply:
    """An API server that answers everything with one pod."""
    return 200, {}, json.dumps(POD).encode()


def through(**named: str) -> KubeCluster:
    """A client of the same server whose kubeconfig says something else of it; `{host}` is its URL."""
    path = Path(kube_config.KUBE_CONFIG_DEFAULT_LOCATION)
    found = yaml.safe_load(path.read_text())
    host = found["clusters"][0]["cluster"]["server"]
    found["clusters"][0]["cluster"] |= {key: value.format(host=host) for key, value in named.items()}
    path.write_text(yaml.safe_dump(found))
    return KubeCluster()


def test_an_api_server_may_lie_below_a_path(serve: Serve) -> None:
    """As one behind a management server does."""
    _, api = serve(answered)

    through(server="{host}/k8s/clusters/c-1/").get(Kind.POD, "n", "p")

    assert [path for _, path, _ in api.asked] == ["/k8s/clusters/c-1/api/v1/namespaces/n/pods/p"]


def test_an_api_server_is_reached_by_its_proxy(serve: Serve) -> None:
    """A proxy of plain HTTP is asked for the whole URL."""
    _, api = serve(answered)

    through(**{"server": "http://api.example.invalid:8080", "proxy-url": "{host}"}).get(Kind.POD, "n", "p")

    assert [path for _, path, _ in api.asked] == [
        "http://api.example.invalid:8080/api/v1/namespaces/n/pods/p"
    ]


def test_a_redirect_is_not_followed(serve: Serve) -> None:
    """Neither to this server nor to another: the headers hold the account's token."""
    client, api = serve(lambda *_asked: (307, {"Location": "/elsewhere"}, b""))

    with pytest.raises(ClusterBusy):
        client.get(Kind.POD, "n", "p")

    assert len(api.asked) == 1


def failing(code: int, reason: str = "", **headers: str) -> Callable[[str, str, Json | None], Reply]:
    """An API server that answers everything with one error."""
    status = {"kind": "Status", "reason": reason, "message": f"it says {code}"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda *_asked: (code, named, json.dumps(status).encode())


@pytest.mark.parametrize("code", [401, 408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_a_busy_server(serve: Serve, code: int) -> None:
    """With the status and the reason, by which a failing webhook is shown on its job."""
    client, _ = serve(failing(code, "Because", Retry_After="7"))

    with pytest.raises(ClusterBusy, match=f"HTTP {code}: it says {code}") as caught:
        client.create(POD)

    assert (caught.value.status, caught.value.reason, caught.value.retry_after) == (code, "Because", 7.0)


def test_a_busy_server_is_not_asked_again_behind_the_queues_back(serve: Serve) -> None:
    """A retry here would hold a thread for as long as the server asks for."""
    client, api = serve(failing(503, Retry_After="60"))

    with pytest.raises(ClusterBusy):
        client.get(Kind.POD, "n", "p")

    assert len(api.asked) == 1


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", Refused),
        (403, "Forbidden", Refused),
        (404, "NotFound", NotFound),
        (409, "AlreadyExists", AlreadyExists),
        (409, "Conflict", Conflict),
        (422, "Invalid", Refused),
    ],
)
def test_what_will_not_pass_is_refused(serve: Serve, code: int, reason: str, kind: type[Refused]) -> None:
    """By kinds that reconcile tells apart."""
    client, _ = serve(failing(code, reason))

    with pytest.raises(Refused) as caught:
        client.create(POD)

    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason, str(caught.value)) == (code, reason, f"it says {code}")


def resources(*names: str | None) -> Callable[[str, str, Json | None], Reply]:
    """An API server whose every group has these resources."""
    found = {"kind": "APIResourceList", "resources": [{"name": name} for name in names] or None}
    return lambda *_asked: (200, {}, json.dumps(found).encode())


@pytest.mark.parametrize(
    ("answer", "is_served"),
    [
        (resources("workloads", "podgroups", "podgroups/status"), True),
        (resources("workloads"), False),
        (resources(), False),
        (failing(404, "NotFound"), False),
        (failing(403, "Forbidden"), False),
    ],
    ids=["with groups", "without groups", "empty", "no such version", "no right to discover"],
)
def test_discovery_tells_whether_a_kind_is_served(
    serve: Serve, answer: Callable[[str, str, Json | None], Reply], is_served: bool
) -> None:
    """Of an alpha API the group may be served without the resource, whose gate is another flag."""
    client, api = serve(answer)

    assert client.serves(Kind.POD_GROUP) is is_served
    assert [path for _, path, _ in api.asked] == ["/apis/scheduling.k8s.io/v1alpha2"]


@pytest.mark.parametrize(
    ("verbs", "is_taken"), [(["create", "get"], True), (["get", "delete"], False), (None, False)]
)
def test_a_kind_whose_definition_is_being_deleted_takes_no_new_objects(
    serve: Serve, verbs: list[str] | None, is_taken: bool
) -> None:
    """It is there until its last object is gone."""
    found = {"resources": [{"name": "workloads", "verbs": verbs}, {"name": "other", "verbs": ["create"]}]}
    client, _ = serve(lambda *_asked: (200, {}, json.dumps(found).encode()))

    assert client.serves(Kind.WORKLOAD)
    assert client.serves(Kind.WORKLOAD, "create") is is_taken


def test_a_server_that_cannot_answer_says_nothing_of_its_kinds(serve: Serve) -> None:
    """A job must not be told that its cluster lacks what it has."""
    client, _ = serve(failing(503))

    with pytest.raises(ClusterBusy):
        client.serves(Kind.POD_GROUP)


def test_a_server_that_does_not_answer_is_busy_after_the_timeout(serve: Serve) -> None:
    """A thread is not held for ever."""
    released = threading.Event()

    def hang(*_asked: object) -> Reply:
        released.wait(30)
        return 200, {}, b"{}"

    client, _ = serve(hang)
    client._timeout = 0.2

    with pytest.raises(ClusterBusy):
        client.create(POD)
    released.set()


def test_pods_are_created_and_rehearsed_with_strict_field_validation(serve: Serve) -> None:
    """A mistyped field of a template is refused by name and not dropped."""
    client, api = serve(lambda *_asked: (201, {}, json.dumps(POD).encode()))

    client.create(POD)
    client.create(POD, rehearse=True)

    queries = [path.partition("?")[2] for _, path, _ in api.asked]
    assert all("fieldValidation=Strict" in query for query in queries)
    assert ["dryRun=All" in query for query in queries] == [False, True]


@pytest.mark.parametrize(
    "characters",
    [
        range(1, 0x80),
        range(1, 0x7F),
        [*range(1, 0x2FF), 0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFE, 0x1F469],
    ],
)
def test_an_applied_object_is_yaml_whatever_its_texts_are(serve: Serve, characters: Iterable[int]) -> None:
    """`yaml: found invalid Unicode character escape code` left a job without a status."""
    text = "".join(map(chr, characters))
    client, api = serve(lambda *_asked: (200, {}, json.dumps(POD).encode()))

    client.write_status(POD, {"message": text})

    sent = kube_cluster._text({"message": text})
    assert yaml.safe_load(sent) == {"message": text}
    assert json.loads(sent) == {"message": text}
    assert api.asked[0][2] is not None
    assert api.asked[0][2]["status"] == {"message": text}


def test_a_pod_is_stopped_by_its_deadline_and_only_if_it_is_the_one(serve: Serve) -> None:
    """The object and its logs stay."""
    client, api = serve(lambda *_asked: (200, {}, json.dumps(POD).encode()))

    client.stop(Place("n", "p", "u"))

    assert api.asked[0][2] == {"spec": {"activeDeadlineSeconds": 1}, "metadata": {"uid": "u"}}


def paged(total: int, size: int) -> Callable[[str, str, Json | None], Reply]:
    """An API server with so many objects of so many bytes, which keeps to the limit."""

    def answer(_method: str, path: str, _body: Json | None) -> Reply:
        words = dict(word.split("=") for word in path.partition("?")[2].split("&"))
        start, limit = int(words.get("continue", 0)), int(words["limit"])
        end = min(total, start + limit)
        items = [{"metadata": {"name": f"pod-{at}"}, "data": "x" * size} for at in range(start, end)]
        metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < total else {})
        return 200, {}, json.dumps({"metadata": metadata, "items": items}).encode()

    return answer


@pytest.mark.parametrize(("total", "size"), [(2_000, 100), (40, 900_000)])
def test_a_list_comes_whole_in_pages_of_bounded_bytes(serve: Serve, total: int, size: int) -> None:
    """200 objects of 0.9 MB took 573 MB in one page of 500."""
    client, api = serve(paged(total, size))

    found = [item["metadata"]["name"] for page in client.pages(Kind.POD, "n") for item in page.items]

    assert found == [f"pod-{at}" for at in range(total)]
    assert len(api.asked) <= total
    assert len(api.asked) < total / 10 or size > kube_cluster.PAGE_BYTES


def watching(*lines: str) -> Callable[[str, str, Json | None], Reply]:
    """An API server whose watch has these lines."""
    return lambda *_asked: (200, {}, "".join(f"{line}\n" for line in lines).encode())


def test_a_watch_goes_on_after_an_object_that_cannot_be_read(serve: Serve) -> None:
    """It stopped the operator for every tenant."""
    deep = json.dumps(POD)[:-1] + ', "x": ' + "[" * 9_000 + "]" * 9_000 + "}"
    client, _ = serve(
        watching(
            f'{{"type": "ADDED", "object": {deep}}}',
            f'{{"type": "MODIFIED", "object": {json.dumps(POD)}}}',
            '{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "88"}}}',
        )
    )

    found = list(client.watch(Kind.POD, None, 1))

    assert [change.type for change in found] == ["BOOKMARK", "ADDED", "MODIFIED", "BOOKMARK"]
    assert found[-1].version == 88


def test_a_watch_that_waits_holds_no_line(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last object of each of 32 watches may have been of 1.4 MB, and the next may come in a minute."""
    gone: list[str] = []

    class Line(bytes):
        def __del__(self) -> None:
            gone.append("line")

    def lines(*_of: object) -> Iterator[bytes]:
        yield Line(b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "88"}}}')
        gone.append("asked for the next")

    monkeypatch.setattr(kube_cluster, "_lines", lines)
    client, _ = serve(watching())

    list(client.watch(Kind.POD, None, 1))

    assert gone == ["line", "asked for the next"]


def test_a_watch_from_an_old_version_has_expired(serve: Serve) -> None:
    """Whether the answer says so or an event of it."""
    client, _ = serve(watching('{"type": "ERROR", "object": {"code": 410, "message": "too old"}}'))
    with pytest.raises(WatchExpired, match="too old"):
        list(client.watch(Kind.POD, None, 1))

    client, _ = serve(failing(410, "Expired"))
    with pytest.raises(WatchExpired, match="it says 410"):
        list(client.watch(Kind.POD, None, 1))


@pytest.mark.parametrize("line", ["<html>", '{"type": "ERROR", "object": {"code": 500, "message": "etcd"}}'])
def test_any_other_end_of_a_watch_may_pass(serve: Serve, line: str) -> None:
    """Kopf ended the process for such."""
    client, _ = serve(watching(line))

    with pytest.raises(ClusterBusy):
        list(client.watch(Kind.POD, None, 1))


@pytest.mark.parametrize(("left_out", "is_leaving"), [((), True), (("resourceVersion",), False)])
def test_a_pod_that_is_gone_with_its_deletion_is_not_leaving(
    serve: Serve, left_out: tuple[str, ...], is_leaving: bool
) -> None:
    """The API server then answers with the object as it was, without a version."""
    metadata = {**POD["metadata"], "deletionTimestamp": "2026-11-22T17:06:13Z"}
    pod = {**POD, "metadata": {key: value for key, value in metadata.items() if key not in left_out}}
    client, _ = serve(lambda *_asked: (200, {}, json.dumps(pod).encode()))

    assert client.delete(Kind.POD, Place("n", "p", "u")) == (pod if is_leaving else None)
