"""What the policy controller leaves in the packet filter, and how it is removed beside the proxy."""

from tests.cluster import policies

SAVED = """\
*filter
:INPUT ACCEPT [147:17392]
:FORWARD ACCEPT [0:0]
:KUBE-FORWARD - [0:0]
:KUBE-NWPLCY-DEFAULT - [0:0]
:KUBE-POD-FW-VSHTZBS7XQ - [0:0]
:KUBE-ROUTER-INPUT - [0:0]
-A INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-ROUTER-INPUT -d 10.96.0.0/16 -j RETURN
COMMIT
"""


def test_only_the_controllers_rules_are_removed() -> None:
    """Its chains are emptied first, then nothing jumps there, then they go; the proxy's are not named."""
    assert policies.removal_of_rules(SAVED).splitlines() == [
        "*filter",
        ":KUBE-NWPLCY-DEFAULT - [0:0]",
        ":KUBE-POD-FW-VSHTZBS7XQ - [0:0]",
        ":KUBE-ROUTER-INPUT - [0:0]",
        '-D INPUT -m comment --comment "kube-router netpol - 4IA2OSFRMVNDXBVV" -j KUBE-ROUTER-INPUT',
        "-X KUBE-NWPLCY-DEFAULT",
        "-X KUBE-POD-FW-VSHTZBS7XQ",
        "-X KUBE-ROUTER-INPUT",
        "COMMIT",
    ]


def test_without_rules_of_the_controller_nothing_is_removed() -> None:
    """An empty restore would be an error."""
    assert policies.removal_of_rules("*filter\n:KUBE-FORWARD - [0:0]\nCOMMIT\n") == ""
