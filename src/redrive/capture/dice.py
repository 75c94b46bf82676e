"""The dice of a session: each draw is recorded, or served from the record.

Knows the methods of `random.Random` and the functions of `uuid`, `secrets` and `os` that give
random bytes, and the name that each draw has in the record. Must not know who asks.

A draw is the outermost call: `uniform(0.1, 0.5)` is one read, whatever it draws within. What picks
from a sequence is recorded as a place in it, so that its elements need no JSON form.

Source: DESIGN.md §4 "clock and PRNG".
"""

import copy
import os
import random
import secrets
import uuid
from collections.abc import Callable, Iterable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, NoReturn, Self

from redrive.capture.ports import Backend
from redrive.capture.values import (
    HEX,
    INTEGER,
    NUMBER,
    STATE,
    TEXT,
    UUID,
    Form,
    index_below,
    indices_below,
    order_of,
    show_argument,
    show_call,
    take_draw,
)

_PLAIN: Final = {
    "random": NUMBER,
    "uniform": NUMBER,
    "triangular": NUMBER,
    "randint": INTEGER,
    "randrange": INTEGER,
    "getrandbits": INTEGER,
    "randbytes": HEX,
    "gauss": NUMBER,
    "normalvariate": NUMBER,
    "lognormvariate": NUMBER,
    "expovariate": NUMBER,
    "vonmisesvariate": NUMBER,
    "gammavariate": NUMBER,
    "betavariate": NUMBER,
    "paretovariate": NUMBER,
    "weibullvariate": NUMBER,
    "binomialvariate": INTEGER,
    "getstate": STATE,
}
_FUNCTIONS: Final = {
    "uuid": {"uuid1": UUID, "uuid4": UUID, "uuid6": UUID, "uuid7": UUID},
    "secrets": {
        "token_bytes": HEX,
        "token_hex": TEXT,
        "token_urlsafe": TEXT,
        "randbelow": INTEGER,
        "randbits": INTEGER,
    },
    "os": {"urandom": HEX, "getrandom": HEX},
}
"""By module: functions that draw, and what they give."""


class Dealer(NamedTuple):
    """Makes draws of one module or class; `prefix` stands before the method in a read's name."""

    backend: Backend
    prefix: str

    def draw(
        self, name: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make one draw.

        Args:
            name: the method or function, one of `names_in(prefix)`.
            real: the method itself, bound to its own dice.
            args: as its caller gave them.
            kwargs: as its caller gave them.

        Raises:
            Exception: what `real` raises for these arguments, in a recording and in a rerun.
        """
        pick = _PICKS.get(name)
        if pick is not None:
            return pick(self, real, *args, **kwargs)
        shown = show_call(f"{self.prefix}.{name}", args, kwargs)
        return self.take(shown, lambda: real(*args, **kwargs), self._form(name))

    def take(self, shown: str, real: Callable[[], Any], form: Form) -> Any:
        """Make the draw that `real` makes, under the name `shown`."""
        return take_draw(self.backend, shown, real, form)

    def _form(self, name: str) -> Form:
        return _FUNCTIONS.get(self.prefix, _PLAIN)[name]


def names_in(prefix: str) -> tuple[str, ...]:
    """List the draws of `random` (and of its classes), `uuid`, `secrets` or `os`, in any Python."""
    if prefix == "secrets":
        return (*_FUNCTIONS[prefix], "choice")
    if prefix in _FUNCTIONS:
        return tuple(_FUNCTIONS[prefix])
    return (*_PLAIN, *_PICKS)


def _choice(dealer: Dealer, real: Callable[..., int], seq: Sequence[Any]) -> Any:
    count = len(seq)
    shown = f"{dealer.prefix}.choice(len={count})"
    return seq[dealer.take(shown, lambda: real(range(count)), index_below(count))]


def _choices(
    dealer: Dealer,
    real: Callable[..., list[int]],
    population: Sequence[Any],
    weights: Iterable[float] | None = None,
    *,
    cum_weights: Iterable[float] | None = None,
    k: int = 1,
) -> list[Any]:
    count = len(population)
    given = {
        # Kept as lists: an iterator would be used up by the first of two calls.
        name: value if value is None else list(value)
        for name, value in (("weights", weights), ("cum_weights", cum_weights))
    }
    shown = "".join(
        f", {key}={show_argument(value)}" for key, value in given.items() if value is not None
    )
    places = dealer.take(
        f"{dealer.prefix}.choices(len={count}{shown}, k={show_argument(k)})",
        lambda: real(range(count), **given, k=k),
        indices_below(count),
    )
    return [population[place] for place in places]


def _sample(
    dealer: Dealer,
    real: Callable[..., list[int]],
    population: Sequence[Any],
    k: int,
    *,
    counts: Iterable[int] | None = None,
) -> list[Any]:
    if not isinstance(population, Sequence):
        # Raises what Python's own says of it.
        return real(population, k)
    count = len(population)
    copies = None if counts is None else list(counts)
    shown = "" if copies is None else f", counts={show_argument(copies)}"
    places = dealer.take(
        f"{dealer.prefix}.sample(len={count}, k={show_argument(k)}{shown})",
        lambda: real(range(count), k, counts=copies),
        indices_below(count),
    )
    return [population[place] for place in places]


def _shuffle(dealer: Dealer, real: Callable[..., None], x: MutableSequence[Any]) -> None:
    count = len(x)

    def permute() -> list[int]:
        order = list(range(count))
        real(order)
        return order

    shown = f"{dealer.prefix}.shuffle(len={count})"
    order = dealer.take(shown, permute, order_of(count))
    for place, value in enumerate([x[index] for index in order]):
        x[place] = value


_PICKS: Final[dict[str, Callable[..., Any]]] = {
    "choice": _choice,
    "choices": _choices,
    "sample": _sample,
    "shuffle": _shuffle,
}


class Dice(random.Random):
    """A `random.Random` whose every draw is in the record; in a rerun it gives what was recorded.

    It draws from dice of its own, so that seeding it, or not, has the effect that it always has.

    Args:
        backend: who records or serves.
        seed: as `random.Random` takes it; `None` seeds from the operating system.

    A draw is named with its arguments, `random.uniform(0.1, 0.5)`; a sequence is named by its
    length, `random.choice(len=3)`.
    """

    _real: random.Random
    _dealer: Dealer

    def __new__(cls, backend: Backend, seed: Any = None) -> Self:  # noqa: ARG004 - __init__'s
        """Make dice whose inherited state is never drawn from."""
        return super().__new__(cls)

    def __init__(self, backend: Backend, seed: Any = None) -> None:
        self._real = random.Random(seed)  # noqa: S311 - dice, as Python's
        self._dealer = Dealer(backend, "random")

    def seed(self, a: Any = None, version: int = 2) -> None:
        """Seed the real dice. It is no read."""
        self._real.seed(a, version)

    def setstate(self, state: tuple[Any, ...]) -> None:
        """Set the real dice's state. It is no read."""
        self._real.setstate(state)

    def __copy__(self) -> "Dice":
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Dice":
        """Make dice of the same state, which record to the same session."""
        twin = Dice(self._dealer.backend)
        twin._real = copy.deepcopy(self._real, memo)
        return twin

    def __reduce__(self) -> NoReturn:
        """Refuse: a session cannot be pickled."""
        raise TypeError("dice that belong to a session cannot be pickled")


def _make_method(name: str) -> Callable[..., Any]:
    def method(self: Dice, /, *args: Any, **kwargs: Any) -> Any:
        return self._dealer.draw(name, getattr(self._real, name), args, kwargs)

    method.__name__, method.__qualname__ = name, f"Dice.{name}"
    method.__doc__ = f"Draw as `random.Random.{name}` does, and record it."
    return method


for _name in names_in("random"):
    # Of Python 3.12: binomialvariate.
    if hasattr(random.Random, _name):
        setattr(Dice, _name, _make_method(_name))


def uuid4(backend: Backend) -> uuid.UUID:
    """Draw a random UUID."""
    found: uuid.UUID = Dealer(backend, "uuid").draw("uuid4", uuid.uuid4, (), {})
    return found


def token_bytes(backend: Backend, nbytes: int | None = None) -> bytes:
    """Draw random bytes, as `secrets.token_bytes`."""
    found: bytes = _secret(backend, "token_bytes", nbytes)
    return found


def token_hex(backend: Backend, nbytes: int | None = None) -> str:
    """Draw random bytes as hexadecimal text, as `secrets.token_hex`."""
    found: str = _secret(backend, "token_hex", nbytes)
    return found


def token_urlsafe(backend: Backend, nbytes: int | None = None) -> str:
    """Draw random bytes as URL-safe text, as `secrets.token_urlsafe`."""
    found: str = _secret(backend, "token_urlsafe", nbytes)
    return found


def randbelow(backend: Backend, exclusive_upper_bound: int) -> int:
    """Draw an integer from 0 up, below a bound, as `secrets.randbelow`."""
    found: int = _secret(backend, "randbelow", exclusive_upper_bound)
    return found


def urandom(backend: Backend, size: int) -> bytes:
    """Draw random bytes of the operating system, as `os.urandom`."""
    found: bytes = Dealer(backend, "os").draw("urandom", os.urandom, (size,), {})
    return found


def _secret(backend: Backend, name: str, argument: int | None) -> Any:
    args = () if argument is None else (argument,)
    return Dealer(backend, "secrets").draw(name, getattr(secrets, name), args, {})
