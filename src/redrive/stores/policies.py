"""What a store keeps of policies: reports, inferences, samples with labels, the hook's decisions.

Knows rows and JSON texts. Must not know what a policy is, nor what a label means for its precision.
These tables only grow; see `growing`.

Source: DESIGN.md §7; §3 "inference cache, annotations".
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec
import zstandard

from redrive import canonical
from redrive.errors import StoreError, TamperError, UsageError, quote
from redrive.stores.database import Database
from redrive.stores.growing import append_row, rewrite_rows
from redrive.stores.port import (
    HookRow,
    InferenceRow,
    LabelRow,
    PolicyChanges,
    ReportRow,
    SampleRow,
)
from redrive.stores.rows import (
    Row,
    StoredHook,
    StoredInference,
    StoredLabel,
    StoredReport,
    StoredSample,
    find_row,
    read_rows,
)

POLICY_TABLES: tuple[type[Row], ...] = (
    StoredReport,
    StoredInference,
    StoredSample,
    StoredLabel,
    StoredHook,
)
LABELS = ("true", "false", "unsure")
_T = TypeVar("_T", bound=msgspec.Struct)
_R = TypeVar("_R", bound=Row)


class SqlitePolicyTables:
    """A `redrive.stores.port.PolicyTables`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Use the transaction that is open, or one of its own."""
        if self._database.is_in_transaction:
            yield
        else:
            with self._database.transaction():
                yield

    # --- reports

    def put_report(
        self, policy: str, version: str, digest: str, document: bytes, created_ns: int
    ) -> ReportRow:
        """Store the JSON of a `PolicyDocument` whose reports hold this policy's.

        Returns:
            The new row; the policy's newest one where that is equal in all but its time.
        """
        data = zstandard.ZstdCompressor(level=3).compress(document)
        values = (policy, version, digest, created_ns, len(document), data)
        where = "WHERE policy = ? ORDER BY id DESC"
        with self._writing():
            last = find_row(self._database, StoredReport, where, (_safe(policy),))
            known = None if last is None else (last.version, last.digest, last.document)
            if last is not None and known == (_safe(version), digest, data):
                return _cast(ReportRow, last)
            return _cast(ReportRow, append_row(self._database, StoredReport, values))

    def reports(self, policy: str | None = None) -> list[ReportRow]:
        """List the reports of one policy or all, newest last; cost: each is read and checked."""
        return [_cast(ReportRow, row) for row in self._read(StoredReport, "policy", policy)]

    def get_report(self, report: int) -> bytes:
        """Give a report's document.

        Raises:
            UsageError: there is none of this id.
            TamperError: it is damaged.
        """
        row = find_row(self._database, StoredReport, "WHERE id = ?", (report,))
        if row is None:
            raise UsageError(f"no policy report {report}", hint="`redrive policy replay` makes one")
        return _decompressed(row)

    def find_report(self, policy: str, version: str, digest: str) -> ReportRow | None:
        """Find the newest report of exactly this version with exactly this code."""
        where = "WHERE policy = ? AND version = ? AND digest = ? ORDER BY id DESC"
        values = tuple(map(_safe, (policy, version, digest)))
        row = find_row(self._database, StoredReport, where, values)
        return None if row is None else _cast(ReportRow, row)

    # --- inferences

    def put_inferences(self, rows: Iterable[InferenceRow]) -> int:
        """Store answers, all or none, and say how many were new.

        Raises:
            StoreError: a known key comes with another question or value; it is named.
        """
        count = 0
        with self._writing():
            for row in rows:
                known = self.find_inference(row.key)
                if known is None:
                    append_row(self._database, StoredInference, msgspec.structs.astuple(row))
                    count += 1
                else:
                    _require_equal(known, row)
        return count

    def find_inference(self, key: str) -> InferenceRow | None:
        """Find an answer by its key."""
        row = find_row(self._database, StoredInference, "WHERE key = ?", (key,))
        return None if row is None else _cast(InferenceRow, row)

    def inferences(self, name: str | None = None) -> Iterator[InferenceRow]:
        """Stream the answers of one name or all, in the order stored."""
        for row in self._read(StoredInference, "name", name):
            yield _cast(InferenceRow, row)

    # --- samples and labels

    def put_sample(self, row: SampleRow) -> SampleRow:
        """Store a sample; where one of this id is stored, that one is given and stays.

        Raises:
            UsageError: the report that it was drawn from is not stored.
        """
        with self._writing():
            known = self._find_sample(row.id)
            if known is not None:
                return known
            if self._database.find("SELECT 1 FROM policy_reports WHERE id = ?", (row.report,)):
                refs = canonical.encode(tuple(map(_safe, row.event_refs))).decode()
                values = msgspec.structs.astuple(row)
                append_row(self._database, StoredSample, (*values[:-2], refs, row.created_ns))
                return row
        raise UsageError(f"no policy report {row.report}", hint="`redrive policy replay` makes one")

    def samples(self, policy: str | None = None) -> list[SampleRow]:
        """List the samples of one policy or all, newest last."""
        return [_sample(row) for row in self._read(StoredSample, "policy", policy)]

    def _find_sample(self, name: str) -> SampleRow | None:
        row = find_row(self._database, StoredSample, "WHERE name = ?", (name,))
        return None if row is None else _sample(row)

    def put_label(self, row: LabelRow) -> None:
        """Store a label beside all earlier ones.

        Raises:
            UsageError: there is no such sample, event in it, or label.
        """
        if row.label not in LABELS:
            raise UsageError(f"label {quote(row.label)}: expected one of {', '.join(LABELS)}")
        with self._writing():
            sample = self._find_sample(row.sample)
            if sample is None or _safe(row.event_ref) not in sample.event_refs:
                raise UsageError(f"sample {quote(row.sample)} holds no {quote(row.event_ref)}")
            append_row(self._database, StoredLabel, msgspec.structs.astuple(row))

    def labels(self, sample: str, rater: str | None = None) -> list[LabelRow]:
        """List the labels of a sample, of one rater or of all, newest last."""
        where, values = "WHERE sample = ? ORDER BY id", (sample,)
        wanted = None if rater is None else _safe(rater)
        rows = read_rows(self._database, StoredLabel, where, values)
        return [_cast(LabelRow, row) for row in rows if wanted in (None, row.rater)]

    # --- the live hook

    def add_hook_decision(self, row: HookRow) -> None:
        """Append a decision of the live hook."""
        values = (*msgspec.structs.astuple(row)[:-1], int(row.is_unreplayed))
        with self._writing():
            append_row(self._database, StoredHook, values)

    def hook_decisions(self, policy: str | None = None) -> Iterator[HookRow]:
        """Stream the decisions of one policy or all, in the order made."""
        for row in self._read(StoredHook, "policy", policy):
            yield _cast(HookRow, row, is_unreplayed=bool(row.is_unreplayed))

    def _read(self, kind: type[_R], column: str, value: str | None) -> Iterator[_R]:
        if value is None:
            return read_rows(self._database, kind, "ORDER BY id")
        wanted = (_safe(value),)
        return read_rows(self._database, kind, f"WHERE {column} = ? ORDER BY id", wanted)


def rewrite_policy_tables(database: Database, redact: Callable[[bytes], bytes]) -> PolicyChanges:
    """Redact the texts of all rows.

    An inference that held a secret is dropped: its key is that of another question. Reports, notes
    of labels and reasons of decisions are kept, redacted. A table in which a row changed has
    another tail.

    Args:
        database: inside a transaction.
        redact: takes JSON; gives the same object where there is nothing to redact.
    """

    def text(value: str) -> str:
        data = canonical.encode([value])
        new = redact(data)
        return value if new is data else str(canonical.decode_value(new)[0])

    def report(row: StoredReport) -> StoredReport:
        document = _decompressed(row)
        new = redact(document)
        if new is document:
            return row
        data = zstandard.ZstdCompressor(level=3).compress(new)
        return msgspec.structs.replace(row, size=len(new), document=data)

    def inference(row: StoredInference) -> StoredInference | None:
        held = canonical.encode(msgspec.structs.astuple(row))
        return row if redact(held) is held else None

    replace = msgspec.structs.replace
    return PolicyChanges(
        reports=rewrite_rows(database, StoredReport, report),
        inferences=rewrite_rows(database, StoredInference, inference),
        labels=rewrite_rows(database, StoredLabel, lambda row: replace(row, note=text(row.note))),
        hook_decisions=rewrite_rows(
            database, StoredHook, lambda row: replace(row, reason=text(row.reason))
        ),
    )


def _safe(text: str) -> str:
    return canonical.escape_surrogates(text)


def _decompressed(row: StoredReport) -> bytes:
    try:
        if zstandard.frame_content_size(row.document) != row.size:
            raise TamperError(f"policy report {row.id} is damaged: it has another size")
        return zstandard.ZstdDecompressor().decompress(row.document)
    except zstandard.ZstdError as error:
        raise TamperError(f"policy report {row.id} is damaged: {error}") from error


def _require_equal(known: InferenceRow, row: InferenceRow) -> None:
    for field in ("name", "spec", "request", "value"):
        old, new = getattr(known, field), _safe(getattr(row, field))
        if old != new:
            raise StoreError(
                f"inference {row.key} is stored with another {field}: found {quote(new)}, "
                f"expected {quote(old)}",
                hint="a key covers all that can change an answer; were model and version pinned?",
            )


def _cast(kind: type[_T], row: Row, **changed: Any) -> _T:
    """Give a port's value of the row's columns that it has by name, but for what is changed."""
    values: dict[str, Any] = {name: getattr(row, name) for name in kind.__struct_fields__}
    return kind(**values | changed)


def _sample(row: StoredSample) -> SampleRow:
    return _cast(
        SampleRow, row, id=row.name, event_refs=tuple(canonical.decode_value(row.event_refs))
    )
