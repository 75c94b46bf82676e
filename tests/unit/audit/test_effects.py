import pytest

from redrive.audit.effects import Effect, parse_effect


@pytest.mark.parametrize("effect", Effect)
def test_each_declared_word_is_its_own_class(effect: Effect) -> None:
    assert parse_effect(effect.value) is effect


@pytest.mark.parametrize("word", ["PURE", "", " pure", "write", None, 1, ["pure"]])
def test_whatever_is_not_exactly_a_known_word_is_unsafe(word: object) -> None:
    assert parse_effect(word) is Effect.UNSAFE
