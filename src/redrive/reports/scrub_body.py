"""Finds secrets in the bytes of one HTTP body, whole or in the pieces that a stream cut them into.

Knows server-sent events, JSON lines and JSON, of whatever API: texts that stand at the same place
of successive events are one text. Must not know events of a session, nor content encodings.

A body that holds a secret is not rewritten: whether the last piece of it was found in every event,
list of tokens and array of their bytes could not be proven. It gives way to a small mark.

Source: WHATWG HTML, "Server-sent events".
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from redrive import canonical
from redrive.reports.redact import MARK, Redactor
from redrive.reports.redact_json import write_json
from redrive.reports.scrub_paths import marks_in

__all__ = ["find_marks_in_body", "is_mark_body", "mark_body"]

_FIELD = re.compile(r"(?:data|event|id|retry)?:")
_DATA = "data:"


class _Redacted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int
    marks: tuple[str, ...]


class _MarkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    redacted: _Redacted


_decode_mark = msgspec.json.Decoder(_MarkBody).decode
_MAX_LEAVES = 2_000_000  # of one body; what is nested further is still searched as a text


def mark_body(marks: Sequence[str], size: int) -> bytes:
    """Give what is stored in place of a body that held secrets: their marks, and its size."""
    return canonical.encode({"redacted": {"bytes": size, "marks": sorted(set(marks))}})


def is_mark_body(data: bytes) -> bool:
    """Say whether bytes are what `mark_body` writes, and nothing else."""
    try:
        found = _decode_mark(data).redacted
    except msgspec.DecodeError:
        return False
    is_ours = data == mark_body(found.marks, found.bytes)
    return is_ours and all(MARK.fullmatch(mark) for mark in found.marks)


def find_marks_in_body(data: bytes, redactor: Redactor) -> tuple[str, ...]:
    """Give a mark for each secret in a body, each once; none where it holds no secret.

    Args:
        data: without content encoding; a text, or any bytes.
        redactor: what finds secrets.
    """
    text = data.decode("utf-8", "surrogateescape")
    documents, rest = _split(text)
    lines = [_as_line(document) for document in (*documents, rest)]
    lines += [_as_json(key, joined) for key, joined in _join(documents)]
    found = "\n".join(
        new.decode("utf-8", "surrogateescape")
        for old, new in zip(lines, redactor.json_lines(lines), strict=True)
        if new is not old
    )
    known = set(marks_in(text))
    return tuple(mark for mark in marks_in(found) if mark not in known)


def _split(text: str) -> tuple[list[str], str]:
    """Give the JSON documents of a body in order, and what of it is none, as one text."""
    if text.lstrip()[:1] in ("{", "["):
        lines = text.splitlines()
        if len(lines) > 1 and all(line.strip()[:1] in ("", "{", "[") for line in lines):
            return [line for line in lines if line.strip()], ""
        return [text.replace("\n", " ").replace("\r", " ")], ""
    first = text.lstrip("\ufeff\r\n")
    if _FIELD.match(first) is None:
        return [], text
    return _split_stream(first)


def _split_stream(text: str) -> tuple[list[str], str]:
    """Read server-sent events: the data of each, and all other lines."""
    documents: list[str] = []
    others: list[str] = []
    data: list[str] = []
    for line in [*re.split(r"\r\n|\n|\r", text), ""]:
        if line.startswith(_DATA):
            data.append(line[len(_DATA) :].removeprefix(" "))
        elif line:
            others.append(line)
        elif data:
            documents.append(" ".join(data))
            data = []
    return documents, "\n".join(others)


def _join(documents: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the texts that a stream cut into pieces, each with the key that its pieces stand under.

    Pieces belong together where they stand under the same keys, and the numbers beside them that
    tell parallel texts apart (`index`, `output_index`) are equal.
    """
    if len(documents) < 2:
        return
    pieces: dict[tuple[str, ...], list[str]] = {}
    for place, piece in _leaves(documents):
        pieces.setdefault(place, []).append(piece)
    for place, listed in pieces.items():
        if len(listed) > 1:
            yield place[-1], "".join(listed)


def _leaves(documents: Iterable[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    count = 0
    for document in documents:
        try:
            value = canonical.decode_value(document)
        except ValueError:
            value = document  # no JSON: a stream of plain text
        stack: list[tuple[Any, tuple[str, ...]]] = [(value, ("data",))]
        while stack and count < _MAX_LEAVES:
            part, place = stack.pop()
            count += 1
            if isinstance(part, str):
                yield place, part
            elif isinstance(part, dict):
                own = place + tuple(f"{k}={v}" for k, v in part.items() if _tells_apart(k, v))
                stack += [(below, (*own, key)) for key, below in reversed(part.items())]
            elif isinstance(part, list):
                stack += [(below, place) for below in reversed(part)]


def _tells_apart(key: str, value: object) -> bool:
    return (key == "index" or key.endswith("_index")) and isinstance(value, int)


def _as_line(document: str) -> bytes:
    """Give a document as it lies where it is JSON, and any other text as a string of JSON."""
    if document[:1] in ("{", "["):
        return document.encode("utf-8", "surrogateescape")
    return b"[" + write_json(document).encode() + b"]"


def _as_json(key: str, text: str) -> bytes:
    """Write a joined text under its own key, which may say what it is."""
    return json.dumps({key: text}, ensure_ascii=True).encode()
