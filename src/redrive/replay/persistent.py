"""Two collections that grow without changing what was there: states of a replay share them.

Knows nothing of replays. A value, once made, never changes; adding gives a new one that shares
almost all of the old, so that a replay of 50,000 decisions can keep every state frozen.
"""

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

_T = TypeVar("_T")
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


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """Counts per key, as layers of growing size, the newest first. Adding costs O(log n)."""

    layers: tuple[Mapping[int, int], ...] = ()

    def get(self, key: int) -> int:
        """Give a key's count; 0 where it was never set."""
        for layer in self.layers:
            if key in layer:
                return layer[key]
        return 0

    def set(self, key: int, count: int) -> "Cursor":
        """Give the counts with one of them set."""
        newest: dict[int, int] = {key: count}
        layers = self.layers
        while layers and len(layers[0]) <= len(newest):
            newest = {**layers[0], **newest}
            layers = layers[1:]
        return Cursor((newest, *layers))

    def merged(self) -> dict[int, int]:
        """Give every count as one new mapping."""
        counts: dict[int, int] = {}
        for layer in reversed(self.layers):
            counts.update(layer)
        return counts
