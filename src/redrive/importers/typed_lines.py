"""Reads JSON-lines files straight to structs, and tolerantly where a line has another shape.

Knows structs, bytes and JSON. Must not know any recorded format.

A line of the usual shape is decoded once: what no field names is checked for its grammar and
skipped without being built, and a field declared `Raw` keeps the bytes as they were written. A
line that the typed decoder refuses is parsed tolerantly: a field of another type than declared
counts as not recorded, as does an item of a list of structs that is no object. Each is named, so
that a format whose absent fields mean something can tell what is absent from what is odd.

Source: DESIGN.md §3 "Evidence is bytes".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, BinaryIO, Generic, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, Raw, UnsetType

from redrive import canonical
from redrive.importers.lines import (
    LINE_CAP_BYTES,
    Record,
    damage_of_long_line,
    parse_line,
    read_lines,
)
from redrive.record.event import FLAG_RECOVERED, Damage

_MAX_DEPTH = 4
_Line = TypeVar("_Line", bound=msgspec.Struct)
_Shape = TypeVar("_Shape", bound=msgspec.Struct)
Evidence = Callable[[_Line, bytes], Iterable[bytes]]
_REFUSED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """A field that is there and cannot be taken: its dotted path, and why ("is no list")."""

    field: str
    reason: str

    def __str__(self) -> str:
        """Give both as one phrase."""
        return f"{self.field} {self.reason}"


class Placed(msgspec.Struct, Generic[_Line], frozen=True, gc=False):
    """A line with its place in the file.

    Attributes:
        line: the struct that it was decoded to.
        number: 1-based line number.
        offset: first byte in the file.
        length: bytes, without the line end.
        data: the JSON text of the object; written anew where it was found behind damage.
        flags: `recovered`, `unrepresentable number`; empty for a strict, exact record.
        is_odd: whether the typed decoder refused it.
        faults: what an odd line holds that has another type than declared, `null` apart.
    """

    line: _Line
    number: int
    offset: int
    length: int
    data: bytes
    flags: tuple[str, ...] = ()
    is_odd: bool = False
    faults: Sequence[Fault] = ()

    @property
    def is_strict(self) -> bool:
        """Whether its line was exactly this one object."""
        return FLAG_RECOVERED not in self.flags


class Shapes(Generic[_Line]):
    """What the lines of a format may look like.

    Args:
        other: the struct of a line that has none of the tags.
        tagged: two or more structs that one tag field tells apart; none where every line is read
            as `other`.
        evidence: lists the values of a line, given with its bytes, that are kept undecoded; their
            numbers are looked at too. Where a format has it, texts stay as they are; else typed
            texts are ids and labels: a lone surrogate becomes the text of its escape.
        ids: the keys of ids: an integer there is its decimal text.
    """

    def __init__(
        self,
        other: type[_Line],
        *tagged: type[_Line],
        evidence: Evidence[_Line] | None = None,
        ids: frozenset[str] = frozenset(),
    ) -> None:
        usual = Union[tagged] if tagged else other  # noqa: UP007 - the members are values
        self._decode = msgspec.json.Decoder(usual).decode
        self._other = other
        self._by_tag = {shape.__struct_config__.tag: shape for shape in tagged}
        self._tag_field = tagged[0].__struct_config__.tag_field if tagged else None
        self._evidence = evidence
        self._ids = ids

    @property
    def tags(self) -> frozenset[Any]:
        """The tags of the structs that are told apart."""
        return frozenset(self._by_tag)

    def find_usual(self, data: bytes) -> _Line | None:
        """Decode a line of the usual shape; `None` where the tolerant reader must look."""
        try:
            line: _Line = self._decode(data)
            if not data.isascii() and not canonical.is_utf8(data):
                return None  # the decoder does not look for UTF-8 in what it skips
            if self._evidence is not None:
                for value in self._evidence(line, data):
                    if not canonical.has_exact_numbers(memoryview(value)):
                        return None  # nor for numbers that no float can hold in what it keeps
        except _REFUSED:
            return None
        return line

    def parse_odd(self, data: bytes) -> tuple[_Line, Sequence[Fault]]:
        """Build a line from a JSON object of any shape.

        Returns:
            The line, and what it leaves out since it has the wrong type.
        """
        members = members_of(data)
        tag = members.get(self._tag_field) if self._tag_field else None
        name = None if tag is None else canonical.decode_value(tag)
        shape = self._by_tag.get(name, self._other) if isinstance(name, str) else self._other
        reading = _Reading(is_safe=self._evidence is None, ids=self._ids)
        return reading.fill(shape, members), reading.faults


def read_typed_lines(
    file: BinaryIO, shapes: Shapes[_Line], *, cap_bytes: int = LINE_CAP_BYTES
) -> Iterator[Placed[_Line] | Damage]:
    """Yield the lines and the damage of a file, in file order; empty lines yield nothing."""
    for raw in read_lines(file, cap_bytes):
        data = raw.data
        if data is None:
            yield damage_of_long_line(raw, cap_bytes)
            continue
        line = shapes.find_usual(data)
        if line is not None:
            yield Placed(line, raw.number, raw.offset, len(data), data)
            continue
        if canonical.is_plain_object(data):
            line, faults = shapes.parse_odd(data)
            place = (raw.number, raw.offset, len(data))
            yield Placed(line, *place, data, is_odd=True, faults=faults)
            continue
        for item in parse_line(raw.number, raw.offset, data):
            if isinstance(item, Damage):
                yield item
            else:
                text = _text_of(item, data, raw.offset)
                line, faults = shapes.parse_odd(text)
                place = (item.line, item.offset, item.length)
                yield Placed(line, *place, text, item.flags, is_odd=True, faults=faults)


def _text_of(record: Record, data: bytes, offset: int) -> bytes:
    """Give the JSON text of a record that strict readers take; written anew where it is none."""
    start = record.offset - offset
    return canonical.encode(record.value) if record.flags else data[start : start + record.length]


def members_of(data: bytes) -> Mapping[str, bytes]:
    """Give the members of a JSON object, each as its own JSON text; none of anything else.

    A member is verbatim unless the object holds a lone surrogate and a number that cannot be
    represented: then each is written anew.
    """
    try:
        return _decode_members(data)
    except msgspec.MsgspecError:
        if canonical.is_plain_object(data):
            return dict(canonical.split_object(data))
        value = canonical.decode_value(data)
    if not isinstance(value, dict):
        return {}
    return {key: canonical.encode(item) for key, item in value.items()}


_decode_members = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode


_KIND_NAMES: Mapping[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "list",
    dict: "object",
}


@dataclass(frozen=True, slots=True)
class _Reading:
    """Builds structs from members of any type, and names those of another type than declared."""

    is_safe: bool
    ids: frozenset[str]
    faults: list[Fault] = field(default_factory=list)

    def fill(
        self, shape: type[_Shape], members: Mapping[str, bytes], path: str = "", depth: int = 0
    ) -> _Shape:
        """Build a struct from the members that have the declared types."""
        fields: dict[str, Any] = {}
        for name, key, kinds in fields_of(shape):
            data = members.get(key)
            if data is None:
                continue
            value = self._read(kinds, data, path + key, depth)
            if value is not UNSET:
                fields[name] = value
            elif bytes(data) != b"null":
                self._refuse(path + key, kinds)
        return shape(**fields)

    def _refuse(self, path: str, kinds: tuple[Any, ...]) -> None:
        names = (_KIND_NAMES.get(get_origin(kind) or kind, "object") for kind in kinds)
        self.faults.append(Fault(path, f"is no {' or '.join(dict.fromkeys(names))}"))

    def _read(self, kinds: tuple[Any, ...], data: bytes, path: str, depth: int) -> Any:
        """Read one member; `UNSET` where it has none of the kinds."""
        first = kinds[0]
        if first is Raw:
            return Raw(data)
        if is_struct(first):
            return self._read_struct(first, data, path, depth)
        item = item_of(first)
        if item is not None:
            items = _items_of(data)
            return UNSET if items is None else self._read_items(item, items, path, depth)
        value = canonical.decode_value(data)
        if first is Any:
            return value
        if type(value) is int and path.rpartition(".")[2] in self.ids:
            return str(value)
        wanted = tuple(get_origin(kind) or kind for kind in kinds)
        if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
            return UNSET
        return canonical.safe_text(value) if self.is_safe and isinstance(value, str) else value

    def _read_items(
        self, shape: type[_Shape], items: Sequence[bytes], path: str, depth: int
    ) -> list[_Shape]:
        """Read the items of a list that are objects."""
        found = []
        for number, data in enumerate(items):
            value = self._read_struct(shape, data, f"{path}[{number}]", depth)
            if value is UNSET:
                self._refuse(f"{path}[{number}]", (shape,))
            else:
                found.append(value)
        return found

    def _read_struct(self, shape: type[_Shape], data: bytes, path: str, depth: int) -> Any:
        if depth == _MAX_DEPTH or bytes(data).lstrip()[:1] != b"{":
            return UNSET
        return self.fill(shape, members_of(data), f"{path}.", depth + 1)


def _items_of(data: bytes) -> Sequence[bytes] | None:
    """List the items of a JSON array, each as its own JSON text; `None` for anything else."""
    try:
        return _decode_items(data)
    except msgspec.MsgspecError:
        value = canonical.decode_value(data)
    return [canonical.encode(item) for item in value] if isinstance(value, list) else None


def is_struct(kind: Any) -> bool:
    """Say whether a declared type is a struct."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def item_of(kind: Any) -> type[msgspec.Struct] | None:
    """Give the struct of a declared list of structs; `None` for anything else."""
    item = get_args(kind)[0] if get_origin(kind) is list else None
    return item if is_struct(item) else None


@cache
def fields_of(shape: type[msgspec.Struct]) -> tuple[tuple[str, str, tuple[Any, ...]], ...]:
    """List a struct's fields as (name, key in JSON, declared types without the absent ones)."""
    hints = get_type_hints(shape)
    absent = (type(None), UnsetType)
    return tuple(
        (
            info.name,
            info.encode_name,
            tuple(kind for kind in get_args(hints[info.name]) if kind not in absent)
            if get_origin(hints[info.name]) not in (None, list, dict)
            else (hints[info.name],),
        )
        for info in msgspec.structs.fields(shape)
    )
