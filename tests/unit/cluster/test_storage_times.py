"""The table of jobs on object storage."""

from tests.e2e import storage_times
from tests.support.measured import TABLES


def test_each_job_stands_beside_the_one_whose_partition_costs_nothing() -> None:
    """A job that trains earlier has a delay below zero."""
    rows = storage_times.rows({"cold": 40.0, "warm": 13.5, "ready": 12.0, "other": 11.0})

    assert [row[1:] for row in rows] == [
        ("12.0", "+0.0"),
        ("13.5", "+1.5"),
        ("40.0", "+28.0"),
        ("11.0", "-1.0"),
    ]
    assert {len(row) for row in rows} == {len(TABLES[storage_times.TABLE].columns)}
