"""The tests that may be skipped, each with its reason and the condition on which it is.

`--strict-skips` fails a run for every skip that is not here; the gate runs with it. An entry belongs here
only if what its tests need cannot be had everywhere: a licence, 5 GB of wheels, another kernel.
"""

import os
import re
import socket
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass

from tests.cluster import builds, kind
from tests.e2e.enforcement import is_known_to_enforce

LICENCE = "DGL_OPERATOR_ACCEPT_PARMETIS_LICENSE"


@dataclass(frozen=True)
class ExpectedSkip:
    """Tests that are skipped for one reason.

    Attributes:
        suite: The folder of the tests, as pytest is given it.
        tests: Regular expressions for the whole name of a test, its parameters included.
        reason: Regular expression for a part of the reason that pytest reports.
        when: Whether the reason can hold here.
        is_certain: Whether it then does, so that tests which run all the same make the entry stale.
    """

    suite: str
    tests: tuple[str, ...]
    reason: str
    when: Callable[[], bool]
    is_certain: bool = True

    def covers(self, nodeid: str) -> bool:
        """Whether a test is one of these, whatever the reason."""
        path, _, name = nodeid.partition("::")
        within = path.startswith(f"{self.suite}/")
        return within and any(re.fullmatch(pattern, name) for pattern in self.tests)

    def allows(self, nodeid: str, reason: str) -> bool:
        """Whether a skip is one of these and its reason holds."""
        return self.covers(nodeid) and re.search(self.reason, reason) is not None and self.when()


def _is_not(variable: str, value: str) -> Callable[[], bool]:
    return lambda: os.environ.get(variable) != value


def _is_unset(variable: str) -> Callable[[], bool]:
    return lambda: not os.environ.get(variable)


def may_lack_gangs() -> bool:
    """Whether the cluster need not have gang scheduling: one of somebody else, by kind, or an older one."""
    return _is_unset("DGL_OPERATOR_AUDIT_LOG")() or kind.chosen() or bool(builds.older())


def _is_not_root() -> bool:
    return os.geteuid() != 0


EXPECTED = (
    ExpectedSkip(
        "tests/unit",
        (
            r"test_random_heterographs_hold_for_us_and_for_dgl\[.*modern.*\]",
            r"test_it_is_what_dgls_converter_makes\[.*",
            r"test_verify_holds_it_against_the_graph_beside_it",
            r"test_dgl_trains_on_both_parts\[graphbolt\]",
            r"test_graphbolts_form_is_delivered_with_the_parts\[.*",
        ),
        "DGLRUN_MODERN_PYTHON names no Python",  # 5 GB of wheels: `make modern-formats`
        _is_unset("DGLRUN_MODERN_PYTHON"),
    ),
    ExpectedSkip(
        "tests/unit",
        (
            r"test_ranks_find_communities_and_score_them_right\[.*parmetis.*\]",
            r"test_each_node_type_has_a_weight_of_its_own\[.*parmetis.*\]",
            r"test_odd_graphs_are_partitioned_by_ranks\[.*parmetis.*\]",
            r"test_random_heterographs_are_partitioned_and_scored\[.*parmetis.*\]",
            r"test_every_row_comes_through_a_back_end_that_talks_to_mpi_itself\[parmetis\]",
        ),
        f"skipped for its licence .{LICENCE} is not yes",
        _is_not(LICENCE, "yes"),
    ),
    ExpectedSkip(
        "tests/unit",
        (r"test_an_absent_parmetis_says_what_to_install_and_runs_nothing_else",),
        "libparmetis is installed",  # by whoever accepted the licence once
        lambda: find_library("parmetis") is not None,
    ),
    ExpectedSkip(
        "tests/unit",
        (r".*",),
        "DGL_OPERATOR_LIGHT=1|could not import '(torch|dgl)'|no mpirun|libmetis|libtrilinos|libptscotch",
        lambda: os.environ.get("DGL_OPERATOR_LIGHT") == "1",
    ),
    ExpectedSkip("tests/unit", (r".*",), "needs? root", _is_not_root),
    ExpectedSkip(
        "tests/unit",
        (r"test_.*",),
        "this kernel has no IPv6",
        lambda: not socket.has_dualstack_ipv6(),
    ),
    ExpectedSkip("tests/integration", (r"test_.*_without_space_.*",), "needs root", _is_not_root),
    ExpectedSkip(
        "tests/cluster",
        (r".*",),
        "KUBECONFIG names a cluster",
        lambda: not _is_unset("KUBECONFIG")(),
    ),
    ExpectedSkip(
        "tests/cluster",
        (r".*",),
        "an engine runs here",
        lambda: kind.chosen() and _is_unset("KUBECONFIG")(),
    ),
    ExpectedSkip(
        "tests/integration",
        (
            r"test_the_operators_audit_trail_has_its_rules_verbs_and_no_exec",
            r"test_every_list_and_watch_of_children_is_filtered_by_the_server",
        ),
        "DGL_OPERATOR_AUDIT_LOG is not set",
        _is_unset("DGL_OPERATOR_AUDIT_LOG"),
    ),
    ExpectedSkip(
        "tests/integration",
        (r"test_the_one_file_install_runs_a_job",),
        "an operator is installed in namespace dgl-operator",
        lambda: os.environ.get("DGL_OPERATOR_SHARED_CLUSTER") == "1",
        is_certain=False,
    ),
    ExpectedSkip(
        "tests/integration",
        (
            r"test_workers_get_their_nodes_together_or_not_at_all",
            r"test_without_a_policy_a_part_of_the_workers_takes_the_room",
            r"test_a_replaced_worker_and_a_new_attempt_join_the_same_gang",
            r"test_the_policy_of_a_job_neither_changes_nor_goes",
        ),
        "the API server has no PodGroup of scheduling.k8s.io/v1alpha2",
        may_lack_gangs,
        is_certain=False,
    ),
    ExpectedSkip(
        "tests/e2e",
        (
            r"test_the_operator_never_used_exec",
            r"test_the_operator_deletes_the_workers_of_a_completed_job_but_not_its_launcher",
        ),
        "DGL_OPERATOR_AUDIT_LOG is not set",
        _is_unset("DGL_OPERATOR_AUDIT_LOG"),
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_the_node_tells_the_size_of_each_image",),
        "sizes are measured on our own node",
        _is_unset("DGL_OPERATOR_AUDIT_LOG"),
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_jobs_in_every_phase_outlive_the_api_server",),
        "needs the one-node cluster",
        _is_unset("DGL_OPERATOR_AUDIT_LOG"),
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_only_whom_the_job_admits_connects_to_its_pods",),
        "needs a cluster that enforces NetworkPolicies",
        lambda: not is_known_to_enforce(),
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_parmetis_itself\[.*",),
        "ParMETIS is not free",
        _is_not(LICENCE, "yes"),
    ),
    ExpectedSkip(
        "tests/e2e",
        (
            r"test_the_example_is_trained_without_kubernetes",
            r"test_predictions_of_a_local_run_have_the_ids_of_the_tables",
        ),
        "DGL_OPERATOR_LIGHT=1",
        lambda: os.environ.get("DGL_OPERATOR_LIGHT") == "1",
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_predictions_of_a_local_run_have_the_ids_of_the_tables",),
        "needs root",
        _is_not_root,
        is_certain=False,  # the other reason may come first
    ),
    ExpectedSkip(
        "tests/e2e",
        (r"test_train_dist_of_dgl_1_1_3_runs_unmodified",),
        "DGL_EXAMPLE names no train_dist.py",  # not ours to commit
        _is_unset("DGL_EXAMPLE"),
    ),
)
