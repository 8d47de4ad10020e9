"""The plan for a graph that no machine here can hold follows from the measured tables of docs/."""

import pytest

from tests.benchmarks import plan
from tests.support.measured import TABLES

MEASURED = {
    "assign": [["communities", "64", "streaming, 4 ranks", "60.0 / 88.0", "371"]],
    "dispatch-growth": [
        ["dglrun", "4,000,000 / 40,000,000 / 0", "parquet", "2, 2", "6.0", "3.0", "480", "1000", "1 %"],
        ["DGL", "4,000,000 / 80,000,000 / 0", "parquet", "2, 2", "300.0", "160.0", "9000", "1", "1 %"],
        ["dglrun", "4,000,000 / 80,000,000 / 0", "parquet", "2, 2", "12.0", "6.0", "700", "2000", "1 %"],
    ],
    "dispatch-targets": [
        ["dispatch", "4,000,000 / 40,000,000 / 64", "2, 2", "9.0", "4", "5", "460", "", ""],
        ["dispatch", "4,000,000 / 80,000,000 / 0", "2, 2", "10.0", "9", "9", "700", "", ""],
        ["dispatch", "4,000,000 / 400,000,000 / 0", "2, 2", "80.0", "60", "50", "2700", "1.2", "linear"],
        [
            *("dispatch", "4,000,000 / 400,000,000 / 0", "2, 2", "80.0", "60", "50", "2700"),
            *("13.0 bytes more for each edge more of a rank", "20"),
        ],
    ],
    "chunk-large": [["4Gi", "csv", "20,000,000", "100,000,000", "300.0 / 180.0", "2700", "11444", "1600"]],
    "verify": [
        [
            "2,000,000 / 20,000,000 / 64",
            "parquet",
            "2",
            "count and verify by sums",
            "0.8",
            "1.20",
            "0.9",
            "",
            "",
        ]
    ],
}


def test_what_a_rank_needs_is_what_was_measured_times_its_share() -> None:
    """156.25M edges and 15.6M nodes: 2 s and 0.2 s and 0.06 s a million edges, 1 s a million nodes."""
    found = {what: (how, needs) for what, how, needs in plan.rows(MEASURED)}

    assert [needs for _, needs in found.values()] == [
        *("312 s", "47 s", "9 s", "369 s"),
        *("5.0 + 1.0 + 0.2 GB", "2.0 GB", "13 GB, 10 s at 10 Gbit/s", "8.2 + 4.0 GB"),
        "on one machine 5.0 h, 1.2 TB",
    ]
    assert found["dispatch: CPU"][0] == (
        "0.200 CPU s for each million edges, 1.00 for the 64 values of each million nodes"
    )
    assert found["output: disk"][0] == "52 bytes for each edge with original IDs, 256 for each node"


def test_a_table_that_lacks_a_row_is_named() -> None:
    """As when the sizes of a benchmark change."""
    with pytest.raises(
        ValueError, match="table assign: expected a row with communities, 64, streaming, 4 ranks"
    ):
        list(plan.rows({**MEASURED, "assign": []}))


def test_the_plan_in_the_docs_is_of_the_tables_in_the_docs() -> None:
    """Whoever measures one anew runs `python -m tests.benchmarks.tables plan`, too."""
    assert plan.read(TABLES["plan"]) == list(plan.rows())
