from hypothesis import given
from hypothesis import strategies as st

from redrive.record.texts import common_ends, common_prefix

SHORT = st.text("ab", max_size=40)


def walk(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@given(SHORT, SHORT)
def test_the_prefix_is_the_one_that_a_walk_finds(one: str, other: str) -> None:
    assert common_prefix(one, other) == walk(one, other)
    assert common_prefix(one.encode(), other.encode()) == walk(one, other)


@given(SHORT, SHORT, SHORT)
def test_the_ends_never_overlap(start: str, middle: str, end: str) -> None:
    for one, other in ((start + end, start + middle + end), (middle, start + middle)):
        prefix, suffix = common_ends(one, other)
        assert one[:prefix] == other[:prefix]
        assert prefix + suffix <= min(len(one), len(other))
        assert not suffix or one[-suffix:] == other[-suffix:]
        assert (prefix, suffix) == common_ends(one.encode(), other.encode())
