"""Finds secrets in a text by what stands before them: a field's name, a header, a scheme, a flag.

Knows texts of any kind: dumps of environments, source code, JSON within strings, URLs, headers,
command lines. Must not know documents as values.
"""

import re
from collections.abc import Iterator

from redrive.reports.redact_names import (
    Level,
    is_pair_in_base64,
    is_placeholder,
    judge,
    level_of,
    looks_random,
    looks_torn,
)
from redrive.reports.redact_rules import BETWEEN, Span, is_cut_off

__all__ = [
    "NAME_CHARS",
    "NEEDLES",
    "find_fields",
    "find_logins",
    "find_urls",
    "lower_of",
    "name_around",
]

# Parts of names, lower case; searched as plain text before any pattern is asked.
NEEDLES = ("pass", "pwd", "secret", "token", "key", "auth", "cookie", "bearer", "basic ", "sig=")
NAME_CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-."
_NAME_MAX = 60
_NAME_TAIL = re.compile(r"[A-Za-z0-9_.-]{0,60}")
_ASCII_LOWER = {code: code + 32 for code in range(0x41, 0x5B)}

_QUOTE = r"\\*+[\"'`]"
_SEPARATOR = re.compile(
    rf"(?:(?P<closing>{_QUOTE})?\]?[ \t]{{0,8}}(?P<sign>=>|:=|===?|!=|->|[=:])"
    r"[ \t]{0,8}"
    rf"|(?P<member>{_QUOTE},\s{{0,8}}{_QUOTE}value{_QUOTE}\s{{0,4}}:\s{{0,4}}(?={_QUOTE}))"
    rf"|(?P<next>{_QUOTE},\s{{0,8}}(?={_QUOTE}))"
    r"|(?P<space>[ \t]{1,8}(?:(?:is|was|of|to)[ \t:]{1,4})?))"
    rf"(?P<type>(?:str|string|String|&str)[ \t]?=[ \t]?)?"
    rf"(?P<call>[A-Za-z]{{0,12}}\()?(?P<prefix>[rbuf]{{0,2}})(?P<quote>{_QUOTE})?"
)
_BARE = re.compile(r"(?:[^\s\"'`<>;&|\\…]|\\(?![nrt\"'`\\u]))*+")
_LINE = re.compile(r"(?:[^\n\r\"'`{}\\…]|\\(?![nrt\"'`\\u]))*+")
_SCHEME = re.compile(
    r"\s*(?:Bearer|Basic|Token|ApiKey|Digest|Negotiate|AWS4-HMAC-SHA256)\b[ \t]+", re.I
)
_TOKEN = re.compile(r"(?:[ \t]|%20|\+|\\u0020|:){1,4}([A-Za-z0-9._~+/=%-]++)")
_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*[(\[]")
_TORN = re.compile(r"(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9A-Fa-f]?)\Z")
_JUDGED_CHARS = 300
_PAIR = re.compile(r"\s*[^\s=;]+=[^\s=]")
_QUOTED_MAX = 16384
_TRAILING = ",.)]}:!?"
_ENV_BEFORE = re.compile(
    r"(?:^|[\n\r;&|]|\\[nr]|\b(?:export|set|env|ENV|ARG)[ \t]|-e[ \t]?|[ \t])[ \t]*[\"']?$"
)


def lower_of(text: str) -> str:
    """Give a text in lower case, character by character, so that places stay the same."""
    low = text.lower()
    return low if len(low) == len(text) else text.translate(_ASCII_LOWER)


def name_around(text: str, place: int) -> tuple[int, int]:
    """Give begin and end of the name that holds this place; at most 60 characters either way."""
    begin = max(0, place - _NAME_MAX)
    start = begin + len(text[begin:place].rstrip(NAME_CHARS))
    if start < place and text[start - 1 : start] == "\\" and text[start] in "nrt":
        start += 1  # the letter of an escape
    tail = _NAME_TAIL.match(text, place)
    return start, place if tail is None else tail.end()


def find_fields(text: str, *, is_whole: bool) -> Iterator[Span]:
    """Yield every value that its name, header or scheme makes a secret; spans may overlap.

    Cost: one substring search per needle, and at most 16 KiB per name that is found.
    """
    low = lower_of(text)
    for needle in NEEDLES:
        place = low.find(needle)
        while place >= 0:
            start, end = name_around(text, place)
            span = _field(text, start, end, is_whole=is_whole)
            if span is not None:
                yield span
            after = end if span is None else span.end
            place = low.find(needle, max(after, place + len(needle)))


def _field(text: str, start: int, end: int, *, is_whole: bool) -> Span | None:
    name = text[start:end].rstrip(".")
    if name[-6:].lower() == "bearer" or name[-5:].lower() == "basic":
        span = _scheme(text, end, is_bearer=name[-1] in "rR")
        if span is not None:
            return span
    level = level_of(name)
    before = text[start - 1 : start]
    if level is None or (name.lower() == "sig" and before not in ("?", "&")):
        return None
    if text[max(0, start - 2) : start] == "::":  # the name of a type
        return None
    found = _SEPARATOR.match(text, end)
    if found is None:
        return None
    return _value(text, start, level, found, is_whole=is_whole)


def _scheme(text: str, end: int, *, is_bearer: bool) -> Span | None:
    """Find the token behind `Bearer` or `Basic`; neither is followed by a word of a sentence."""
    token = _TOKEN.match(text, end)
    if token is None:
        return None
    value = token[1].rstrip(".")
    is_secret = looks_random(value, least=8) or value.count(".") == 2 or len(value) > 30
    if not is_bearer:
        is_secret = is_pair_in_base64(value)
    if not is_secret or is_placeholder(value) or "xxxxxxxx" in value:
        return None
    rule = "bearer" if is_bearer else "basic"
    return Span(token.start(1), token.start(1) + len(value), rule, value)


def _value(
    text: str, start: int, level: Level, found: "re.Match[str]", *, is_whole: bool
) -> Span | None:
    begin, quote = found.end(), found["quote"]
    if quote is None:
        begin = found.start("call") if found["call"] else found.start("prefix")
        end, is_closed = _bare_end(text, begin, level, found), False
    else:
        end, is_closed = _quoted_end(text, begin, quote)
    begin, end = _inner(text, begin, end, level)
    value = text[begin:end]
    if len(value) < 4:
        return None
    is_cut = not is_closed and is_cut_off(text, end, is_whole=is_whole)
    if not _is_secret(text, start, value, level, found, is_closed=is_closed, is_cut=is_cut):
        return None
    if not is_closed:
        end = _whole_end(text, begin, end, is_line=_is_line(level, found))
    rule = level.value if level is not Level.SURE else "field"
    return Span(begin, end, rule, text[begin:end])


def _inner(text: str, begin: int, end: int, level: Level) -> tuple[int, int]:
    """Leave a scheme's name in front of a token readable."""
    if level is Level.HEADER:
        scheme = _SCHEME.match(text, begin, end)
        begin = begin if scheme is None else scheme.end()
    return begin, end


def _is_secret(
    text: str,
    start: int,
    value: str,
    level: Level,
    found: "re.Match[str]",
    *,
    is_closed: bool,
    is_cut: bool,
) -> bool:
    if found["space"] is not None or found["next"] is not None:
        is_flag = text[start : start + 2] == "--" or text[start : start + 1] == "-"
        if is_flag and found["space"] != "" and level is not Level.MAYBE:
            return not is_placeholder(value) and (value[:1] != "-" or looks_random(value))
        least = 6 if level is not Level.MAYBE or is_flag else 16
        if is_cut:
            return looks_torn(value)
        return looks_random(value, least=least) and not (value[:1] == "-" and found["space"])
    if level is Level.COOKIE and (_PAIR.match(value) is None or is_placeholder(value)):
        return False
    is_assigned = _is_setting(text, start, found, value)
    if level is Level.MAYBE and is_cut:
        return looks_torn(value)
    if found["closing"] and not is_closed and value[:1].isalpha() and not is_cut:
        is_assigned = False
    if not is_closed and not is_assigned and _CALL.match(value):
        return False
    return judge(value, level, is_quoted=is_closed or is_cut, is_assigned=is_assigned)


def _is_setting(text: str, start: int, found: "re.Match[str]", value: str) -> bool:
    """Say whether a bare value is that of an environment variable, a flag, a query or a DSN."""
    before = text[max(0, start - 24) : start]
    name = text[start : found.start()]
    is_tight = found["sign"] == "=" and found.end() - found.start() == 1
    if before[-1:] in ("?", "&", ";") or name.startswith("-"):
        return is_tight or name.startswith("-")
    if name.isupper() and is_tight:
        return not value.startswith(("/", "~")) and _ENV_BEFORE.search(before) is not None
    after = text[found.end() + len(value) : found.end() + len(value) + 1]
    if is_tight and after == ";":
        return before[-1:].isspace() is False and bool(before)
    return found["sign"] == ":" and _is_alone(text, start, found, value)


def _is_alone(text: str, start: int, found: "re.Match[str]", value: str) -> bool:
    """Say whether name and value fill a line, as in YAML; a type's name is no value."""
    line = text.rfind("\n", max(0, start - 40), start) + 1
    if text[max(line, start - 40) : start].strip(" \t-\"'"):
        return False
    after = text[found.end() + len(value) : found.end() + len(value) + 2]
    return after[:1] in ("", "\n", "\r") and value[:1].islower() and value.isascii()


def _is_line(level: Level, found: "re.Match[str]") -> bool:
    """Say whether a value goes to the end of its line, as that of a header does."""
    return level in (Level.HEADER, Level.COOKIE) and found["sign"] == ":"


def _bare_end(text: str, begin: int, level: Level, found: "re.Match[str]") -> int:
    """Find where a value without quotes ends; it is read no further than is judged."""
    is_line = _is_line(level, found)
    run = (_LINE if is_line else _BARE).match(text, begin, begin + _JUDGED_CHARS)
    end = begin if run is None else run.end()
    value = text[begin:end]
    comma = value.find(", ") if not is_line else -1
    value = value if comma < 0 else value[:comma]
    return begin + len(value.rstrip(_TRAILING).rstrip())


def _whole_end(text: str, begin: int, end: int, *, is_line: bool) -> int:
    """Give the end of a bare value that is a secret and may be longer than what was judged."""
    if end - begin < _JUDGED_CHARS:
        return end
    rest = (_LINE if is_line else _BARE).match(text, end)
    return end if rest is None else rest.end()


def _quoted_end(text: str, begin: int, quote: str) -> tuple[int, bool]:
    """Find where a quoted value ends.

    Returns:
        Its end, and whether the closing quote was found; without one the value goes to the end of
        its line. A quote in the next of several strings closes nothing.
    """
    limit = min(len(text), begin + _QUOTED_MAX)
    between = text.find(BETWEEN, begin, limit)
    limit = limit if between < 0 else between
    place = text.find(quote, begin, limit)
    while place > begin and _is_escaped(text, place, begin):
        place = text.find(quote, place + 1, limit)
    if place >= 0:
        return place, True
    ends = (text.find(sign, begin, limit) for sign in ("\n", "…"))
    end = min((end for end in ends if end >= 0), default=limit)
    torn = _TORN.search(text, max(begin, end - 8), end)
    return (end if torn is None else torn.start()), False


def _is_escaped(text: str, place: int, begin: int) -> bool:
    count = 0
    while place - count > begin and text[place - count - 1] == "\\":
        count += 1
    return count % 2 == 1


_AUTHORITY = re.compile(r"[^\s/?#\"'`<>\\…]{0,400}")
_REST = re.compile(r"[^\s\"'`<>\\…]{0,400}")
_PORT = re.compile(r"\d{0,5}")


def find_urls(text: str, *, is_whole: bool) -> Iterator[Span]:
    """Yield the passwords in the authority of URLs: `scheme://user:password@host`."""
    place = text.find("://")
    while place >= 0:
        begin = place + 3
        found = _AUTHORITY.match(text, begin)
        end = begin if found is None else found.end()
        span = _userinfo(text, begin, end, is_whole=is_whole)
        if span is not None:
            yield span
        place = text.find("://", max(end, begin))


def _userinfo(text: str, begin: int, end: int, *, is_whole: bool) -> Span | None:
    authority = text[begin:end]
    at = authority.rfind("@")
    colon = authority.find(":")
    if at < 0:
        return _torn_userinfo(text, begin, colon, end, is_whole=is_whole)
    if 0 <= colon < at:
        secret = authority[colon + 1 : at]
        start = begin + colon + 1
    else:
        secret, start = authority[:at], begin
        if not looks_random(secret, least=16):
            return None
    if is_placeholder(secret):
        return None
    return Span(start, start + len(secret), "userinfo", secret)


def _torn_userinfo(text: str, begin: int, colon: int, end: int, *, is_whole: bool) -> Span | None:
    """Find a password that holds a `/`, or whose URL was cut off before its `@`."""
    if colon < 0 or text[begin : begin + 1] == "[":
        return None
    start = begin + colon + 1
    if _PORT.fullmatch(text, start, end):
        return None
    if is_cut_off(text, end, is_whole=is_whole) and end > start:
        secret = text[start:end]
        return None if is_placeholder(secret) else Span(start, end, "userinfo", secret)
    rest = _REST.match(text, start)
    at = -1 if rest is None else text.rfind("@", start, rest.end())
    if at < 0 or is_placeholder(text[start:at]):
        return None
    return Span(start, at, "userinfo", text[start:at])


_LOGIN = re.compile(
    r"(?:[ \t\"',]-u|--user|--proxy-user|--creds)(?:[= \t]|\\*\",\s{0,4}){1,3}\\*[\"']?"
    r"[^\s:\"'`\\]{1,80}:([^\s\"'`\\]{1,200})"
)
_GLUED = re.compile(
    r"(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n|;&]{0,120}?[ \t]-p([^\s\"'`\\-][^\s\"'`\\]*)"
)
_SSHPASS = re.compile(r"sshpass[ \t]{1,4}-p[ \t]{0,4}\\*[\"']?([^\s\"'`\\]{1,200})")
_NETRC = re.compile(r"login\s{1,4}\S{1,80}\s{1,8}password\s{1,4}(\S{1,200})")
_LOGINS = (
    ("-u", _LOGIN),
    ("--user", _LOGIN),
    ("--proxy-user", _LOGIN),
    ("--creds", _LOGIN),
    ("mysql", _GLUED),
    ("mariadb", _GLUED),
    ("sshpass", _SSHPASS),
    ("login", _NETRC),
)


def find_logins(text: str) -> Iterator[Span]:
    """Yield the passwords that command lines and `.netrc` files hold without a name."""
    for needle, pattern in _LOGINS:
        place = text.find(needle)
        while place >= 0:
            begin = place - 1 if needle == "-u" and place else place
            found = pattern.match(text, begin)
            if found is not None and not _is_id(found[1]):
                yield Span(found.start(1), found.end(1), "login", found[1])
            place = text.find(needle, place + len(needle))


def _is_id(value: str) -> bool:
    return value.isdigit() or is_placeholder(value) or value.startswith("//")
