import copy
import os
import pickle
import random
import secrets
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.capture.dice import (
    Dealer,
    Dice,
    names_in,
    randbelow,
    token_bytes,
    token_hex,
    token_urlsafe,
    urandom,
    uuid4,
)
from redrive.record.event import Kind
from tests.reading_backend import ReadingBackend

DRAWS: list[tuple[str, Callable[[random.Random], Any], str]] = [
    ("random", lambda dice: dice.random(), "random.random"),
    ("uniform", lambda dice: dice.uniform(0.1, 0.5), "random.uniform(0.1, 0.5)"),
    ("triangular", lambda dice: dice.triangular(1, 5, 2), "random.triangular(1, 5, 2)"),
    ("randint", lambda dice: dice.randint(1, b=6), "random.randint(1, b=6)"),
    ("randrange", lambda dice: dice.randrange(10), "random.randrange(10)"),
    ("getrandbits", lambda dice: dice.getrandbits(70), "random.getrandbits(70)"),
    ("randbytes", lambda dice: dice.randbytes(4), "random.randbytes(4)"),
    ("gauss", lambda dice: dice.gauss(0, 1), "random.gauss(0, 1)"),
    ("normalvariate", lambda dice: dice.normalvariate(0, 1), "random.normalvariate(0, 1)"),
    ("lognormvariate", lambda dice: dice.lognormvariate(0, 1), "random.lognormvariate(0, 1)"),
    ("expovariate", lambda dice: dice.expovariate(2), "random.expovariate(2)"),
    ("vonmisesvariate", lambda dice: dice.vonmisesvariate(0, 4), "random.vonmisesvariate(0, 4)"),
    ("gammavariate", lambda dice: dice.gammavariate(9, 2), "random.gammavariate(9, 2)"),
    ("betavariate", lambda dice: dice.betavariate(1, 3), "random.betavariate(1, 3)"),
    ("paretovariate", lambda dice: dice.paretovariate(3), "random.paretovariate(3)"),
    ("weibullvariate", lambda dice: dice.weibullvariate(1, 3), "random.weibullvariate(1, 3)"),
    ("getstate", lambda dice: dice.getstate(), "random.getstate"),
    ("choice", lambda dice: dice.choice("abc"), "random.choice(len=3)"),
    (
        "choices",
        lambda dice: dice.choices("abc", iter([1, 2, 3]), k=4),  # type: ignore[arg-type]
        "random.choices(len=3, weights=[1, 2, 3], k=4)",
    ),
    (
        "choices",
        lambda dice: dice.choices("abc", cum_weights=[1, 2, 3]),
        "random.choices(len=3, cum_weights=[1, 2, 3], k=1)",
    ),
    ("sample", lambda dice: dice.sample(range(99), 5), "random.sample(len=99, k=5)"),
    (
        "sample",
        lambda dice: dice.sample("ab", 3, counts=[2, 2]),
        "random.sample(len=2, k=3, counts=[2, 2])",
    ),
    ("shuffle", lambda dice: shuffled(dice, list("abcdef")), "random.shuffle(len=6)"),
]


def shuffled(dice: random.Random, items: Any) -> Any:
    assert dice.shuffle(items) is None  # type: ignore[func-returns-value]
    return items


@pytest.mark.parametrize(("method", "draw", "name"), DRAWS, ids=[name for *_, name in DRAWS])
def test_a_draw_is_one_read_equal_to_pythons_and_served_again(
    method: str, draw: Callable[[random.Random], Any], name: str
) -> None:
    recording = ReadingBackend()
    value = draw(Dice(recording, seed=7))
    assert repr(value) == repr(draw(random.Random(7)))
    assert [(kind, name) for kind, name, _ in recording.reads] == [(Kind.PRNG_READ, name)]
    # Other dice, so that only the record can give the value.
    assert repr(draw(Dice(recording.rerun(), seed=8))) == repr(value)


def test_every_draw_of_pythons_dice_is_one_of_ours_and_has_a_case() -> None:
    public = {name for name in dir(random.Random) if not name.startswith("_")}
    assert public - {"seed", "setstate", "VERSION"} <= set(names_in("random"))
    own = {name for name in names_in("random") if name in public}
    assert {method for method, *_ in DRAWS} | {"binomialvariate"} >= own
    assert [name for name in own if name not in vars(Dice)] == []


def test_dice_are_a_random_and_stay_so_when_copied() -> None:
    recording = ReadingBackend()
    dice = Dice(recording, seed=3)
    assert isinstance(dice, random.Random)
    for twin in (copy.copy(dice), copy.deepcopy(dice)):
        assert twin.random() == random.Random(3).random()
    assert dice.random() == random.Random(3).random()
    assert recording.names == ["random.random"] * 3


def test_dice_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="belong to a session"):
        pickle.dumps(Dice(ReadingBackend()))


def test_seed_and_state_reach_the_real_dice() -> None:
    dice, plain = Dice(ReadingBackend()), random.Random(5)
    dice.seed(5)
    assert dice.random() == plain.random()
    state = dice.getstate()
    assert state == plain.getstate()
    first = dice.random()
    dice.setstate(state)
    assert dice.random() == first


def test_elements_that_have_no_json_form_can_be_drawn() -> None:
    recording = ReadingBackend()
    items = [object(), object(), object()]
    chosen = Dice(recording).choice(items)
    assert Dice(recording.rerun()).choice(items) is chosen
    assert recording.values == [items.index(chosen)]


@given(st.integers(0, 50), st.integers(0, 9))
def test_a_shuffle_is_pythons_for_any_length(count: int, seed: int) -> None:
    plain = shuffled(random.Random(seed), list(range(count)))
    assert shuffled(Dice(ReadingBackend(), seed), list(range(count))) == plain
    assert shuffled(Dice(ReadingBackend(), seed), deque(range(count))) == deque(plain)


BAD: list[Callable[[random.Random], Any]] = [
    lambda dice: dice.choice([]),
    lambda dice: dice.choices([]),
    lambda dice: dice.choices([1], [1], cum_weights=[1]),
    lambda dice: dice.sample([1], 2),
    lambda dice: dice.sample({1, 2}, 1),  # type: ignore[arg-type]
    lambda dice: dice.shuffle(5),  # type: ignore[arg-type]
    lambda dice: dice.randint(2, 1),
    lambda dice: dice.uniform("a", 1),  # type: ignore[arg-type]
    lambda dice: dice.expovariate(0),
    lambda dice: dice.random(1),  # type: ignore[call-arg]
]


@pytest.mark.parametrize("backend", [ReadingBackend(), ReadingBackend([])])
@pytest.mark.parametrize("draw", BAD)
def test_what_pythons_dice_refuse_is_refused_alike_and_not_read(
    backend: ReadingBackend, draw: Callable[[random.Random], Any]
) -> None:
    with pytest.raises(Exception) as real:  # noqa: PT011 - whatever Python raises
        draw(random.Random())
    with pytest.raises(real.type):
        draw(Dice(backend))
    assert backend.reads == []


FUNCTIONS: list[tuple[Callable[[ReadingBackend], Any], str, type]] = [
    (uuid4, "uuid.uuid4", uuid.UUID),
    (token_bytes, "secrets.token_bytes", bytes),
    (lambda backend: token_hex(backend, 4), "secrets.token_hex(4)", str),
    (lambda backend: token_urlsafe(backend, 4), "secrets.token_urlsafe(4)", str),
    (lambda backend: randbelow(backend, 10), "secrets.randbelow(10)", int),
    (lambda backend: urandom(backend, 8), "os.urandom(8)", bytes),
]


@pytest.mark.parametrize(("draw", "name", "kind"), FUNCTIONS)
def test_random_bytes_are_reads_too(
    draw: Callable[[ReadingBackend], Any], name: str, kind: type
) -> None:
    recording = ReadingBackend()
    value = draw(recording)
    assert type(value) is kind
    assert recording.names == [name]
    assert draw(recording.rerun()) == value


def test_the_draws_of_each_module_are_its_functions() -> None:
    for module in (uuid, secrets, os):
        known = [name for name in names_in(module.__name__) if hasattr(module, name)]
        assert known[:2] == list(names_in(module.__name__))[:2]


def test_a_choice_of_another_module_is_named_after_it() -> None:
    recording = ReadingBackend()
    Dealer(recording, "secrets").draw("choice", secrets.choice, ("ab",), {})
    assert recording.names == ["secrets.choice(len=2)"]


def test_a_changed_order_of_draws_shows_by_name() -> None:
    recording = ReadingBackend()
    dice = Dice(recording)
    dice.uniform(0.1, 0.5)
    dice.uniform(0.2, 0.5)
    again = Dice(recording.rerun())
    with pytest.raises(AssertionError, match=r"random\.uniform\(0\.2, 0\.5\) was read"):
        again.uniform(0.2, 0.5)
