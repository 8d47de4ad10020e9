"""A storage that is away is waited for as long as a caller says, and not again by what the caller calls."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dglrun.errors import StoreError, StoreFailure
from dglrun.formats.kept.kept_partition import KeptFile
from dglrun.formats.kept.partition_store import PartitionStore
from dglrun.formats.store import Place, place
from tests.unit.dglrun.formats.kept.test_partition_store import a_record


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The requests to a server that is busy, to which the environment leads."""
    found: list[str] = []

    class Busy(BaseHTTPRequestHandler):
        """Answers all with an error of the server that the SDK does not repeat by itself."""

        def do_HEAD(self) -> None:
            found.append(self.path)
            self.send_response(501)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_HEAD  # noqa: N815 - as http.server calls it

        def log_message(self, *_: object) -> None:
            """A test's output has no log of a server."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }.items():
        monkeypatch.setenv(name, value)
    yield found
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "read",
    [
        lambda file, _: file.read_bytes(patience=0.0),
        lambda file, folder: file.download(folder / "f", patience=0.0),
        lambda file, _: file.open_range(patience=0.0),
    ],
    ids=["read", "download", "range"],
)
def test_without_patience_one_request_is_made(
    requests: list[str], tmp_path: Path, read: Callable[[Place, Path], object]
) -> None:
    """What reads by ranges does not go on for minutes of its own, inside of a caller's deadline."""
    with pytest.raises(StoreError) as caught:
        read(place("s3://bucket/f"), tmp_path)

    assert caught.value.failure is StoreFailure.AWAY
    assert len(requests) == 1


def test_a_kept_partition_is_not_waited_for_twice(requests: list[str], tmp_path: Path) -> None:
    """The store's own deadline is the only one."""
    store = PartitionStore("s3://bucket/kept", seconds=0.0)

    with pytest.raises(StoreError):
        store.fetch(a_record("w-1", {"g.json": KeptFile(1, "00")}), "g.json", tmp_path / "f")

    assert len(requests) == 1
