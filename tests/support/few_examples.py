"""Examples of hypothesis for tests that can afford one or two of them."""

from operator import itemgetter
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

_NO_ZERO = st.integers(0, 999).filter(bool)


def by_chance(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[T]:
    """The same values, but the simplest of all not before others.

    Hypothesis tries that first: a test of one example would have no other, in any run. Here it is refused,
    and what is refused does not count.
    """
    return st.tuples(_NO_ZERO, strategy).map(itemgetter(1))
