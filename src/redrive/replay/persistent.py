"""Collections that grow without changing what was there: states of a replay share them.

Knows nothing of replays. A value, once made, never changes; adding gives a new one that shares
almost all of the old, so that a replay of 50,000 decisions can keep every state frozen.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Generic, Self, TypeVar

import msgspec

_T = TypeVar("_T")
_K = TypeVar("_K")
_V = TypeVar("_V")
_BLOCK = 64


class Log(msgspec.Struct, Generic[_T], frozen=True, gc=False):
    """A sequence that only grows: full blocks of 64, and a tail. Adding costs O(1) in practice."""

    blocks: tuple[tuple[_T, ...], ...] = ()
    tail: tuple[_T, ...] = ()

    def add(self, item: _T) -> "Log[_T]":
        """Give the sequence with one more item at its end."""
        tail = (*self.tail, item)
        if len(tail) < _BLOCK:
            return Log(self.blocks, tail)
        return Log((*self.blocks, tail))

    def __iter__(self) -> Iterator[_T]:
        """Yield the items, oldest first."""
        for block in self.blocks:
            yield from block
        yield from self.tail

    def __len__(self) -> int:
        """Count the items."""
        return len(self.blocks) * _BLOCK + len(self.tail)


class Table(msgspec.Struct, Generic[_K, _V], frozen=True, gc=False):
    """A mapping as layers of growing size, the newest first. Adding costs O(log n)."""

    layers: tuple[Mapping[_K, _V], ...] = ()

    def find(self, key: _K) -> _V | None:
        """Give a key's value; `None` where it was never set."""
        for layer in self.layers:
            if key in layer:
                return layer[key]
        return None

    def set(self, key: _K, value: _V) -> Self:
        """Give the mapping with one value set."""
        newest: dict[_K, _V] = {key: value}
        layers = self.layers
        while layers and len(layers[0]) <= len(newest):
            newest = {**layers[0], **newest}
            layers = layers[1:]
        # Read-only, since policies are shown them, and all paths share them.
        return type(self)((MappingProxyType(newest), *layers))

    def merged(self) -> dict[_K, _V]:
        """Give every value as one new mapping, keys in the order in which they were first set."""
        values: dict[_K, _V] = {}
        for layer in reversed(self.layers):
            values.update(layer)
        return values


class Cursor(Table[int, int], frozen=True, gc=False):
    """Counts per key."""

    def get(self, key: int) -> int:
        """Give a key's count; 0 where it was never set."""
        return self.find(key) or 0
