"""Remembers secrets that were found, to find them again where nothing around tells of them.

Knows secrets as texts. Must not know rules. A password that stands behind its name in one event and
alone in the next is found there too, and its marks name the rule that found it first.
"""

import json
import re
from collections.abc import Iterator, Sequence

from redrive.reports.redact_rules import Span, entropy

__all__ = ["KnownSecrets"]

_LEAST_CHARS = 8
_MOST_CHARS = 16384
_LEAST_SHAPED_CHARS = 12
_LEAST_LINE_CHARS = 40  # of a private key, whose lines stand alone where its frame was cut away
_LEAST_ENTROPY = 2.5  # as `looks_random` asks
_WORDS = re.compile(r"[A-Za-z]+\d{0,2}(?:[-_./: ][A-Za-z]*\d{0,2})*")
# Rules that know a secret by what stands before it, not by what it is like.
_BY_PLACE = frozenset(
    {"field", "phrase", "maybe", "authorization", "cookie", "login", "userinfo", "basic", "bearer"}
)
# Searching one text after another is faster than an alternation, up to about so many.
_FEW = 12
# What spells a character that could as well stand plain.
_SPELLED = re.compile(rb"\\u00|\\x|\\/|%[2-7]")


class KnownSecrets:
    """The secrets of one store or session, each with the rule that found it first.

    Attributes:
        secrets: secret → rule, of those that are distinct enough to be searched for.
    """

    def __init__(self) -> None:
        self.secrets: dict[str, str] = {}
        self._rules: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._whole: re.Pattern[bytes] | None = None
        self._needles: list[bytes] = []

    def learn(self, rule: str, secret: str) -> str:
        """Take a secret that a rule found; give the rule that found it first."""
        first = self._rules.setdefault(secret, rule)
        for text in _pieces(secret):
            if text not in self.secrets and _is_distinct(text, rule):
                self.secrets[text] = first
                self._pattern = self._whole = None
                self._needles.append(_needle(text))
        return first

    def needles_in(self, data: bytes) -> list[bytes]:
        """List pieces of known secrets that bytes hold, for `may_be_in` to look for in a part."""
        return [needle for needle in self._needles if needle in data]

    def may_be_in(self, data: bytes, needles: Sequence[bytes]) -> bool:
        """Say whether JSON or text could hold a known secret, spelled in whatever way.

        Args:
            data: what could hold one.
            needles: those that it can hold at most; see `needles_in`.
        """
        if not self.secrets:
            return False
        if _SPELLED.search(data) is not None:
            return True
        return any(needle in data for needle in needles)

    def is_in(self, data: bytes) -> bool:
        """Say whether JSON or text holds one of them, spelled plainly or as JSON spells it."""
        if self._whole is None:
            spelled = (json.dumps(secret, ensure_ascii=False)[1:-1] for secret in self.secrets)
            self._whole = re.compile("|".join(map(re.escape, spelled)).encode())
        return bool(self.secrets) and self._whole.search(data) is not None

    def find(self, text: str) -> Iterator[Span]:
        """Yield where they stand, spelled plainly."""
        if len(self.secrets) <= _FEW:
            for secret, rule in self.secrets.items():
                place = text.find(secret)
                while place >= 0:
                    yield Span(place, place + len(secret), rule, secret)
                    place = text.find(secret, place + len(secret))
            return
        if self._pattern is None:
            longest_first = sorted(self.secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        for found in self._pattern.finditer(text):
            yield Span(*found.span(), self.secrets[found[0]], found[0])


def _needle(text: str) -> bytes:
    """Give the longest piece of a text that JSON and URLs write as it stands."""
    runs: list[str] = re.findall(r"[A-Za-z0-9_.-]+", text)
    return max(runs, key=len).encode()


def _pieces(secret: str) -> Iterator[str]:
    if "\n" not in secret:
        yield secret
        return
    for line in secret.splitlines():
        if len(line) >= _LEAST_LINE_CHARS:
            yield line


def _is_distinct(text: str, rule: str) -> bool:
    """Say whether a text stands for nothing else: neither a word nor a number, and not short."""
    if not _LEAST_CHARS <= len(text) <= _MOST_CHARS or any(char.isspace() for char in text):
        return False
    if rule not in _BY_PLACE and len(text) >= _LEAST_SHAPED_CHARS:
        return True  # its prefix tells what it is
    is_mixed = any(char.isdigit() for char in text) and any(char.isalpha() for char in text)
    return is_mixed and entropy(text) >= _LEAST_ENTROPY and _WORDS.fullmatch(text) is None
