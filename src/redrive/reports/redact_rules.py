"""The shapes of secrets that tell by themselves what they are: a table of prefixes and alphabets.

Knows how providers write their keys. Must not know field names, JSON, or what becomes of a find.

Source: reliability notes "Secrets": keyword prefilter, then rule, entropy and allow-list. Here the
prefix is the keyword: it is searched as plain text, and only where it stands is a pattern asked.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

__all__ = [
    "BETWEEN",
    "RULES_VERSION",
    "SHAPES",
    "Shape",
    "Span",
    "entropy",
    "find_blocks",
    "find_shapes",
    "is_cut_off",
]

RULES_VERSION = "redact@1"
BETWEEN = "\n\x00"
"""Stands between strings that are searched as one text: each is whole where it begins and ends."""

# How a report says that a text goes on: an ellipsis, maybe after a closing quote or a torn escape.
_CUT = re.compile(
    r"(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9A-Fa-f]?)?"
    r"(?P<end>\\*[\"']?(?:…|\.\.\.|\\+u2026)|\n\x00|\Z)"
)
_ALNUM, _WORD, _DOTTED, _BASE64 = "A-Za-z0-9", "A-Za-z0-9_-", "A-Za-z0-9_.-", "A-Za-z0-9+/_=-"
_HEX, _UPPER = "0-9a-f", "A-Z0-9"
_RUN_OF_16 = re.compile(r"[A-Za-z0-9]{16}")
_AWS_SECRET = re.compile(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_NEAR_CHARS = 240


@dataclass(frozen=True, slots=True)
class Span:
    """A secret in a text: where it stands, which rule found it, and what it is, decoded."""

    start: int
    end: int
    rule: str
    secret: str


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of secret.

    Attributes:
        rule: what a mark calls it.
        needle: what it begins with, or what a few characters of `lead` stand before.
        chars: the alphabet that follows, as a compiled run.
        least: how many characters follow at least, where the text was not cut off.
        is_sure: whether nothing else begins so; only then one character is enough in a cut text.
        test: what the characters that follow must also be.
        lead: the alphabet of what stands before the needle and belongs to the secret.
    """

    rule: str
    needle: str
    chars: "re.Pattern[str]"
    least: int
    is_sure: bool = True
    test: Callable[[str], bool] | None = None
    lead: str = ""


def entropy(text: str) -> float:
    """Give the Shannon entropy of a text's characters, in bits per character."""
    total = len(text)
    return -sum(n / total * math.log2(n / total) for n in Counter(text).values())


def is_cut_off(text: str, end: int, *, is_whole: bool) -> bool:
    """Say whether a text may have been cut at this place by whoever wrote it.

    Args:
        text: what is searched.
        end: a place in it.
        is_whole: whether the text goes on behind its end.
    """
    found = _CUT.match(text, end)
    return found is not None and not (is_whole and found["end"] == "")


def _has_digit(tail: str) -> bool:
    return any(char.isdigit() for char in tail)


def _is_dense(tail: str) -> bool:
    """Say whether a tail is no chain of words: a run of 16 with two digits in the whole."""
    return _RUN_OF_16.search(tail) is not None and sum(c.isdigit() for c in tail) > 1


def _is_token(tail: str) -> bool:
    return "." in tail.strip(".")


def _is_two_parts(tail: str) -> bool:
    return min(map(len, tail.partition(".")[::2])) >= 10


def _is_hex_32(tail: str) -> bool:
    return len(tail) == 32


def _run(chars: str) -> "re.Pattern[str]":
    return re.compile(f"[{chars}]*+")


def _shapes(rule: str, needles: str, chars: str, least: int, **more: object) -> Iterator[Shape]:
    for needle in needles.split():
        yield Shape(rule, needle, _run(chars), least, **more)  # type: ignore[arg-type]


SHAPES: Sequence[Shape] = (
    *_shapes("openai", "sk-proj- sk-svcacct- sk-admin- sk-None-", _WORD, 12),
    *_shapes("anthropic", "sk-ant-", _WORD, 12),
    *_shapes("sk-key", "sk-", _WORD, 20, is_sure=False, test=_is_dense),
    *_shapes("google", "AIza", _WORD, 24),
    *_shapes("google-oauth", "ya29. GOCSPX-", _DOTTED, 16),
    *_shapes("google-oauth", "1//0", _WORD, 30, is_sure=False),
    *_shapes("aws", "AKIA ABIA ACCA", _UPPER, 16),
    *_shapes("aws", "ASIA", _UPPER, 16, is_sure=False, test=_has_digit),
    *_shapes("github", "ghp_ gho_ ghu_ ghs_ ghr_", "A-Za-z0-9_", 20),
    *_shapes("github", "github_pat_", "A-Za-z0-9_", 20),
    *_shapes("gitlab", "glpat- gldt- glrt- glptt- glcbt- glft- gloas- glsoat-", _DOTTED, 16),
    *_shapes("slack", "xoxb- xoxp- xoxa- xoxr- xoxs- xoxo- xoxe- xoxe. xapp-", _DOTTED, 10),
    *_shapes("stripe", "sk_live_ sk_test_ rk_live_ rk_test_ whsec_", _BASE64, 10),
    *_shapes("npm", "npm_", _ALNUM, 30, is_sure=False),
    *_shapes("pypi", "pypi-A", _WORD, 30),
    *_shapes("huggingface", "hf_ api_org_", _ALNUM, 30, is_sure=False),
    *_shapes("daytona", "dtn_", _ALNUM, 16, is_sure=False),
    *_shapes("sendgrid", "SG.", _DOTTED, 30, is_sure=False, test=_is_two_parts),
    *_shapes("twilio", "SK", _HEX, 32, is_sure=False, test=_is_hex_32),
    *_shapes("telegram", ":AA", _WORD, 30, is_sure=False, lead="0123456789"),
    *_shapes("azure", "Q~", "A-Za-z0-9_.~-", 28, is_sure=False, lead=_ALNUM),
    *_shapes("vault", "hvs. hvb. hvr.", _WORD, 20, is_sure=False),
    *_shapes("age", "AGE-SECRET-KEY-1", _UPPER, 20),
    *_shapes("jwt", "eyJ", _DOTTED, 16, is_sure=False, test=_is_token),
    *_shapes("digitalocean", "dop_v1_ doo_v1_ dor_v1_", _HEX, 20),
    *_shapes("shopify", "shpat_ shpca_ shppa_ shpss_", _ALNUM, 20),
    *_shapes("square", "sq0atp- sq0csp-", _WORD, 16),
    *_shapes("groq", "gsk_", _ALNUM, 20, is_sure=False),
    *_shapes("xai", "xai-", _ALNUM, 30, is_sure=False),
    *_shapes("nvidia", "nvapi-", _WORD, 20, is_sure=False),
    *_shapes("replicate", "r8_", _ALNUM, 20, is_sure=False),
    *_shapes("perplexity", "pplx-", _ALNUM, 20, is_sure=False),
    *_shapes("tavily", "tvly-", _WORD, 20, is_sure=False),
    *_shapes("langsmith", "lsv2_pt_ lsv2_sk_", _WORD, 20),
    *_shapes("e2b", "e2b_", _ALNUM, 20, is_sure=False),
    *_shapes("linear", "lin_api_", _ALNUM, 20),
    *_shapes("notion", "secret_ ntn_", _ALNUM, 30, is_sure=False),
    *_shapes("figma", "figd_", _WORD, 20),
    *_shapes("postman", "PMAK-", _WORD, 20),
    *_shapes("databricks", "dapi", _HEX, 32, is_sure=False),
    *_shapes("grafana", "glsa_ glc_", _BASE64, 20, is_sure=False),
    *_shapes("newrelic", "NRAK-", _ALNUM, 20),
    *_shapes("mailgun", "key-", _HEX, 32, is_sure=False, test=_is_hex_32),
    *_shapes("brevo", "xkeysib-", _WORD, 20),
    *_shapes("sentry", "sntrys_ sntryu_", _BASE64, 20),
    *_shapes("doppler", "dp.pt. dp.st.", _DOTTED, 20),
    *_shapes("planetscale", "pscale_tkn_ pscale_pw_ pscale_oauth_", _DOTTED, 20),
    *_shapes("atlassian", "ATATT3x ATCTT3x", _BASE64, 20),
    *_shapes("supabase", "sbp_ sb_secret_", _WORD, 20, is_sure=False),
    *_shapes("tailscale", "tskey-", _WORD, 16, is_sure=False),
    *_shapes("pulumi", "pul-", _HEX, 30, is_sure=False),
    *_shapes("rubygems", "rubygems_", _HEX, 30, is_sure=False),
    *_shapes("docker", "dckr_pat_ dckr_oat_", _WORD, 16),
    *_shapes("alibaba", "LTAI", _ALNUM, 16, is_sure=False),
    *_shapes("1password", "ops_eyJ", _BASE64, 20),
    *_shapes("fly", "fm2_ fo1_", _BASE64, 30, is_sure=False),
    *_shapes("slack-webhook", "hooks.slack.com/", "A-Za-z0-9/_-", 24),
    *_shapes("discord-webhook", "/api/webhooks/", "A-Za-z0-9/_-", 24, is_sure=False),
    *_shapes("teams-webhook", ".webhook.office.com/", "A-Za-z0-9/_@-", 24),
)


def find_shapes(text: str, *, is_whole: bool) -> Iterator[Span]:
    """Yield every secret of a known shape; spans may overlap.

    Args:
        text: what is searched.
        is_whole: whether the text goes on behind its end; where not, the beginning of a secret at
            the end counts as one.

    Cost: one substring search per prefix; each run of characters is read once per prefix.
    """
    for shape in SHAPES:
        place = text.find(shape.needle)
        while place >= 0:
            end = place + len(shape.needle)
            if _is_start(text, place, shape):
                run = shape.chars.match(text, end)
                end = end if run is None else run.end()
                if _holds(shape, text, place, end, is_whole=is_whole):
                    yield from _spans(shape, text, place, end)
            place = text.find(shape.needle, end)


_BEGIN = re.compile(r"-{4,5}[ +]?BEGIN[ +][A-Z0-9 +]{0,40}PRIVATE[ +]KEY[A-Z +]{0,8}-{4,5}")
_BODY = re.compile(r"(?:[A-Za-z0-9+/=]|\s|\\+[nr])*+")
_FIRST_LINE = re.compile(
    r"(?:\s|\\+[nr]|\d{1,6}[\t→])*+"
    r"(?:[A-Za-z0-9+/=]{16}|Proc-Type|[A-Za-z0-9+/=]+(?:\\+u?[0-9a-fA-F]{0,3}|%[0-9A-F]?)?(?:…|\Z))"
)
_BLOCK_MAX = 32768


def find_blocks(text: str) -> Iterator[Span]:
    """Yield PEM and SSH private keys, whole; where the end was cut off, all that is left of one.

    A text that only names the first line is none.
    """
    place, after = text.find("PRIVATE"), 0
    while place >= 0:
        begin = _BEGIN.search(text, max(after, place - 60), place + 40)
        after = place + 7
        if begin is not None and begin.end() > place and _FIRST_LINE.match(text, begin.end()):
            after = max(after, _block_end(text, begin.end()))
            yield Span(begin.start(), after, "private-key", text[begin.start() : after])
        place = text.find("PRIVATE", after)


def _block_end(text: str, begin: int) -> int:
    end = text.find("-END", begin, begin + _BLOCK_MAX)
    if end < 0:
        end = text.find("- END", begin, begin + _BLOCK_MAX)
    if end >= 0:
        close = text.find("----", end + 4, end + 90)
        return end if close < 0 else close + 4 + (text[close + 4 : close + 5] == "-")
    body = _BODY.match(text, begin)
    return begin if body is None else body.end()


def _is_start(text: str, place: int, shape: Shape) -> bool:
    """Say whether a needle begins a word; in front of a host or within one it always does."""
    if shape.lead or not shape.needle[0].isalnum():
        return True
    before = text[place - 1] if place else " "
    if text[max(0, place - 2) : place] in ("\\n", "\\r", "\\t"):
        return True
    return not (before.isalnum() or (before == "_" and shape.needle[0] != "s"))


def _holds(shape: Shape, text: str, place: int, end: int, *, is_whole: bool) -> bool:
    tail = text[place + len(shape.needle) : end]
    if shape.lead and _lead_start(text, place, shape) > place - 3:
        return False
    if not tail.strip("xX*-"):  # somebody masked it
        return False
    if len(tail) >= shape.least and (shape.test is None or shape.test(tail)):
        return True
    if not tail.strip("-_./") or not is_cut_off(text, end, is_whole=is_whole):
        return False
    if shape.is_sure or shape.lead or (shape.rule == "aws" and len(tail) > 8):
        return True
    return len(tail) >= 5 and _is_mixed(tail)


def _is_mixed(tail: str) -> bool:
    """Say whether a tail is no word: digits among letters, or both cases of them."""
    if _has_digit(tail):
        return not tail.isdigit()
    return tail.lower() != tail != tail.upper() and not tail.istitle()


def _spans(shape: Shape, text: str, place: int, end: int) -> Iterator[Span]:
    start = _lead_start(text, place, shape) if shape.lead else place
    if "/" in shape.needle:
        start += len(shape.needle)
    secret = text[start:end].rstrip(".")
    yield Span(start, start + len(secret), shape.rule, secret)
    if shape.rule == "aws":
        low, high = max(0, start - _NEAR_CHARS), end + _NEAR_CHARS
        for near in _AWS_SECRET.finditer(text, low, min(len(text), high)):
            if _has_digit(near[0]) and near[0].lower() != near[0]:
                yield Span(near.start(), near.end(), "aws-secret", near[0])


def _lead_start(text: str, place: int, shape: Shape) -> int:
    start = place
    while start > 0 and place - start < 12 and _is_lead(text[start - 1], shape.lead):
        start -= 1
    return start


def _is_lead(char: str, lead: str) -> bool:
    return char.isascii() and (char.isdigit() if lead.isdigit() else char.isalnum() or char in "_.")
