"""Which sessions a store holds, in which revisions, read from which sources, under which names.

Knows rows and names. Must not know events or payloads.

Source: DESIGN.md §3 "Names": ID alone is the newest revision, `ID@2` the second; never a merge.
"""

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from redrive import canonical
from redrive.errors import TamperError, UsageError, quote
from redrive.stores.database import Database
from redrive.stores.port import Fault, SessionRow, SourceRow
from redrive.stores.rows import (
    CatalogueRow,
    ProjectionRow,
    StoredSource,
    check_row,
    find_row,
    put_row,
    read_records,
    read_rows,
    seal_of,
)

_CANDIDATES = 5
_HINT = "`redrive verify` lists all that is damaged"


def list_sessions(database: Database) -> Iterator[SessionRow]:
    """Yield every revision, oldest first event first, then those without any time.

    Raises:
        TamperError: a row does not match its seal, or one that it names is missing.
    """
    rows, faults = list_sound(database)
    if faults:
        raise TamperError(faults[0].fault, hint=_HINT)
    yield from rows


def list_sound(database: Database) -> tuple[list[SessionRow], list[Fault]]:
    """List the revisions whose rows are sound, as `list_sessions` does, and what the others lack.

    Returns:
        The sessions, and a fault for each other one, by id. A row's id may itself be damaged.
    """
    sources: dict[Any, list[tuple[Any, ...]]] = {}
    for record in read_records(database, StoredSource, "ORDER BY session_id, role"):
        sources.setdefault(record[0], []).append(record)
    where = "WHERE id IN (SELECT projection FROM sessions)"
    projections = {record[0]: record for record in read_records(database, ProjectionRow, where)}
    rows: list[SessionRow] = []
    faults: list[Fault] = []
    for record in read_records(database, CatalogueRow):
        try:
            row = check_row(CatalogueRow, record)
            found = projections.get(row.projection)
            projection = None if found is None else check_row(ProjectionRow, found)
            own = [check_row(StoredSource, other) for other in sources.get(row.session_id, ())]
            rows.append(_session_row(row, projection, own))
        except TamperError as error:
            faults.append(Fault(str(record[0]), None, error.message))
    return sorted(rows, key=_age), sorted(faults, key=lambda fault: fault.session_id)


def _age(row: SessionRow) -> tuple[bool, int, str]:
    return (row.first_ts_ns is None, row.first_ts_ns or 0, row.session_id)


def get_session(database: Database, session_id: str) -> SessionRow:
    """Give a session by its exact id.

    Raises:
        UsageError: there is none.
        TamperError: a row does not match its seal, or one that it names is missing.
    """
    row = get_catalogue_row(database, session_id)
    projection = find_row(database, ProjectionRow, "WHERE id = ?", (row.projection,))
    return _session_row(row, projection, _sources(database, session_id))


def get_catalogue_row(database: Database, session_id: str) -> CatalogueRow:
    """Give a session's row by its exact id; raises as `get_session` does."""
    row = find_row(database, CatalogueRow, "WHERE session_id = ?", (session_id,))
    if row is None:
        raise _unknown(session_id)
    return row


def require_session(database: Database, session_id: str) -> None:
    """Raise a `UsageError` where there is no session of this exact id, sound or not."""
    if database.find("SELECT 1 FROM sessions WHERE session_id = ?", (session_id,)) is None:
        raise _unknown(session_id)


def get_projection(database: Database, session_id: str) -> ProjectionRow:
    """Give the current projection of a session; raises as `get_session` does."""
    row = get_catalogue_row(database, session_id)
    projection = find_row(database, ProjectionRow, "WHERE id = ?", (row.projection,))
    if projection is None or projection.session_id != session_id:
        raise _tampered(row, "its projection is missing or another's")
    return projection


def put_source(database: Database, row: SourceRow) -> None:
    """Note a source of a session, in place of the same role's earlier one.

    Raises:
        UsageError: there is no such session.
    """
    catalogue = get_catalogue_row(database, row.session_id)
    stored = StoredSource(
        row.session_id,
        row.role,
        bytes.fromhex(row.sha256),
        row.size,
        row.importer,
        row.importer_version,
        canonical.encode(row.report).decode(),
    )
    put_row(database, stored, replaces=True)
    sources = digest_of_sources(_sources(database, row.session_id))
    put_row(database, msgspec.structs.replace(catalogue, sources=sources), replaces=True)


def digest_of_sources(sources: Iterable[StoredSource]) -> bytes:
    """Hash the seals of a session's sources, which stand in the order of their roles."""
    return hashlib.sha256(b"".join(map(seal_of, sources))).digest()


def _sources(database: Database, session_id: str) -> list[StoredSource]:
    where = "WHERE session_id = ? ORDER BY role"
    return list(read_rows(database, StoredSource, where, (session_id,)))


def list_sources(database: Database, sha256: bytes) -> list[SourceRow]:
    """List the sessions that were read from an artefact."""
    where = "WHERE sha256 = ? ORDER BY session_id, role"
    return [_source_row(row) for row in read_rows(database, StoredSource, where, (sha256,))]


def list_own_sources(database: Database, session_id: str) -> list[SourceRow]:
    """List what a session was read from, by role."""
    return [_source_row(row) for row in _sources(database, session_id)]


def _source_row(row: StoredSource) -> SourceRow:
    return SourceRow(
        session_id=row.session_id,
        role=row.role,
        sha256=row.sha256.hex(),
        size=row.size,
        importer=row.importer,
        importer_version=row.importer_version,
        report=canonical.decode_value(row.report),
    )


def list_revisions(database: Database, base_id: str) -> list[SessionRow]:
    """List every revision of one id, oldest first; empty where the id is unknown."""
    rows = read_rows(
        database,
        CatalogueRow,
        "WHERE base_id = ? ORDER BY revision",
        (canonical.escape_surrogates(base_id),),
    )
    return [get_session(database, row.session_id) for row in list(rows)]


def put_summary(database: Database, session_id: str, summary: dict[str, Any]) -> None:
    """Put the counts into a session's current projection; raises as `get_session` does."""
    projection = get_projection(database, session_id)
    text = canonical.encode(summary).decode()
    put_row(database, msgspec.structs.replace(projection, summary=text), replaces=True)


def next_revision(database: Database, base_id: str) -> tuple[str, int]:
    """Give the id and number that the next revision of a session has."""
    found = database.find(
        "SELECT coalesce(max(revision), 0) + 1 FROM sessions WHERE base_id = ?", (base_id,)
    )
    revision = int(found[0]) if found else 1
    while database.find(
        "SELECT 1 FROM sessions WHERE session_id = ?", (_revision_id(base_id, revision),)
    ):
        revision += 1  # another session has this very text as its own id
    return _revision_id(base_id, revision), revision


def _revision_id(base_id: str, revision: int) -> str:
    return base_id if revision == 1 else f"{base_id}@{revision}"


def resolve_name(database: Database, name: str) -> str:
    """Find the one session that a name means.

    Args:
        database: where to look.
        name: an id (its newest revision), `ID@N`, or a unique prefix of an id or of the part after
            its format; a prefix may carry `@N` too.

    Returns:
        The session id of that revision.

    Raises:
        UsageError: nothing or more than one thing has this name; at most five are listed.
    """
    name = canonical.escape_surrogates(name)
    if database.find("SELECT 1 FROM sessions WHERE base_id = ?", (name,)):
        return _newest(database, name)
    if database.find("SELECT 1 FROM sessions WHERE session_id = ?", (name,)):
        return name
    stem, mark, number = name.rpartition("@")
    if mark and number.isdecimal() and len(number) < 10:
        base_id = _match(database, stem) if stem else None
        if base_id is not None:
            return _get_revision(database, base_id, int(number))
    base_id = _match(database, name) if name else None
    if base_id is None:
        raise _unknown(name)
    return _newest(database, base_id)


def _match(database: Database, prefix: str) -> str | None:
    """Find the one base id that a prefix means; an exact match wins over longer ids."""
    size = len(prefix)
    rows = database.query(
        "SELECT DISTINCT base_id FROM sessions WHERE substr(base_id, 1, ?) = ? "
        "OR substr(base_id, instr(base_id, ':') + 1, ?) = ? ORDER BY base_id",
        (size, prefix, size, prefix),
    )
    found = [str(row[0]) for row in rows]
    exact = [base_id for base_id in found if prefix in (base_id, base_id.partition(":")[2])]
    candidates = exact or found
    if len(candidates) > 1:
        more = len(candidates) - _CANDIDATES
        listed = ", ".join(candidates[:_CANDIDATES]) + (f" and {more} more" if more > 0 else "")
        raise UsageError(
            f"{quote(prefix)} means several sessions: {listed}", hint="give more of the id"
        )
    return candidates[0] if candidates else None


def _newest(database: Database, base_id: str) -> str:
    row = database.find(
        "SELECT session_id FROM sessions WHERE base_id = ? ORDER BY revision DESC LIMIT 1",
        (base_id,),
    )
    return str(row[0]) if row else base_id


def _get_revision(database: Database, base_id: str, revision: int) -> str:
    row = database.find(
        "SELECT session_id FROM sessions WHERE base_id = ? AND revision = ?", (base_id, revision)
    )
    if row is None:
        newest = _newest(database, base_id)
        raise UsageError(
            f"session {base_id} has no revision {revision}: its newest is {newest}",
            hint="`redrive sessions` lists all revisions",
        )
    return str(row[0])


def _session_row(
    row: CatalogueRow, projection: ProjectionRow | None, sources: list[StoredSource]
) -> SessionRow:
    if projection is None or projection.session_id != row.session_id:
        raise _tampered(row, "its projection is missing or another's")
    if digest_of_sources(sources) != row.sources:
        raise _tampered(row, "its sources are not those that it was read from")
    return SessionRow(
        session_id=row.session_id,
        base_id=row.base_id,
        revision=row.revision,
        format=row.format,
        importer_version=projection.importer_version,
        n_events=projection.events,
        head=projection.head.hex(),
        first_ts_ns=projection.first_ts_ns,
        last_ts_ns=projection.last_ts_ns,
        summary=canonical.decode_value(projection.summary),
        sources=tuple((s.role, s.sha256.hex(), s.size) for s in sources),
    )


def _tampered(row: CatalogueRow, what: str) -> TamperError:
    return TamperError(f"session {row.session_id}: {what}", hint=_HINT)


def _unknown(name: str) -> UsageError:
    return UsageError(
        f"no session {quote(name)} in the store", hint="`redrive sessions` lists what there is"
    )
