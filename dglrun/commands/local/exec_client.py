"""What pods find as kubectl: hands `exec` with its own streams to `dglrun local`, and ends with its code.

Started as a file, `python -I -S exec_client.py`, on the standard library alone: each start counts.
The socket lies in the folder that the first argument names.
"""

import array
import json
import os
import socket
import sys

_FLAGS = {"-i": "stdin", "--stdin": "stdin"}
_VALUES = {"-n": "namespace", "--namespace": "namespace", "-c": "container", "--container": "container"}
_USAGE = "error: expected exec [-i] [-n NAMESPACE] POD [-c CONTAINER] -- COMMAND..., got"


def parse(argv: list[str]) -> dict[str, object] | None:
    """The request of a command line, None when it is none."""
    if argv[:1] != ["exec"] or "--" not in argv:
        return None
    at = argv.index("--")
    found: dict[str, object] = {"command": argv[at + 1 :]}
    words = iter(argv[1:at])
    for word in words:
        if word in _FLAGS:
            found[_FLAGS[word]] = True
        elif word in _VALUES:
            found[_VALUES[word]] = next(words, "")
        elif word.startswith("-") or "pod" in found:
            return None
        else:
            found["pod"] = word
    return found if "pod" in found and found["command"] else None


def main(argv: list[str]) -> int:
    """Run a command in another pod; returns its exit code."""
    request = parse(argv[1:])
    if request is None:
        print(_USAGE, " ".join(argv[1:]), file=sys.stderr)
        return 1
    # By the folder's descriptor: a socket's path has 107 characters at most.
    folder = os.open(argv[0], os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.connect(f"/proc/self/fd/{folder}/exec.sock")
            streams = array.array("i", (0, 1, 2))
            server.sendmsg([b"."], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)])
            server.sendall(json.dumps(request).encode() + b"\n")
            with server.makefile() as answer:
                said = json.loads(answer.readline() or '{"code": 1, "words": "the run is being ended"}')
    except OSError as error:
        # As kubectl says it, so that it counts as a connection that may come back.
        said = {"code": 1, "words": f"connection refused: {error.strerror}"}
    if said["words"]:
        print(said["words"], file=sys.stderr)
    return int(said["code"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
