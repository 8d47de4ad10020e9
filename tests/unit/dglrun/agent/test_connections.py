"""Who gets through to an agent: the launcher of its run, and nobody else."""

import json
import selectors
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dglrun.agent import tls
from dglrun.agent.connections import Connection
from dglrun.agent.outbox import Outbox
from dglrun.workflow import run_keys

POD = "job-worker-0"
SECONDS = 60.0
"""Only where a test fails."""


class Agent:
    """One connection at a time, as the daemon serves it."""

    def __init__(self, keys: tls.Keys) -> None:
        self.outbox = Outbox()
        self.commands: list[dict[str, Any]] = []
        self.is_stopped = threading.Event()
        self._context = tls.server_context(keys)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._connections: list[Connection] = []

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def serve(self) -> None:
        while not self.is_stopped.is_set():
            for key, mask in self._selector.select(0.02):
                key.data(mask)
            for connection in self._connections:
                connection.pump()
        for connection in self._connections:
            connection.close()
        self._listener.close()
        self._selector.close()

    def _accept(self, _mask: int) -> None:
        accepted, _ = self._listener.accept()
        self._connections.append(Connection(accepted, self._context, self.outbox, self._selector, self._obey))

    def _obey(self, connection: Connection, command: dict[str, Any]) -> None:
        self.commands.append(command)
        if command["do"] == "attach":
            connection.attach(command, {"kind": "hello"})


@contextmanager
def serving(keys: tls.Keys) -> Iterator[Agent]:
    agent = Agent(keys)
    thread = threading.Thread(target=agent.serve)
    thread.start()
    try:
        yield agent
    finally:
        agent.is_stopped.set()
        thread.join()


@contextmanager
def connected(agent: Agent, context: ssl.SSLContext, name: str = POD) -> Iterator[ssl.SSLSocket]:
    with (
        socket.create_connection(("127.0.0.1", agent.port), SECONDS) as plain,
        context.wrap_socket(plain, server_hostname=name) as secure,
    ):
        yield secure


def attach(secure: ssl.SSLSocket) -> bytes:
    """What comes after an attach: the greeting, or nothing where the agent has closed the connection."""
    secure.sendall(json.dumps({"do": "attach", "control": 0, "received": 0, "printed": 0}).encode() + b"\n")
    return secure.recv(1 << 16)


def refuses(agent: Agent, context: ssl.SSLContext) -> bool:
    """With TLS 1.3 a client learns only when it reads that its certificate was refused."""
    try:
        with connected(agent, context) as secure:
            return attach(secure) == b""
    except OSError:
        return True


def test_the_launcher_of_the_run_is_heard_and_told() -> None:
    """A command goes there, what the agent has to tell comes here."""
    own, agents = run_keys.make([POD])
    with serving(agents[POD]) as agent:
        agent.outbox.record({"kind": "ended"})
        with connected(agent, tls.client_context(own)) as secure:
            said = attach(secure)
            while said.count(b"\n") < 2:
                said += secure.recv(1 << 16)

    assert [json.loads(line)["kind"] for line in said.splitlines()] == ["hello", "ended"]
    assert [command["do"] for command in agent.commands] == ["attach"]


def without_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def of_another_run() -> ssl.SSLContext:
    context = tls.client_context(run_keys.make([POD])[0])
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("stranger", [without_certificate, of_another_run])
def test_a_stranger_is_not_heard(stranger: Callable[[], ssl.SSLContext]) -> None:
    """No certificate, or one of another run's authority."""
    _, agents = run_keys.make([POD])
    with serving(agents[POD]) as agent:
        assert refuses(agent, stranger())

    assert agent.commands == []


def test_another_worker_is_no_launcher() -> None:
    """Its certificate is of the same run, but a server's."""
    _, agents = run_keys.make([POD, "job-worker-1"])
    with serving(agents[POD]) as agent:
        assert refuses(agent, tls.client_context(agents["job-worker-1"]))

    assert agent.commands == []


def test_a_connection_that_never_shakes_hands_disturbs_nobody() -> None:
    """Bytes that are no TLS, and silence."""
    own, agents = run_keys.make([POD])
    with (
        serving(agents[POD]) as agent,
        socket.create_connection(("127.0.0.1", agent.port), SECONDS),
        socket.create_connection(("127.0.0.1", agent.port), SECONDS) as noise,
    ):
        noise.sendall(b"GET / HTTP/1.0\r\n\r\n")
        with connected(agent, tls.client_context(own)) as secure:
            assert json.loads(attach(secure))["kind"] == "hello"


def test_an_agent_must_prove_its_pod() -> None:
    """Another pod may have got the address."""
    own, agents = run_keys.make([POD, "job-worker-1"])
    with (
        serving(agents["job-worker-1"]) as agent,
        pytest.raises(ssl.SSLCertVerificationError, match=POD),
        connected(agent, tls.client_context(own)),
    ):
        pass


def test_keys_stay_out_of_logs() -> None:
    """A traceback shows the values of a call at times."""
    own, _ = run_keys.make([POD])

    assert "PRIVATE" not in repr(own)
    assert tls.decode(tls.encode(own)) == own
    with pytest.raises(tls.KeysError) as caught:
        tls.decode(own.key)
    assert "PRIVATE" not in str(caught.value)
