"""Which benchmarks `make bench` runs."""

import pytest

from tests.benchmarks.__main__ import BENCHMARKS, chosen


def test_without_a_name_every_benchmark_runs() -> None:
    """Plain `make bench` measures everything."""
    assert chosen("", []) == list(BENCHMARKS)


def test_a_name_selects_one_benchmark_with_its_arguments() -> None:
    """ONLY=operator leaves dispatch alone."""
    assert chosen("operator", ["--jobs", "5"]) == ["operator"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    """A typing error does not run the wrong thing."""
    with pytest.raises(ValueError, match=r"ONLY=operators: .*dispatch, operator"):
        chosen("operators", [])


def test_arguments_without_a_name_are_refused() -> None:
    """The benchmarks have different flags."""
    with pytest.raises(ValueError, match="BENCH_ARGS needs ONLY"):
        chosen("", ["--jobs", "5"])
