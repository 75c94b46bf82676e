"""Gives a text as its escapes spell it, with the places where each character really stands.

Knows JSON escapes and percent-encoding. Must not know what is searched for.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["View", "views_of"]

# An escape that hides a printable character of ASCII; line ends need no view of their own.
_SPELLED_JSON = re.compile(r"\\(?:u00[2-7]|x[2-7]|/)")
_SPELLED_URL = re.compile(r"%[2-7][0-9A-Fa-f]")
_JSON = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf\"'\\/]))")
_URL = re.compile(r"%([2-7][0-9A-Fa-f]|0[9aAdD])")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_MAX_NESTING = 4


@dataclass(frozen=True, slots=True)
class View:
    """A text with one layer of escapes decoded.

    Attributes:
        text: as it reads.
        ends: places behind each decoded escape in `text`, ascending.
        sources: the same places in the text that it is a view of.
        under: the view that it is a view of; absent for the text itself.
    """

    text: str
    ends: Sequence[int] = ()
    sources: Sequence[int] = ()
    under: "View | None" = None

    def place(self, place: int) -> int:
        """Give the place in the text of a place in the view. Cost: O(log n) per layer."""
        number = bisect_right(self.ends, place) - 1
        if number >= 0:
            place += self.sources[number] - self.ends[number]
        return place if self.under is None else self.under.place(place)


def views_of(text: str) -> Iterator[View]:
    """Yield the text with its escapes decoded, layer by layer, at most four deep.

    Cost: O(n) per layer; none where nothing is escaped.
    """
    view = View(text)
    for _ in range(_MAX_NESTING):
        if "\\" in view.text and _SPELLED_JSON.search(view.text):
            view = _decode(view, _JSON)
        elif "%" in view.text and _SPELLED_URL.search(view.text):
            view = _decode(view, _URL)
        else:
            return
        yield view


def _decode(view: View, pattern: "re.Pattern[str]") -> View:
    parts: list[str] = []
    ends: list[int] = []
    sources: list[int] = []
    place = length = 0
    for escape in pattern.finditer(view.text):
        parts += [view.text[place : escape.start()], _char_of(escape)]
        length += escape.start() - place + 1
        place = escape.end()
        ends.append(length)
        sources.append(place)
    parts.append(view.text[place:])
    return View("".join(parts), ends, sources, view)


def _char_of(escape: "re.Match[str]") -> str:
    code = next(group for group in escape.groups() if group)
    if len(code) == 1:
        return _CONTROLS.get(code, code)
    return chr(int(code, 16))
