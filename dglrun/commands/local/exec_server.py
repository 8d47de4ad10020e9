"""Serves the pods' `kubectl exec`: runs the command in the other pod, on the very streams of the caller."""

import json
import os
import shlex
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dglrun.commands.local import exec_client

Run = Callable[[str, str, list[str]], tuple[list[str], dict[str, str], str | None]]
"""Says how to run a command in a container of a pod: argv, environment, working directory."""

_LONGEST = 1 << 20


class ExecRefused(Exception):
    """There is no such pod or container; in kubectl's words."""


class ExecServer:
    """Listens on a socket in a folder that the pods have as /opt/kube.

    Args:
        folder: The folder.
        run: Finds pods; raises ExecRefused.
    """

    def __init__(self, folder: Path, run: Run) -> None:
        self._run = run
        self._listener = socket.socket(socket.AF_UNIX)
        held = os.open(folder, os.O_PATH)
        try:
            # By the folder's descriptor: a socket's path has 107 characters at most.
            self._listener.bind(f"/proc/self/fd/{held}/exec.sock")
        finally:
            os.close(held)
        self._listener.listen(128)
        threading.Thread(target=self._serve, name="exec", daemon=True).start()

    def close(self) -> None:
        """Take no more commands; those that run end with their pods."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(caller,), name="exec", daemon=True).start()

    def _answer(self, caller: socket.socket) -> None:
        with caller:
            try:
                _, streams, _, _ = socket.recv_fds(caller, 1, 3)
            except OSError:
                return
            try:
                with caller.makefile() as lines:
                    answer = self._perform(json.loads(lines.readline(_LONGEST)), streams)
            except ValueError as error:
                answer = {"code": 1, "words": f"error: {error}"}
            finally:
                for each in streams:
                    os.close(each)
            with suppress(OSError):  # the caller may be gone, as after a kill of kubectl
                caller.sendall(json.dumps(answer).encode() + b"\n")

    def _perform(self, request: Mapping[str, Any], streams: list[int]) -> dict[str, object]:
        if len(streams) != 3:
            raise ValueError(f"expected three streams, got {len(streams)}")
        try:
            argv, env, cwd = self._run(request["pod"], request.get("container", ""), request["command"])
            process = subprocess.Popen(
                argv,
                env=env,
                cwd=cwd,
                stdin=streams[0] if request.get("stdin") else subprocess.DEVNULL,
                stdout=streams[1],
                stderr=streams[2],
                start_new_session=True,  # as in a container: Ctrl-C at the terminal is not for it
            )
        except ExecRefused as error:
            return {"code": 1, "words": str(error)}
        except OSError as error:
            words = f'error: exec: "{request["command"][0]}": {error.strerror}'.lower()
            return {"code": 127, "words": words}
        # The streams stay open here until the answer is sent: no longer, as the caller waits for their end.
        code = process.wait()
        code = code if code >= 0 else 128 - code
        return {"code": code, "words": f"command terminated with exit code {code}" if code else ""}


def programs(python: str, folder: str) -> dict[str, str]:
    """The files of the stand-in for kubectl.

    Args:
        python: The interpreter.
        folder: The folder of the socket as a pod sees it.
    """
    client = shlex.join((python, "-I", "-S", f"{folder}/exec_client.py", folder))
    return {
        "kubectl": f'#!/bin/sh\nexec {client} "$@"\n',
        "exec_client.py": Path(exec_client.__file__).read_text(),
    }
