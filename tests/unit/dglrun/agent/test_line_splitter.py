"""A process's output as lines."""

from hypothesis import given
from hypothesis import strategies as st

from dglrun.agent.line_splitter import LONGEST, REPEAT_SECONDS, LineSplitter


@given(
    st.lists(st.text("ab \té✓[]"), max_size=8),
    st.integers(1, 7),
)
def test_lines_do_not_depend_on_the_blocks(lines: list[str], size: int) -> None:
    """Whatever the pipe cuts, the lines are the ones that were written."""
    stream = "".join(line + "\n" for line in lines).encode()
    splitter = LineSplitter()

    found = [
        line for at in range(0, len(stream), size) for line in splitter.feed(stream[at : at + size], 0.0)
    ]

    assert found + splitter.flush() == [line.rstrip() for line in lines]


def test_a_progress_bar_is_shown_now_and_then() -> None:
    """A line rewritten a thousand times is a few lines in a pod log, its last state among them."""
    splitter = LineSplitter(0.0)

    shown = [splitter.feed(f"\r{n}%".encode(), n * REPEAT_SECONDS / 10) for n in range(101)]
    last = splitter.feed(b"\rdone\n", 1000.0)

    assert 9 <= sum(len(lines) for lines in shown) <= 11
    assert last == ["done"]


def test_a_line_without_end_is_given_in_pieces() -> None:
    """Memory stays bounded."""
    found = LineSplitter().feed(b"x" * (2 * LONGEST + 5), 0.0)

    assert [len(piece) for piece in found] == [LONGEST, LONGEST]
