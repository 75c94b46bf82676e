from hypothesis import given
from hypothesis import strategies as st

from redrive.audit.texts import common_prefix

SHORT = st.text("ab", max_size=40)


def walk(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@given(SHORT, SHORT)
def test_the_prefix_is_the_one_that_a_walk_finds(one: str, other: str) -> None:
    assert common_prefix(one, other) == walk(one, other)
    assert common_prefix(one.encode(), other.encode()) == walk(one, other)
