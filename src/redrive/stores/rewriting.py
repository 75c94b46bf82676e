"""Removes what a store held before a session was redacted, down to the free pages of its file.

Knows what rests on what: events on texts and artefacts, texts and artefacts on one another. Must
not know what a secret is. A session is rewritten by a new projection; here goes what it replaced.

What is removed is gone from every page once `clean` says so: deleted content is overwritten, the
log is folded into the file, and the file is built anew. Until then the store remembers that it is
to be cleaned, so that a redaction that was killed after its commit can be finished.

Source: docs/redaction.md "How it is done"; SQLite, "PRAGMA secure_delete", "VACUUM".
"""

import re
from collections.abc import Callable, Collection, Iterator

from redrive.errors import StoreError
from redrive.stores import catalogue
from redrive.stores.artefacts import artefact_chain, find_artefact
from redrive.stores.database import Database
from redrive.stores.policies import rewrite_policy_tables
from redrive.stores.port import PolicyChanges, SourceRow, TrialChanges
from redrive.stores.rows import (
    CatalogueRow,
    ProjectionRow,
    TextRow,
    find_row,
    read_rows,
)
from redrive.stores.segments import group_links, read_chain, read_run
from redrive.stores.texts import TextStore
from redrive.stores.trials import rewrite_trial_tables

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_PENDING = "cleaning_pending"


class SqliteRewriting:
    """A `redrive.stores.port.Rewriting`."""

    def __init__(self, database: Database, texts: TextStore) -> None:
        self._database = database
        self._texts = texts

    # --- what there is

    def list_sources(self, session_id: str) -> list[SourceRow]:
        """List what a session was read from, by role."""
        return catalogue.list_own_sources(self._database, session_id)

    def find_size(self, sha256: str) -> int | None:
        """Give the size of a stored artefact, in bytes; `None` where it is not stored."""
        row = find_artefact(self._database, bytes.fromhex(sha256))
        return None if row is None else row.size

    def digests_of(self, session_id: str) -> set[str]:
        """List the digests of all that a session rests on, superseded projections included.

        Texts, artefacts and sources are among them, and the artefacts that those extend; a digest
        that the events merely mention may be as well. Cost: all its lines are read.
        """
        found: set[str] = set()
        where = "WHERE session_id = ?"
        for projection in read_rows(self._database, ProjectionRow, where, (session_id,)):
            for lines in self._lines(projection):
                found.update(m.decode() for m in _DIGEST.findall(lines))
        for source in self.list_sources(session_id):
            found.add(source.sha256)
        return found | set(self._bases(found))

    def _lines(self, projection: ProjectionRow) -> Iterator[bytes]:
        for run in group_links(read_chain(self._database, projection)):
            for segment in read_run(self._database, projection, run):
                yield b"\n".join(segment.lines)

    def _bases(self, digests: Collection[str]) -> Iterator[str]:
        for digest in digests:
            row = find_artefact(self._database, bytes.fromhex(digest))
            if row is not None and row.extends is not None:
                yield from (base.sha256.hex() for base in artefact_chain(self._database, row))

    def users_of(self, digests: Collection[str], besides: Collection[str]) -> dict[str, set[str]]:
        """Map each digest that other sessions rest on to those sessions.

        Args:
            digests: of texts or artefacts, hex.
            besides: sessions that do not count.

        Cost: all lines of all other sessions are read.
        """
        wanted, found = set(digests), dict[str, set[str]]()
        for row in read_rows(self._database, CatalogueRow, "ORDER BY session_id"):
            if row.session_id not in besides and wanted:
                for digest in wanted & self.digests_of(row.session_id):
                    found.setdefault(digest, set()).add(row.session_id)
        return found

    # --- what is removed, inside a transaction

    def begin(self) -> None:
        """Let deleted content be overwritten, and remember that the file must be cleaned."""
        self._database.execute("PRAGMA secure_delete=ON")
        self._database.execute(
            "INSERT OR REPLACE INTO meta (key, value) VALUES (?, 1)", (_PENDING,)
        )

    def drop_superseded(self, session_id: str) -> None:
        """Remove the projections of a session that are not its current one."""
        current = catalogue.get_projection(self._database, session_id).id
        values = (session_id, current)
        self._database.execute(
            "DELETE FROM segments WHERE projection IN "
            "(SELECT id FROM projections WHERE session_id = ? AND id != ?)",
            values,
        )
        self._database.execute("DELETE FROM projections WHERE session_id = ? AND id != ?", values)

    def drop(self, digests: Collection[str]) -> None:
        """Remove texts and artefacts; a text that builds on one of them stands alone from then on.

        Nothing may rest on them any more.
        """
        for digest in digests:
            artefact = find_artefact(self._database, bytes.fromhex(digest))
            if artefact is not None:
                self._database.execute("DELETE FROM parts WHERE artefact = ?", (artefact.id,))
                self._database.execute("DELETE FROM artefacts WHERE id = ?", (artefact.id,))
        found = map(self._find_text, digests)
        texts = {text.id for text in found if text is not None}
        for number in texts:
            where = "WHERE base = ?"
            for later in list(read_rows(self._database, TextRow, where, (number,))):
                if later.id not in texts:
                    self._texts.set_apart(later)
        for number in texts:
            self._database.execute("DELETE FROM texts WHERE id = ?", (number,))
        self._texts.clear()

    def _find_text(self, digest: str) -> TextRow | None:
        return find_row(self._database, TextRow, "WHERE sha256 = ?", (bytes.fromhex(digest),))

    def rewrite_policies(self, redact: Callable[[bytes], bytes]) -> PolicyChanges:
        """Redact what is stored of policies; see `policies.rewrite_policy_tables`."""
        return rewrite_policy_tables(self._database, redact)

    def rewrite_trials(
        self, redact: Callable[[bytes], bytes], holds: Callable[[bytes], bool]
    ) -> TrialChanges:
        """Redact what is stored of trials; see `trials.rewrite_trial_tables`."""
        changes, dropped = rewrite_trial_tables(self._database, redact, holds)
        self.drop(dropped - self.users_of(dropped, ()).keys())
        return changes

    # --- the file, outside of a transaction

    @property
    def needs_cleaning(self) -> bool:
        """Whether something was removed whose bytes may still lie in the file or its log."""
        return self._database.find("SELECT 1 FROM meta WHERE key = ?", (_PENDING,)) is not None

    def clean(self) -> str:
        """Let nothing be left in the file of what was removed.

        Returns:
            Empty; or why it could not be done: then it is still to be done.
        """
        try:
            self._fold_log()
            self._database.execute("VACUUM")
            if not self._fold_log():
                return "another process is reading the store"
        except StoreError as error:
            return error.message
        self._database.execute("DELETE FROM meta WHERE key = ?", (_PENDING,))
        return ""

    def _fold_log(self) -> bool:
        """Write the log into the file and empty it; false where a reader still needs it."""
        state = self._database.find("PRAGMA wal_checkpoint(TRUNCATE)")
        return state is not None and state[0] == 0
