"""The tables of a store, and how an older store becomes one of today.

Knows the schema of every version. Must not know what the rows mean. Step n of `MIGRATIONS` brings
version n to n + 1; version 0 is an empty file, so a new store goes the same way as an old one.

Source: DESIGN.md §3: an older store is migrated, a newer one refused.
"""

from collections.abc import Callable, Sequence

from redrive.errors import StoreError
from redrive.stores.database import APPLICATION_ID, Database

Migration = Callable[[Database], None]

_TABLES_V1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    """CREATE TABLE artefacts (
        id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
        extends BLOB, parts INTEGER NOT NULL, seal BLOB NOT NULL)""",
    """CREATE TABLE parts (
        artefact INTEGER NOT NULL, number INTEGER NOT NULL, data BLOB NOT NULL,
        seal BLOB NOT NULL, PRIMARY KEY (artefact, number))""",
    """CREATE TABLE sessions (
        session_id TEXT PRIMARY KEY, base_id TEXT NOT NULL, revision INTEGER NOT NULL,
        format TEXT NOT NULL, projection INTEGER NOT NULL, sources BLOB NOT NULL,
        seal BLOB NOT NULL, UNIQUE (base_id, revision))""",
    """CREATE TABLE projections (
        id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, importer_version INTEGER NOT NULL,
        events INTEGER NOT NULL, head BLOB NOT NULL, first_ts_ns INTEGER, last_ts_ns INTEGER,
        summary TEXT NOT NULL, seal BLOB NOT NULL)""",
    """CREATE TABLE sources (
        session_id TEXT NOT NULL, role TEXT NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
        importer TEXT NOT NULL, importer_version INTEGER NOT NULL, report TEXT NOT NULL,
        seal BLOB NOT NULL, PRIMARY KEY (session_id, role))""",
    "CREATE INDEX sources_by_artefact ON sources (sha256)",
    """CREATE TABLE segments (
        projection INTEGER NOT NULL, first_seq INTEGER NOT NULL, version INTEGER NOT NULL,
        events INTEGER NOT NULL, kinds TEXT NOT NULL, first_ts_ns INTEGER, last_ts_ns INTEGER,
        size INTEGER NOT NULL, prev BLOB NOT NULL, digest BLOB NOT NULL, data BLOB NOT NULL,
        seal BLOB NOT NULL, PRIMARY KEY (projection, first_seq))""",
    """CREATE TABLE texts (
        id INTEGER PRIMARY KEY, sha256 BLOB NOT NULL UNIQUE, size INTEGER NOT NULL,
        base INTEGER, ordinal INTEGER NOT NULL, prefix INTEGER NOT NULL,
        suffix INTEGER NOT NULL, data BLOB NOT NULL, seal BLOB NOT NULL)""",
)

_TABLES_V2 = (
    "CREATE TABLE tails (name TEXT PRIMARY KEY, rows INTEGER NOT NULL, digest BLOB NOT NULL,"
    " seal BLOB NOT NULL)",
    """CREATE TABLE policy_reports (
        id INTEGER PRIMARY KEY, policy TEXT NOT NULL, version TEXT NOT NULL, digest TEXT NOT NULL,
        created_ns INTEGER NOT NULL, size INTEGER NOT NULL, document BLOB NOT NULL,
        seal BLOB NOT NULL)""",
    "CREATE INDEX policy_reports_by_policy ON policy_reports (policy, version, digest)",
    """CREATE TABLE inferences (
        id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, name TEXT NOT NULL, spec TEXT NOT NULL,
        request TEXT NOT NULL, value TEXT NOT NULL, fingerprint TEXT NOT NULL,
        seal BLOB NOT NULL)""",
    """CREATE TABLE samples (
        id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, policy TEXT NOT NULL,
        version TEXT NOT NULL, seed TEXT NOT NULL, branches TEXT NOT NULL,
        population INTEGER NOT NULL, report INTEGER NOT NULL, event_refs TEXT NOT NULL,
        created_ns INTEGER NOT NULL, seal BLOB NOT NULL)""",
    """CREATE TABLE labels (
        id INTEGER PRIMARY KEY, sample TEXT NOT NULL, event_ref TEXT NOT NULL,
        rater TEXT NOT NULL, label TEXT NOT NULL, note TEXT NOT NULL,
        created_ns INTEGER NOT NULL, seal BLOB NOT NULL)""",
    "CREATE INDEX labels_by_sample ON labels (sample)",
    """CREATE TABLE hook_decisions (
        id INTEGER PRIMARY KEY, created_ns INTEGER NOT NULL, policy TEXT NOT NULL,
        version TEXT NOT NULL, digest TEXT NOT NULL, session_id TEXT NOT NULL,
        tool_use_id TEXT, event TEXT NOT NULL, action TEXT NOT NULL, reason TEXT NOT NULL,
        input_sha256 TEXT NOT NULL, is_unreplayed INTEGER NOT NULL, seal BLOB NOT NULL)""",
)

_TABLES_V3 = (
    """CREATE TABLE trials (
        id INTEGER PRIMARY KEY, trial_id TEXT NOT NULL UNIQUE, plan_digest TEXT NOT NULL,
        created_ns INTEGER NOT NULL, size INTEGER NOT NULL, document BLOB NOT NULL,
        seal BLOB NOT NULL)""",
    """CREATE TABLE trial_entries (
        id INTEGER PRIMARY KEY, trial_id TEXT NOT NULL, number INTEGER NOT NULL,
        entry BLOB NOT NULL, seal BLOB NOT NULL, UNIQUE (trial_id, number))""",
)


def _create_v1(database: Database) -> None:
    """Version 1: artefacts, sessions with projections and sources, segments, texts."""
    for statement in _TABLES_V1:
        database.execute(statement)
    database.execute(f"PRAGMA application_id={APPLICATION_ID}")


def _add_policies_v2(database: Database) -> None:
    """Version 2: policy reports, inferences, samples with labels, decisions of the live hook."""
    for statement in _TABLES_V2:
        database.execute(statement)


def _add_trials_v3(database: Database) -> None:
    """Version 3: trials with their plans, and the entries of their ledgers."""
    for statement in _TABLES_V3:
        database.execute(statement)


MIGRATIONS: tuple[Migration, ...] = (_create_v1, _add_policies_v2, _add_trials_v3)
SCHEMA_VERSION = len(MIGRATIONS)


def read_version(database: Database) -> int:
    """Say which schema a file has; 0 for an empty file.

    Raises:
        StoreError: the file is a database of something else, or names no version.
    """
    is_empty = database.find("SELECT 1 FROM sqlite_master LIMIT 1") is None
    application = database.find("PRAGMA application_id")
    if is_empty and application == (0,):
        return 0
    if application != (APPLICATION_ID,):
        raise StoreError(
            f"{database.path} is the database of another program", hint="name another with --store"
        )
    row = database.find("SELECT value FROM meta WHERE key = 'schema_version'")
    if row is None or type(row[0]) is not int or row[0] < 1:
        raise StoreError(f"store {database.path} names no schema version: it is damaged")
    return row[0]


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a store to the newest schema, all steps or none.

    Raises:
        StoreError: the store is newer than this program, or older and read-only.
    """
    newest = len(migrations)
    version = read_version(database)
    _refuse_newer(database, version, newest)
    if version == newest:
        return
    if database.is_read_only:
        raise StoreError(
            f"store {database.path} has schema {version}, this redrive reads schema {newest}",
            hint="make it writable once, so that it can be migrated",
        )
    with database.transaction():
        version = read_version(database)  # another process may have been faster
        _refuse_newer(database, version, newest)
        for step in migrations[version:]:
            step(database)
        database.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES ('schema_version', ?)", (newest,)
        )


def _refuse_newer(database: Database, version: int, newest: int) -> None:
    if version > newest:
        raise StoreError(
            f"store {database.path} has schema {version}, this redrive knows up to {newest}",
            hint="upgrade redrive",
        )
