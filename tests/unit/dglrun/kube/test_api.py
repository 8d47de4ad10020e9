"""The API client of job pods against a server on a real socket."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dglrun.kube import access, api, retry
from dglrun.kube.access import Access
from dglrun.kube.api import Api
from dglrun.kube.errors import Expired, Forbidden, NotFound, NotInCluster, Refused, Unavailable
from dglrun.kube.retry import Backoff
from tests.support import fake_api_server
from tests.support.fake_api_server import NAMESPACE, ApiServer

QUICK = Backoff(first=0.01, longest=0.05, give_up_after=0.5)
PATIENT = Backoff(first=0.01, longest=0.05, give_up_after=60.0)


class Clock:
    """Stands for the module `time`: a sleep passes at once, and nothing else takes time."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """The seconds slept so far."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The client's time: how often it asks again does not depend on how fast this machine is."""
    found = Clock()
    for module in (api, retry):
        monkeypatch.setattr(module, "time", found)
    return found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with fake_api_server.running(tmp_path) as running:
        yield running


def test_a_pod_is_read_by_name(server: ApiServer) -> None:
    """get_pod gives the object as the server has it."""
    server.put_pod("job-worker-0", podIP="10.0.0.7")

    pod = Api(server.access()).get_pod("job-worker-0")

    assert pod["status"] == {"podIP": "10.0.0.7"}
    assert server.store.requests == [f"GET /api/v1/namespaces/{NAMESPACE}/pods/job-worker-0"]


def test_a_missing_pod_is_not_found_at_once(server: ApiServer) -> None:
    """404 is an answer, not an outage: it is not repeated."""
    with pytest.raises(NotFound, match='pods "nobody" not found'):
        Api(server.access(), PATIENT).get_pod("nobody")

    assert len(server.store.requests) == 1


def test_a_foreign_pod_is_forbidden_at_once(server: ApiServer) -> None:
    """403 is not repeated either, and carries the server's message."""
    server.forbid("other-worker-0")

    with pytest.raises(Forbidden, match="is forbidden"):
        Api(server.access(), PATIENT).get_pod("other-worker-0")

    assert len(server.store.requests) == 1


def test_403_is_repeated_in_the_first_seconds_of_a_program(server: ApiServer) -> None:
    """The operator binds the Role after the pods exist: reading a pod and writing the report wait for it."""
    server.put_pod("p", phase="Running")
    server.store.config_maps["job-report"] = {}
    server.forbid("p")
    server.forbid("job-report")
    client = Api(server.access(), PATIENT, forbidden_seconds=60.0)
    found: list[str] = []
    asking = [
        threading.Thread(target=lambda: found.append(client.get_pod("p")["status"]["phase"])),
        threading.Thread(target=client.patch_config_map, args=("job-report", {"progress.json": "{}"})),
    ]
    for each in asking:
        each.start()
    server.wait_for_request("GET", times=2)
    server.wait_for_request("PATCH", times=2)

    server.allow("p")
    server.allow("job-report")
    for each in asking:
        each.join(60)

    assert found == ["Running"]
    assert server.store.config_maps["job-report"] == {"progress.json": "{}"}


def test_questions_that_are_asked_again_anyway_are_answered_at_once(server: ApiServer) -> None:
    """The operator withdraws the right to read a worker that is lost: nobody waits for it then."""
    server.forbid("p")
    client = Api(server.access(), PATIENT, forbidden_seconds=60.0).at_once()

    with pytest.raises(Forbidden):
        client.get_pod("p")
    server.break_next(503, times=1)
    with pytest.raises(Unavailable):
        client.get_pod("p")

    assert len(server.store.requests) == 2


def test_403_that_stays_is_raised_after_the_first_seconds(server: ApiServer, clock: Clock) -> None:
    """What is not allowed then is not allowed at all; the server's message says what."""
    server.forbid("p")
    client = Api(server.access(), PATIENT, forbidden_seconds=0.5)

    with pytest.raises(Forbidden, match='pods "p" is forbidden'):
        client.get_pod("p")

    assert len(server.store.requests) >= 10
    assert 0.4 < clock.now - 1000 <= 0.5


@pytest.mark.parametrize("status", [0, 503])
def test_403_is_repeated_when_the_server_was_away(server: ApiServer, clock: Clock, status: int) -> None:
    """One that has just started answers before it has read the bindings; this ended a run."""
    server.forbid("p")
    client = Api(server.access(), PATIENT, forbidden_seconds=0.5)
    clock.now += 100
    server.break_next(status, times=1)

    with pytest.raises(Forbidden):
        client.get_pod("p")
    asked = len(server.store.requests)
    clock.now += 1
    with pytest.raises(Forbidden):
        client.get_pod("p")

    assert asked >= 5
    assert len(server.store.requests) == asked + 1


def test_the_right_to_exec_is_asked_for(server: ApiServer, clock: Clock) -> None:
    """For each pod by name; a right that is missing after the first seconds will not come."""
    server.forbid("another")
    client = Api(server.access(), PATIENT, forbidden_seconds=0.5)

    client.require_exec("mine")
    with pytest.raises(Forbidden, match="may not exec into pod another: no rule allows it"):
        client.require_exec("another")

    assert 0.4 < clock.now - 1000 <= 0.5


def test_whether_exec_is_allowed_may_stay_unknown(server: ApiServer) -> None:
    """An API server that is away is no refusal."""
    server.break_next(500, times=1000)

    with pytest.raises(Unavailable):
        Api(server.access(), QUICK).require_exec("mine")


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_an_outage_is_waited_out(server: ApiServer, status: int) -> None:
    """Cut connections, throttling and server errors are repeated until the answer comes."""
    server.put_pod("p", phase="Running")
    server.break_next(status, times=3)

    pod = Api(server.access(), PATIENT).get_pod("p")

    assert pod["status"] == {"phase": "Running"}
    assert len(server.store.requests) == 4


def test_an_outage_that_stays_is_reported(server: ApiServer, clock: Clock) -> None:
    """When the backoff gives up, the last cause is told."""
    server.break_next(503, times=10_000)

    with pytest.raises(Unavailable, match="503 ordered by the test"):
        Api(server.access(), QUICK).get_pod("p")

    assert len(server.store.requests) >= 10
    assert 0.4 < clock.now - 1000 <= 0.5


def test_retry_after_beyond_the_deadline_is_not_waited_for(server: ApiServer) -> None:
    """A server that says 'in an hour' is not asked again within half a second."""
    server.break_next(429, times=10, retry_after="3600")

    with pytest.raises(Unavailable, match="429") as error:
        Api(server.access(), QUICK).get_pod("p")

    assert error.value.retry_after == 3600.0
    assert len(server.store.requests) == 1


def test_no_server_at_all_is_unavailable(server: ApiServer) -> None:
    """A refused connection is the world's fault."""
    access = server.access()
    server.close()

    with pytest.raises(Unavailable, match="ConnectionRefusedError"):
        Api(access, QUICK).get_pod("p")


def test_the_token_is_read_anew_for_each_request(server: ApiServer) -> None:
    """The kubelet rotates tokens under a running process."""
    server.put_pod("p")
    access = server.access()
    client = Api(access, PATIENT)
    client.get_pod("p")

    server.store.token = "second-token"
    assert access.token_file is not None
    access.token_file.write_text("second-token\n")

    assert client.get_pod("p")["metadata"]["name"] == "p"


def test_a_token_that_is_just_being_rotated_is_tried_again(server: ApiServer) -> None:
    """401 is repeated, each time with the token as it then is."""
    server.put_pod("p")
    access = server.access()
    server.store.token = "second-token"

    def rotate() -> None:
        server.wait_for_request("GET", times=2)
        assert access.token_file is not None
        access.token_file.write_text("second-token")

    thread = threading.Thread(target=rotate)
    thread.start()
    pod = Api(access, PATIENT).get_pod("p")
    thread.join()

    assert pod["metadata"]["name"] == "p"


def test_keys_of_a_config_map_are_set_and_others_kept(server: ApiServer) -> None:
    """patch_config_map is a merge patch."""
    server.store.config_maps["job-report"] = {"old": "1"}

    Api(server.access()).patch_config_map("job-report", {"progress.json": '{"stage": "Training"}'})

    assert server.store.config_maps["job-report"] == {"old": "1", "progress.json": '{"stage": "Training"}'}


def test_what_the_server_does_not_take_is_refused(server: ApiServer) -> None:
    """A 413 or 422 is neither the world's fault nor worth a repetition."""
    server.break_next(413)

    with pytest.raises(Refused, match="413"):
        Api(server.access(), PATIENT).patch_config_map("job-report", {"k": "v"})

    assert len(server.store.requests) == 1


def test_a_watch_yields_each_event_and_ends_with_the_server(server: ApiServer) -> None:
    """Events come as they happen, bookmarks included; a watch ended by the server ends normally."""
    client = Api(server.access())
    server.put_pod("p", phase="Pending")
    start = client.list_pod("p").resource_version
    watch = client.watch_pod("p", start)
    server.put_pod("p", phase="Running")
    server.put_pod("q", phase="Running")
    server.bookmark("p")
    server.delete_pod("p")

    kinds = [next(watch).kind for _ in range(3)]
    server.hang_up()

    assert kinds == ["MODIFIED", "BOOKMARK", "DELETED"]
    assert list(watch) == []


def test_a_watch_from_too_long_ago_has_expired(server: ApiServer) -> None:
    """410 inside the stream is an error of its own."""
    client = Api(server.access())
    server.put_pod("p")
    start = client.list_pod("p").resource_version
    server.forget_history()

    with pytest.raises(Expired, match="too old"):
        next(client.watch_pod("p", start))


def test_following_gives_the_present_then_each_change(server: ApiServer) -> None:
    """A pod that does not exist yet is None; creation, change and deletion follow."""
    following = Api(server.access(), QUICK).follow_pod("p")

    assert next(following) is None
    server.put_pod("p", phase="Pending")
    assert (next(following) or {})["status"] == {"phase": "Pending"}
    server.put_pod("p", phase="Running")
    assert (next(following) or {})["status"] == {"phase": "Running"}
    server.delete_pod("p")
    assert next(following) is None


@pytest.mark.parametrize("fault", ["hang_up", "forget_history"])
def test_following_survives_the_end_of_a_watch(server: ApiServer, fault: str) -> None:
    """After a cut watch or 410 the follower lists or watches again and misses nothing that lasts."""
    following = Api(server.access(), QUICK).follow_pod("p")
    server.put_pod("p", phase="Pending")
    next(following)
    changes: list[str] = []

    def follow() -> None:
        for pod in following:
            changes.append("gone" if pod is None else pod["status"]["phase"])
            if changes[-1] == "Running":
                return

    thread = threading.Thread(target=follow)
    thread.start()
    server.wait_for_request("watch=1")
    getattr(server, fault)()
    server.wait_for_request("watch=1", times=2)
    server.put_pod("p", phase="Running")
    thread.join(60)

    assert changes[-1] == "Running"


def test_following_resumes_from_a_bookmark(server: ApiServer) -> None:
    """A bookmark moves the resource version on, so that a later watch does not expire."""
    following = Api(server.access(), QUICK).follow_pod("p")
    server.put_pod("p", phase="Pending")
    next(following)
    server.bookmark("p")
    server.put_pod("p", phase="Running")

    assert (next(following) or {})["status"] == {"phase": "Running"}
    last = server.store.version
    server.hang_up()
    server.put_pod("p", phase="Succeeded")

    assert (next(following) or {})["status"] == {"phase": "Succeeded"}
    assert f"resourceVersion={last}" in server.store.requests[-1]


def test_tls_is_verified_against_the_cluster_ca(tmp_path: Path) -> None:
    """Over HTTPS with the mounted CA the client works; with another CA it refuses the server."""
    with fake_api_server.running(tmp_path, tls=True) as server:
        server.put_pod("p", podIP="10.0.0.1")
        access = server.access()
        other = tmp_path / "other.crt"
        fake_api_server.make_certificate(other, tmp_path / "other.key")

        pod = Api(access).get_pod("p")
        stranger = Access(access.host, access.port, NAMESPACE, access.token_file, other)

        assert pod["status"] == {"podIP": "10.0.0.1"}
        with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
            Api(stranger, QUICK).get_pod("p")


def test_the_kubelet_gives_all_that_is_needed(tmp_path: Path) -> None:
    """In a pod the address comes from the environment and the rest from the service account's mount."""
    for name, content in (("token", "t"), ("ca.crt", "c"), ("namespace", "graphs\n")):
        (tmp_path / name).write_text(content)

    found = Access.in_cluster(
        {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}, account=tmp_path
    )

    assert found == Access("10.96.0.1", 443, "graphs", tmp_path / "token", tmp_path / "ca.crt")


@pytest.mark.parametrize(
    ("env", "files", "message"),
    [
        ({}, [], "KUBERNETES_SERVICE_HOST is not set"),
        (
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "tcp://x"},
            [],
            "expected a port number",
        ),
        ({"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"}, [], "namespace cannot be read"),
        (
            {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "443"},
            ["namespace"],
            "token is missing",
        ),
    ],
)
def test_outside_a_pod_the_missing_piece_is_named(
    tmp_path: Path, env: dict[str, str], files: list[str], message: str
) -> None:
    """Each missing variable or file has its own clear error."""
    for name in files:
        (tmp_path / name).write_text("x")

    with pytest.raises(NotInCluster, match=message):
        Access.in_cluster(env, account=tmp_path)


def test_the_client_of_a_pod_waits_for_its_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dglrun asks from its first second on, when the Role may not be bound yet."""
    with fake_api_server.running(tmp_path, tls=True) as server:
        (tmp_path / "ca.crt").write_bytes((tmp_path / "server.crt").read_bytes())
        (tmp_path / "namespace").write_text(NAMESPACE)
        server.access()
        monkeypatch.setattr(access, "ACCOUNT", tmp_path)
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
        server.put_pod("p", phase="Running")
        server.break_next(403, times=3)

        pod = Api.in_cluster().get_pod("p")

    assert pod["status"] == {"phase": "Running"}


def test_a_ca_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    """An empty CA mount fails at once, not at the first request."""
    ca = tmp_path / "ca.crt"
    ca.write_text("")

    with pytest.raises(NotInCluster, match="expected the cluster's CA certificate"):
        Api(Access("127.0.0.1", 1, NAMESPACE, None, ca))
