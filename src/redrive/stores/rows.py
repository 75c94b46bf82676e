"""The rows of a store as values, each with a seal over all its columns.

Knows columns and seals. Must not know what a session means. A row whose columns do not match its
seal, or have another type than the schema says, is tampered with, and nothing is answered from it.

Source: DESIGN.md §3: "catalogue rows are covered".
"""

import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar, TypeVar

import msgspec

from redrive.errors import TamperError
from redrive.stores.database import Database, SqlValue

_R = TypeVar("_R", bound="Row")
_encode = msgspec.json.Encoder().encode


class Row(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Base of all rows: the fields are the columns of `table`, in order; `seal` comes last."""

    table: ClassVar[str]


class ArtefactRow(Row, frozen=True, gc=False):
    """A verbatim source: `parts` pieces of one zstd frame, after the artefact `extends`, if any."""

    table = "artefacts"
    id: int
    sha256: bytes
    size: int
    extends: bytes | None
    parts: int


class PartRow(Row, frozen=True, gc=False):
    """One piece of an artefact's zstd frame, `number` from 0."""

    table = "parts"
    artefact: int
    number: int
    data: bytes


class CatalogueRow(Row, frozen=True, gc=False):
    """One session revision, its current projection, and a digest of its sources' seals."""

    table = "sessions"
    session_id: str
    base_id: str
    revision: int
    format: str
    projection: int
    sources: bytes


class ProjectionRow(Row, frozen=True, gc=False):
    """The events of a session as one importer version saw them; `summary` is JSON."""

    table = "projections"
    id: int
    session_id: str
    importer_version: int
    events: int
    head: bytes
    first_ts_ns: int | None
    last_ts_ns: int | None
    summary: str


class StoredSource(Row, frozen=True, gc=False):
    """Which artefact a session was read from, in which role; `report` is the file's own, JSON."""

    table = "sources"
    session_id: str
    role: str
    sha256: bytes
    size: int
    importer: str
    importer_version: int
    report: str


class SegmentRow(Row, frozen=True, gc=False):
    """Up to 256 events; `size` is that of the lines, `data` the same lines under zstd.

    `version` is the event schema that the lines were written under.
    """

    table = "segments"
    projection: int
    first_seq: int
    version: int
    events: int
    kinds: str
    first_ts_ns: int | None
    last_ts_ns: int | None
    size: int
    prev: bytes
    digest: bytes
    data: bytes


class TextRow(Row, frozen=True, gc=False):
    """One large text; with a `base`, it begins and ends with that many bytes of its base's ends.

    `data` is what lies between, as zstd with the rest of the base as its dictionary; see `texts`.
    """

    table = "texts"
    id: int
    sha256: bytes
    size: int
    base: int | None
    ordinal: int
    prefix: int
    suffix: int
    data: bytes


class TailRow(Row, frozen=True, gc=False):
    """How many rows a table that only grows has, and the digest that chains all their seals."""

    table = "tails"
    name: str
    rows: int
    digest: bytes


class StoredReport(Row, frozen=True, gc=False):
    """One policy's replay report; `size` is that of the JSON, `document` the same under zstd."""

    table = "policy_reports"
    id: int
    policy: str
    version: str
    digest: str
    created_ns: int
    size: int
    document: bytes


class StoredInference(Row, frozen=True, gc=False):
    """One answer of a model to a policy's question, under the key of all that can change it."""

    table = "inferences"
    id: int
    key: str
    name: str
    spec: str
    request: str
    value: str
    fingerprint: str


class StoredSample(Row, frozen=True, gc=False):
    """Fires that were drawn for labelling, `event_refs` as a JSON list in the order drawn."""

    table = "samples"
    id: int
    name: str
    policy: str
    version: str
    seed: str
    branches: str
    population: int
    report: int
    event_refs: str
    created_ns: int


class StoredLabel(Row, frozen=True, gc=False):
    """What one rater said of one fire at one time."""

    table = "labels"
    id: int
    sample: str
    event_ref: str
    rater: str
    label: str
    note: str
    created_ns: int


class StoredHook(Row, frozen=True, gc=False):
    """One decision of a policy on a live agent; `is_unreplayed` is 0 or 1."""

    table = "hook_decisions"
    id: int
    created_ns: int
    policy: str
    version: str
    digest: str
    session_id: str
    tool_use_id: str | None
    event: str
    action: str
    reason: str
    input_sha256: str
    is_unreplayed: int


class StoredTrial(Row, frozen=True, gc=False):
    """One trial and its plan; `size` is that of the document, `document` the same under zstd."""

    table = "trials"
    id: int
    trial_id: str
    plan_digest: str
    created_ns: int
    size: int
    document: bytes


class StoredEntry(Row, frozen=True, gc=False):
    """One entry of a trial's ledger, as JSON; `number` is dense from 0 within its trial."""

    table = "trial_entries"
    id: int
    trial_id: str
    number: int
    entry: bytes


def seal_of(row: Row) -> bytes:
    """Hash all columns of a row, each with its type and length."""
    state = hashlib.sha256(row.table.encode())
    for value in msgspec.structs.astuple(row):
        data, mark = (value, b"b") if isinstance(value, bytes) else (_encode(value), b"j")
        state.update(b"%s%d:" % (mark, len(data)))
        state.update(data)
    return state.digest()


def put_row(database: Database, row: Row, *, replaces: bool = False) -> None:
    """Insert a row; with `replaces`, in place of an earlier one with the same key."""
    columns = row.__struct_fields__
    marks = ", ".join("?" * (len(columns) + 1))
    verb = "INSERT OR REPLACE" if replaces else "INSERT"
    database.execute(
        f"{verb} INTO {row.table} ({', '.join(columns)}, seal) VALUES ({marks})",
        (*msgspec.structs.astuple(row), seal_of(row)),
    )


def read_rows(
    database: Database, kind: type[_R], where: str = "", values: tuple[SqlValue, ...] = ()
) -> Iterator[_R]:
    """Yield the rows that meet a condition, each checked against its seal.

    Args:
        database: where they lie.
        kind: the row type, which names the table.
        where: the rest of the SQL statement after the table's name, a constant.
        values: what its marks stand for.

    Raises:
        TamperError: a row does not match its seal; the message names table and key.
    """
    for record in read_records(database, kind, where, values):
        yield check_row(kind, record)


def read_records(
    database: Database, kind: type[Row], where: str = "", values: tuple[SqlValue, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield the same rows as `read_rows`, unchecked, with the seal last."""
    columns = ", ".join(kind.__struct_fields__)
    # Columns and tables are names of this module, and conditions are constants of their callers.
    sql = f"SELECT {columns}, seal FROM {kind.table} {where}"  # noqa: S608 # nosec B608
    return database.query(sql, values)


def check_row(kind: type[_R], record: tuple[Any, ...]) -> _R:
    """Make a row of a record and check its seal.

    Raises:
        TamperError: it has other types than the schema says, or does not match its seal.
    """
    try:
        row = msgspec.convert(record[:-1], kind)
    except (msgspec.ValidationError, ValueError) as error:
        raise _tampered(kind, record) from error
    if seal_of(row) != record[-1]:
        raise _tampered(kind, record)
    return row


def find_row(
    database: Database, kind: type[_R], where: str, values: tuple[SqlValue, ...]
) -> _R | None:
    """Give the first of `read_rows`, or `None`."""
    return next(read_rows(database, kind, where, values), None)


def next_id(database: Database, kind: type[Row]) -> int:
    """Give the id of the next row of a table with an integer key, from 1."""
    # The table is a name of this module.
    found = database.find(f"SELECT coalesce(max(id), 0) + 1 FROM {kind.table}")  # noqa: S608 # nosec B608
    return int(found[0]) if found else 1


def _tampered(kind: type[Row], record: tuple[Any, ...]) -> TamperError:
    key = next((v for v in record if isinstance(v, (str, int))), "?")
    return TamperError(
        f"row {key} of table {kind.table} does not match its seal",
        hint="`redrive verify` lists all that is damaged",
    )
