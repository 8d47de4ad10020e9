"""A way to an agent that can be broken: `python -m tests.support.tcp_proxy PID_FILE AGENT_COMMAND...`.

It runs the command that starts the agent and says another port than the agent's: its own, from which it
forwards until it is killed. SIGUSR1 breaks all connections of the moment.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

IDLE_SECONDS = 300.0
"""A proxy that a failed test has left ends by itself."""


def main(pid_file: Path, command: list[str]) -> int:
    """Start the agent; leave a proxy behind that runs in the background."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout
        for line in agent.stdout:
            record = json.loads(line)
            if record["kind"] == "listening":
                record["port"] = _leave_behind(pid_file, record["port"])
            print(json.dumps(record), flush=True)
    return agent.returncode


def _leave_behind(pid_file: Path, port: int) -> int:
    listener = socket.create_server(("127.0.0.1", 0))
    number: int = listener.getsockname()[1]
    if child := os.fork():
        pid_file.write_text(str(child))
        return number
    os.setsid()
    os.chdir("/")  # it is no process of the pod
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    _forward(listener, port)
    os._exit(0)


def _forward(listener: socket.socket, port: int) -> None:
    connections: set[socket.socket] = set()

    def break_all(*_: object) -> None:
        for each in list(connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    signal.signal(signal.SIGUSR1, break_all)
    listener.settimeout(IDLE_SECONDS)
    while True:
        try:
            outer, _ = listener.accept()
            inner = socket.create_connection(("127.0.0.1", port), 10)
        except OSError:  # idle for too long, or the agent is gone: so is its port
            return
        connections |= {outer, inner}
        for one, other in ((outer, inner), (inner, outer)):
            threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        source.settimeout(None)
        while block := source.recv(1 << 16):
            target.sendall(block)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
