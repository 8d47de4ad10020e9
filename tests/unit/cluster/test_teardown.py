"""What teardown takes for ours."""

from pathlib import Path

from tests.cluster import teardown

SAVED = """\
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
:CNI-HOSTPORT-DNAT - [0:0]
:DOCKER - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -s 10.244.0.2/32 -m comment --comment "name: \\"x\\"" -j CNI-0123456789abcdef
-A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -j KUBE-SVC-NPX46M4PTMTKRN6Y
-A PREROUTING -j DOCKER
-A DOCKER -i docker0 -m comment --comment "not for KUBE-SERVICES" -j RETURN
COMMIT
"""

MOUNTINFO = """\
21 1 254:0 / / rw - ext4 /dev/vda rw
40 21 0:30 / /state/kubelet rw - tmpfs tmpfs rw
41 40 0:31 / /state/kubelet/pods/1/volumes/with\\040space rw - tmpfs tmpfs rw
42 21 0:32 / /state-of-others rw - tmpfs tmpfs rw
43 21 0:33 / /state rw - tmpfs tmpfs rw
"""


def test_rules_of_others_stay() -> None:
    """Chains and jumps of the proxy and the network plugins go; a comment that names one does not matter."""
    assert teardown.without_ours(SAVED) == (
        "*nat\n:PREROUTING ACCEPT [0:0]\n:DOCKER - [0:0]\n-A PREROUTING -j DOCKER\n"
        '-A DOCKER -i docker0 -m comment --comment "not for KUBE-SERVICES" -j RETURN\nCOMMIT\n'
    )


def test_mounts_below_a_folder_come_last_first() -> None:
    """The folder itself counts, its namesakes do not, and odd characters are read back."""
    assert teardown.mounted(MOUNTINFO, Path("/state")) == [
        "/state",
        "/state/kubelet/pods/1/volumes/with space",
        "/state/kubelet",
    ]
