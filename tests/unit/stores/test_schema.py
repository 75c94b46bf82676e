"""An older store is migrated whole, a newer one refused, each naming both versions."""

from pathlib import Path

import pytest

from redrive.errors import StoreError
from redrive.stores.database import Database, open_database
from redrive.stores.schema import MIGRATIONS, SCHEMA_VERSION, migrate, read_version
from redrive.stores.sqlite import open_store
from tests.stored import opened, raw_database


def _add_runs(database: Database) -> None:
    """A step of a later version, as a test needs one."""
    database.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY)")


def _fail(database: Database) -> None:
    database.execute("CREATE TABLE halves (id INTEGER PRIMARY KEY)")
    raise StoreError("step failed")


def test_a_new_store_has_the_version_of_today(path: Path) -> None:
    with opened(path):
        pass
    database = open_database(path, create=False, read_only=True)
    assert read_version(database) == SCHEMA_VERSION == len(MIGRATIONS)
    database.close()


def test_an_older_store_is_migrated_and_keeps_its_rows(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=False)
    before = database.find("SELECT count(*), sum(length(data)) FROM segments")
    migrate(database, (*MIGRATIONS, _add_runs))
    assert read_version(database) == SCHEMA_VERSION + 1
    assert database.find("SELECT count(*) FROM runs") == (0,)
    assert database.find("SELECT count(*), sum(length(data)) FROM segments") == before
    database.close()


def test_a_step_that_fails_leaves_the_older_store(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=False)
    with pytest.raises(StoreError, match="step failed"):
        migrate(database, (*MIGRATIONS, _add_runs, _fail))
    assert read_version(database) == SCHEMA_VERSION
    assert database.find("SELECT 1 FROM sqlite_master WHERE name IN ('runs', 'halves')") is None
    database.close()


def test_a_newer_store_is_refused_with_both_versions(filled: Path) -> None:
    with raw_database(filled) as connection:
        connection.execute("UPDATE meta SET value = 77")
    with pytest.raises(
        StoreError, match=f"has schema 77, this redrive knows up to {SCHEMA_VERSION}"
    ):
        open_store(filled, create=False)


def test_an_older_store_that_is_read_only_is_refused_with_both_versions(filled: Path) -> None:
    database = open_database(filled, create=False, read_only=True)
    with pytest.raises(StoreError, match=f"has schema {SCHEMA_VERSION}, this redrive reads schema"):
        migrate(database, (*MIGRATIONS, _add_runs))
    database.close()


@pytest.mark.parametrize("change", ["DELETE FROM meta", "UPDATE meta SET value = 'two'"])
def test_a_store_that_names_no_version_is_refused(filled: Path, change: str) -> None:
    with raw_database(filled) as connection:
        connection.execute(change)
    with pytest.raises(StoreError, match="names no schema version"):
        open_store(filled, create=False)


def test_an_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    with opened(path) as store:
        assert list(store.sessions()) == []


def test_an_empty_file_is_no_store_for_reading(path: Path) -> None:
    path.touch()
    with pytest.raises(StoreError, match="is an empty file"):
        open_store(path, create=False, read_only=True)
