"""Writes counts with their noun: `1 step`, `2 steps`, `0 branches`."""


def counted(count: int, one: str, many: str | None = None) -> str:
    """Write a count; `many` is the noun for all but 1, by default `one` with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"
