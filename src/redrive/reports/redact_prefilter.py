"""Says cheaply where JSON could hold a secret, so that the rules read little of a long record.

Knows what every secret that the rules find has near it. Must not know what is a secret: a suspicion
costs time, a missing one leaks.

Cost: measured, one substring search reads about a gigabyte a second and an alternation of a hundred
prefixes a fortieth of that. So long runs of word characters are found first, by two searches, and
prefixes are looked for in those alone; names are found by ten of their stems.
"""

import re
from collections.abc import Iterator, Sequence

from redrive.reports.redact_fields import NAME_CHARS
from redrive.reports.redact_names import Level, is_placeholder, level_of
from redrive.reports.redact_rules import SHAPES

__all__ = ["find_prefixes", "find_suspects"]

_WORD = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.")
_RUNS = bytes(0x61 if code in _WORD else 0x20 for code in range(256))
# Shorter than every secret that is not cut off; of a cut one, at most eight characters are left.
_RUN = b"a" * 11
_AROUND_CHARS = 60
_AHEAD_CHARS = 240

_STEMS = (
    b"pass",
    b"pwd",
    b"secret",
    b"token",
    b"key",
    b"auth",
    b"cookie",
    b"bearer",
    b"basic ",
    b"sig=",
)
_NAME = re.compile(r"[A-Za-z0-9_.-]*+")
_ANYWHERE = (b"PRIVATE", b"\\u002", b"\\u003", b"\\u004",
             b"\\u005", b"\\u006", b"\\u007", b"\\/")  # fmt: skip
_PERCENT = re.compile(rb"%[2-7][0-9A-Fa-f]")
_ESCAPE_X = re.compile(rb"\\x[2-7]")
_LOGIN = re.compile(rb"-u(?:ser)?[\s=\"\\]|-user\b")
_USERINFO = re.compile(
    rb"://(?!\[)(?:[^\s/?#\"'`<>\\@:]*+)(?:@|:(?!\d{0,5}(?:[\s/?#\"'`<>\\),.;\]]|\Z)))"
)
_VALUE = re.compile(
    r"(?P<quoted>\\*[\"'`])?\]?[ \t]{0,8}"
    r"(?:(?:=>|:=|[=!]==?|->|[=:]|,)\s{0,8}|\s{1,8}(?:(?:is|was|of|to)[\s:]{1,4})?|%20|\+)"
    r"(?:\\*[\"'`]value\\*[\"'`]\s{0,4}:\s{0,4})?"
    r"(?:(?:str|string|String|&str)[ \t]?=[ \t]?)?(?:Bearer|Basic|Token)?\s{0,4}"
    r"(?P<opening>[\[{]|[rbuf]{0,2}\\*[\"'`])?(?P<value>[^\s\"'`\\]*)"
)
_CALL = re.compile(r"[A-Za-z_.]+\d?[(\[.]?")


def _trie(needles: Sequence[str]) -> str:
    """Write needles as a pattern that shares their beginnings."""
    heads: dict[str, list[str]] = {}
    for needle in sorted(set(needles)):
        heads.setdefault(needle[0], []).append(needle[1:])
    parts = [
        re.escape(head) + ("" if "" in tails else _trie(tails)) for head, tails in heads.items()
    ]
    return parts[0] if len(parts) == 1 else f"(?:{'|'.join(parts)})"


def _beginnings() -> Iterator[str]:
    """Yield what of each prefix stands within a run of word characters."""
    for shape in SHAPES:
        words = re.findall(r"[A-Za-z0-9_.-]+", shape.needle)
        if shape.needle[:1] not in "/:1" and words and len(words[0]) > 1:
            yield words[0].lstrip(".")


_PREFIX = re.compile(rf"(?::AA|(?:[^A-Za-z0-9]|\\[nrt]){_trie(tuple(_beginnings()))})".encode())


def find_suspects(data: bytes) -> Iterator[int]:
    """Yield places in JSON texts near which a secret of no known prefix could be.

    They are in no order, and some are yielded twice. Where neither this nor `find_prefixes` yields
    any, the rules find nothing in any of the texts.
    """
    yield from _at_names(data)
    for needle in _ANYWHERE:
        yield from _places(data, needle)
    if b"%" in data:
        yield from (found.start() for found in _PERCENT.finditer(data))
    if b"\\x" in data:
        yield from (found.start() for found in _ESCAPE_X.finditer(data))
    for place in _places(data, b"://"):
        if _USERINFO.match(data, place):
            yield place
    for place in _places(data, b"-u"):
        if _LOGIN.match(data, place):
            yield place
    for place in _places(data, b"mysql"):
        if b" -p" in data[place : place + 160]:
            yield place


def _places(data: bytes, needle: bytes) -> Iterator[int]:
    place = data.find(needle)
    while place >= 0:
        yield place
        place = data.find(needle, place + len(needle))


def find_prefixes(data: bytes) -> Iterator[int]:
    """Yield places in JSON texts where a known prefix begins a long run of word characters.

    All runs are asked at once, and each only where one of them holds a prefix.
    """
    for needle in (b"/webhooks/", b"Q~", b"1//0"):
        yield from _places(data, needle)
    words = b"  " + data.translate(_RUNS) + b" "
    padded = b"  " + data
    runs: list[bytes] = []
    starts: list[int] = []
    place = words.find(_RUN)
    while place >= 0:
        end = words.find(b" ", place)
        runs.append(padded[place - 2 : end])
        starts.append(place - 2)
        place = words.find(_RUN, end)
    if _PREFIX.search(b"\n".join(runs)) is None:
        return
    for start, run in zip(starts, runs, strict=True):
        if _PREFIX.search(run):
            yield start


def _at_names(data: bytes) -> Iterator[int]:
    low = data.lower()
    for stem in _STEMS:
        for place in _places(low, stem):
            if _is_name(data, place, stem):
                yield place


def _is_name(data: bytes, place: int, stem: bytes) -> bool:
    """Say whether a field that could be a secret's begins, or `Bearer` and a token follow."""
    begin = max(0, place - _AROUND_CHARS)
    around = data[begin : place + _AHEAD_CHARS].decode("latin-1")
    at = place - begin
    after = _NAME.match(around, at)
    start = len(around[:at].rstrip(NAME_CHARS))
    if start < at and around[start - 1 : start] == "\\" and around[start] in "nrt":
        start += 1
    end = at if after is None else after.end()
    level = Level.SURE if stem[:1] == b"b" else level_of(around[start:end].rstrip("."))
    if level is None:
        return False
    found = _VALUE.match(around, end)
    if found is not None and around[start:end].endswith("sshpass"):
        return True
    return found is not None and _may_be_secret(found, level, around[start:end])


def _may_be_secret(found: "re.Match[str]", level: Level, name: str) -> bool:
    value, opening = found["value"], found["opening"] or ""
    if opening[:1] in ("[", "{") or level in (Level.PHRASE, Level.COOKIE, Level.HEADER):
        return True
    if len(value) < 2 and not opening:
        return False
    if level is Level.MAYBE:
        return len(value) > 4
    is_spaced = found.string[found.start() : found.start("value")].strip("\\nrt") != "="
    if is_spaced and not opening and name.islower() and name[:1] != "-" and "_" in value:
        return _CALL.fullmatch(value) is None  # a name in source code
    is_torn = bool(opening) and found.string[found.end() : found.end() + 1].isspace()
    return is_torn or not is_placeholder(value)
