"""What the launcher asks of an agent, as the line that carries it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dglrun.agent.spec import Process, ProcessRole, Spec, SpecError, decode, encode

words = st.text(max_size=12)


processes = st.builds(
    Process,
    st.sampled_from(ProcessRole),
    st.integers(0, 9),
    st.none() | st.integers(0, 99),
    st.lists(words, min_size=1).map(tuple),
    st.dictionaries(words, words),
)


specs = st.builds(
    Spec,
    run=words,
    ip=words,
    trainers=st.integers(1, 8),
    processes=st.lists(processes, max_size=3).map(tuple),
    files=st.dictionaries(words, words),
    folders=st.lists(words).map(tuple),
    ports=st.lists(st.integers(1, 65535)).map(tuple),
    output=words,
    lease=st.floats(1, 100),
    grace=st.floats(0, 10),
    shm=words,
    watched=st.lists(words).map(tuple),
)


@given(specs)
def test_a_spec_survives_its_line(spec: Spec) -> None:
    """What is sent is what arrives, whatever the arguments hold; always one line."""
    line = encode(spec)

    assert "\n" not in line
    assert decode(line) == spec


@given(st.text() | st.sampled_from(["{}", "[]", "null", '{"processes": [{}]}', '{"processes": 1}']))
def test_what_is_no_spec_is_refused(text: str) -> None:
    """With one kind of error only."""
    with pytest.raises(SpecError):
        decode(text)
