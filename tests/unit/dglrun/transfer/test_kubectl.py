"""What the end of `kubectl exec` says: has the command been reached, or is it to be tried again."""

import pytest

from dglrun.transfer.kubectl import Kubectl, has_reached

RUNC = (
    "error: Internal error occurred: Internal error occurred: error executing command in container: "
    'failed to exec in container: failed to start exec "58a1403f": OCI runtime exec failed: exec failed: '
    "unable to start container process: "
)
ON_THE_WAY = {
    "refused": "The connection to the server 10.0.0.1:443 was refused - did you specify the right host?",
    "eof": "error: unexpected EOF",
    "bare eof": "Unable to connect to the server: EOF",
    "post eof": 'error: error sending request: Post "https://10.0.0.1/api/v1/namespaces/n/pods/p/exec": EOF',
    "goaway": "error: http2: server sent GOAWAY and closed the connection; ErrCode=NO_ERROR",
    "dns": "Unable to connect to the server: dial tcp: lookup api.example.org on 10.0.0.2:53: no such host",
    "unauthorized": "error: You must be logged in to the server (Unauthorized)",
    "deadline": "Error from server: context deadline exceeded",
    "client timeout": "Unable to connect to the server: context deadline exceeded (Client.Timeout exceeded)",
    "broken pipe": "error: write tcp 10.0.0.5:4312->10.96.0.1:443: write: broken pipe",
    "reset": "error: read tcp 10.0.0.5:4312->10.96.0.1:443: read: connection reset by peer",
    "busy": "Error from server (TooManyRequests): too many requests, please try again later",
    "kubelet": "Error from server: error dialing backend: dial tcp 10.0.0.3:10250: i/o timeout",
    "runtime": (
        "error: Internal error occurred: connection error: desc = transport: Error while dialing: dial unix "
        "/run/containerd/containerd.sock: connect: no such file or directory"
    ),
    "container": 'error: unable to upgrade connection: container not found ("main")',
    "certificate": "Unable to connect to the server: tls: failed to verify certificate: x509: expired",
    "signal": "",
    "unknown": "error: the flux capacitor is out of sync",
}
IN_THE_CONTAINER = {
    "ended": "command terminated with exit code 1",
    "ended with words": "/usr/bin/python3: No module named dglrun\ncommand terminated with exit code 1",
    "no such command": f'{RUNC}exec: "python9": executable file not found in $PATH',
    "no such file": f'{RUNC}exec: "/opt/python": stat /opt/python: no such file or directory',
    "not executable": f'{RUNC}exec: "/etc": permission denied',
    "crun": "error: Internal error occurred: executable file `python9` not found in $PATH: No such file",
}


@pytest.mark.parametrize("words", ON_THE_WAY.values(), ids=ON_THE_WAY)
def test_what_goes_wrong_on_the_way_has_not_reached_the_command(words: str) -> None:
    """Whatever it is called, also what nobody has seen yet, is tried again."""
    assert not has_reached(1, words)


@pytest.mark.parametrize("words", IN_THE_CONTAINER.values(), ids=IN_THE_CONTAINER)
def test_what_goes_wrong_in_the_container_has(words: str) -> None:
    """Another try would end in the same way."""
    assert has_reached(1, words)


@pytest.mark.parametrize(("code", "reached"), [(2, True), (126, True), (127, True), (137, True), (-9, False)])
def test_a_code_that_is_not_kubectls_own_is_the_commands(code: int, reached: bool) -> None:
    """A kubectl that was killed here says nothing about the command."""
    assert has_reached(code, "") is reached


def test_an_exec_is_a_list_of_words() -> None:
    """No shell reads it: blanks, quotes and dollar signs arrive as they are."""
    argv = Kubectl("/opt/kube/kubectl", "ns").exec("job-worker-0", "main", "python3", "a b", "$HOME")

    assert argv == (
        *("/opt/kube/kubectl", "exec", "-i", "-n", "ns", "job-worker-0", "-c", "main", "--"),
        *("python3", "a b", "$HOME"),
    )
