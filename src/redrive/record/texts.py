"""Where two texts part. Knows sequences; must not know what they mean."""

from typing import TypeVar

_Text = TypeVar("_Text", str, bytes)


def common_prefix(one: _Text, other: _Text) -> int:
    """Count the characters (or bytes) that two texts begin with alike.

    Cost: O(n) in slice comparisons, O(log n) of them.
    """
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if other.startswith(one[low:middle], low):
            low = middle
        else:
            high = middle - 1
    return low


def common_ends(one: _Text, other: _Text) -> tuple[int, int]:
    """Count the characters (or bytes) shared at the beginning, and of the rest at the end."""
    prefix = common_prefix(one, other)
    return prefix, common_prefix(one[prefix:][::-1], other[prefix:][::-1])
