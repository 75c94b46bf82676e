"""What SQL would lose; every claim on SQLite is held against SQLite itself."""

import contextlib
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.policies.sql import empties_table, find_losses
from tests.costs import grows_linearly

CASE = Path(__file__).parents[2] / "cases" / "66-destructive-sql-and-freeze"
INVENTED = [
    "DROP TABLE IF EXISTS users",
    'DROP TABLE "users"',
    "DROP TABLE [users]",
    "DROP TABLE `users`",
    "DROP TABLE main.users",
    "DROP TABLE temp.users",
    "DROP TABLE USERS;",
    "DROP TABLE users, other",
    "DROP TABLE users CASCADE",
    "DROP VIEW IF EXISTS users_view",
    "DROP TABLE; DROP TABLE users",
    "TRUNCATE TABLE users",
    "TRUNCATE users",
    "DELETE users",
    "DELETE FROM users WHERE true",
    "DELETE FROM users WHERE 1",
    "DELETE FROM users WHERE 0",
    "DELETE FROM users WHERE false",
    "DELETE FROM users WHERE NULL",
    "DELETE FROM users WHERE 'a'='a'",
    "DELETE FROM users WHERE 'a'='b'",
    "DELETE FROM users WHERE 2 > 1 AND 1 = 1",
    "DELETE FROM users WHERE 2 > 1 AND 1 = 0",
    "DELETE FROM users WHERE id = 1 OR 1 = 1",
    "DELETE FROM users WHERE id = 1 AND 1 = 1",
    "DELETE FROM users WHERE NOT 1 = 2",
    "DELETE FROM users WHERE NOT (id = 1 AND 1 = 0)",
    "DELETE FROM users WHERE id IS NOT NULL",
    "DELETE FROM users WHERE id = id",
    "DELETE FROM users WHERE id > 0",
    "DELETE FROM users WHERE id >= 0",
    "DELETE FROM users WHERE id <> 0",
    "DELETE FROM users WHERE id > 1",
    "DELETE FROM users WHERE id IN (SELECT id FROM users)",
    "DELETE FROM users WHERE id IN (SELECT id FROM users WHERE id = 1)",
    "DELETE FROM users WHERE id IN (SELECT id FROM users LIMIT 1)",
    "DELETE FROM users WHERE name LIKE '%'",
    "DELETE FROM users WHERE name LIKE 'a%'",
    "DELETE FROM users WHERE EXISTS (SELECT 1)",
    "DELETE FROM users WHERE 1 IN (1, 2)",
    "DELETE FROM users WHERE rowid IS NOT NULL",
    "DELETE FROM users -- WHERE id = 1",
    "DELETE FROM users /* all */ WHERE /* really */ 1=1",
    "DELETE FROM users RETURNING *",
    "DELETE FROM users WHERE id = 1 RETURNING *",
    "DELETE FROM users AS u WHERE u.id = 1",
    "DELETE FROM users AS u",
    "DELETE FROM main.users",
    "DELETE FROM other",
    "DELETE FROM users WHERE name = 'DELETE FROM users'",
    "DELETE FROM other WHERE name = 'x'; SELECT * FROM users",
    "WITH d AS (SELECT id FROM users) DELETE FROM users WHERE id IN (SELECT id FROM d WHERE id=1)",
    "WITH RECURSIVE x(n) AS (SELECT 1) DELETE FROM users WHERE 1",
    "EXPLAIN QUERY PLAN DELETE FROM users",
    "EXPLAIN DROP TABLE users",
    "EXPLAIN ANALYZE DELETE FROM users",
    "BEGIN; DELETE FROM users; COMMIT",
    "BEGIN; DELETE FROM users; END TRANSACTION",
    "BEGIN TRANSACTION; DROP TABLE users; ROLLBACK TRANSACTION;",
    "BEGIN IMMEDIATE; DELETE FROM users",
    "BEGIN; BEGIN; DELETE FROM users",
    "BEGIN; DELETE FROM users; ROLLBACK; DELETE FROM users",
    "BEGIN; DELETE FROM users; COMMIT; ROLLBACK",
    "DELETE FROM users; ROLLBACK",
    "ROLLBACK; DELETE FROM users",
    "COMMIT; DROP TABLE users",
    "SAVEPOINT a; DELETE FROM users; ROLLBACK TO a; RELEASE a",
    "SAVEPOINT a; DELETE FROM users; RELEASE a",
    "BEGIN; SAVEPOINT a; DELETE FROM users; ROLLBACK TO SAVEPOINT a; COMMIT",
    "BEGIN; SAVEPOINT a; DELETE FROM users; RELEASE a; ROLLBACK",
    "BEGIN; DELETE FROM users; SAVEPOINT a; ROLLBACK TO a; COMMIT",
    "ROLLBACK TO nothing; DELETE FROM users",
    "DELETE FROM users; INSERT INTO users VALUES (1, 'a')",
    "DELETE FROM users; INSERT INTO users SELECT * FROM users",
    "DELETE FROM users; INSERT INTO users SELECT * FROM other",
    "DELETE FROM users; INSERT INTO users SELECT * FROM other WHERE 0",
    "DELETE FROM users; REPLACE INTO users VALUES (1, 'a')",
    "DELETE FROM users; INSERT OR IGNORE INTO users(id, name) VALUES (1, 'a')",
    "DROP TABLE users; CREATE TABLE users(id INTEGER PRIMARY KEY, name)",
    "DROP TABLE users; CREATE TABLE users(id, name); INSERT INTO users VALUES (1, 'x')",
    "DROP TABLE users; DROP TABLE users",
    "DROP TABLE users; INSERT INTO users VALUES (1, 'x')",
    "CREATE TABLE users(id); DROP TABLE users",
    "CREATE TABLE IF NOT EXISTS users(id); DELETE FROM users WHERE id = 1",
    "CREATE TEMP TABLE users(id); DROP TABLE users",
    "CREATE TEMP TABLE users(id); DROP TABLE users; DROP TABLE users",
    "CREATE TABLE copy AS SELECT * FROM users; DROP TABLE users; ALTER TABLE copy RENAME TO users",
    "CREATE TABLE copy AS SELECT * FROM users WHERE 0; DROP TABLE users;"
    " ALTER TABLE copy RENAME TO users",
    "ALTER TABLE users RENAME TO people",
    "ALTER TABLE users RENAME TO people; ALTER TABLE people RENAME TO users",
    "ALTER TABLE users RENAME COLUMN name TO title",
    "ALTER TABLE users DROP COLUMN name",
    "ALTER TABLE other RENAME TO users",
    "UPDATE users SET name = NULL",
    "UPDATE users SET name = 'DROP TABLE users'",
    "INSERT INTO other VALUES (1, '; DROP TABLE users; --')",
    'SELECT "DROP TABLE users"',
    "SELECT 1 AS [DROP TABLE users]",
    "/* multi\nline; DROP TABLE users; */ SELECT 1",
    "-- one\n-- two; DROP TABLE users\nDELETE FROM other",
    "CREATE TRIGGER t AFTER INSERT ON other BEGIN DELETE FROM users; END",
    "CREATE TRIGGER t AFTER INSERT ON other BEGIN DELETE FROM users; END; DROP TABLE users",
    "CREATE TRIGGER t AFTER INSERT ON other BEGIN SELECT CASE 1 WHEN 1 THEN 2 END;"
    " DELETE FROM users; END; SELECT 1",
    "CREATE VIEW v AS SELECT * FROM users",
    "CREATE INDEX i ON users(name)",
    "DROP INDEX IF EXISTS i",
    "FROB; DROP TABLE users",
    "SELECT 1;;; DROP TABLE users;",
    ";",
    "",
    "   \n",
    "PRAGMA user_version = 3; DELETE FROM users",
    "VALUES (1); DELETE FROM users WHERE (1)",
    "DELETE FROM users WHERE ((1 = 1))",
    "DELETE FROM users WHERE 1 = 1 -- AND id = 1",
    "DELETE FROM users WHERE -1",
    "DELETE FROM users WHERE id BETWEEN 2 AND 3",
]


def _case_statements() -> list[tuple[str, bool]]:
    expected = msgspec.json.decode((CASE / "expected.json").read_bytes())["expect"]
    lines = map(msgspec.json.decode, (CASE / "statements.jsonl").read_bytes().splitlines())
    wanted = expected["statements.jsonl"]
    return [(line["sql"], wanted[line["id"]]) for line in lines if "sql" in line]


def _is_emptied(sql: str) -> bool:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        for table in ("users", "other"):
            connection.execute(f"CREATE TABLE {table}(id INTEGER PRIMARY KEY, name)")
            connection.executemany(
                f"INSERT INTO {table} VALUES (?, ?)",  # noqa: S608 - a name of this file's own
                [(1, "a"), (2, "b"), (3, "c")],
            )
        with contextlib.suppress(sqlite3.Error):
            connection.executescript(sql)
        try:
            return connection.execute("SELECT count(*) FROM main.users").fetchone() == (0,)
        except sqlite3.OperationalError:
            return True
    finally:
        connection.close()


@pytest.mark.parametrize(("sql", "is_emptied"), _case_statements())
def test_a_case_statement_is_judged_as_expected_and_as_sqlite_does(sql: str, is_emptied: bool):
    assert empties_table(sql, "users") is is_emptied
    assert _is_emptied(sql) is is_emptied


@pytest.mark.parametrize("sql", INVENTED)
def test_sqlite_agrees_on_whether_a_table_is_emptied(sql: str):
    assert empties_table(sql, "users") is _is_emptied(sql)


@pytest.mark.parametrize(
    ("sql", "dialect", "losses"),
    [
        ("DROP TABLE a, b CASCADE", None, ["a drop_table", "b drop_table"]),
        ("DROP DATABASE prod", "postgres", ["prod drop_database"]),
        ("DROP SCHEMA public CASCADE", "postgres", ["public drop_schema"]),
        ("DROP MEASUREMENT cpu", None, ["cpu drop_measurement"]),
        ('DROP SERIES FROM "cpu"', None, ["cpu drop_series"]),
        ("DROP OWNED BY bob", "postgres", ["bob drop_owned"]),
        ("DROP INDEX i; DROP VIEW v; DROP FUNCTION f; DROP ROLE r", None, []),
        ("TRUNCATE TABLE ONLY a, b", "postgres", ["a truncate", "b truncate"]),
        ("ALTER TABLE t DROP COLUMN IF EXISTS c", None, ["t drop_column"]),
        ("ALTER TABLE t DROP c", "mysql", ["t drop_column"]),
        ("ALTER TABLE t DROP CONSTRAINT c, DROP INDEX i", None, []),
        ("ALTER TABLE t ALTER COLUMN c DROP NOT NULL", None, []),
        ("UPDATE t SET a = 1", None, ["t update_all"]),
        ("UPDATE t SET a = 1 WHERE 1 = 1", None, ["t update_all"]),
        ("UPDATE t SET a = 1 WHERE id = 3", None, []),
        ("INSERT INTO t VALUES (1) ON CONFLICT (id) DO UPDATE SET a = 2", "postgres", []),
        ("WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d", "postgres", ["t delete_all"]),
        ("WITH d AS (DELETE FROM t WHERE id = 1 RETURNING *) SELECT * FROM d", None, []),
        ("DELETE FROM t LIMIT 10", "mysql", []),
        ("DELETE FROM t USING u", "postgres", ["t delete_all"]),
        ("EXPLAIN ANALYZE DELETE FROM t", "postgres", ["t delete_all"]),
        ("EXPLAIN (ANALYZE, VERBOSE) DELETE FROM t", "postgres", ["t delete_all"]),
        ("EXPLAIN ANALYZE DELETE FROM t", "sqlite", []),
        ("DO $$ BEGIN DROP TABLE t; END $$", "postgres", ["t drop_table"]),
        ("DO $body$ SELECT 'DROP TABLE t' $body$", "postgres", []),
        ("EXECUTE IMMEDIATE 'DROP TABLE t'", "oracle", ["t drop_table"]),
        ("EXEC('DROP TABLE t')", "tsql", ["t drop_table"]),
        ("BEGIN; DROP TABLE t; ROLLBACK", "postgres", []),
        ("BEGIN; DROP TABLE t; ROLLBACK", "mysql", ["t drop_table"]),
        ("START TRANSACTION; DELETE FROM t; ROLLBACK", "mysql", []),
        ("BEGIN; DELETE FROM t", "postgres", ["t delete_all"]),
        ("CREATE TEMP TABLE t(a); DROP TABLE t", None, []),
        ("CREATE TABLE t(a); DELETE FROM t; DROP TABLE t", None, []),
        ("CREATE TABLE IF NOT EXISTS t(a); DROP TABLE t", None, ["t drop_table"]),
        ("CREATE OR REPLACE TABLE t AS SELECT 1", "snowflake", ["t replace_table"]),
        ("INSERT OVERWRITE TABLE t SELECT * FROM u", "hive", ["t replace_table"]),
        ("CREATE FUNCTION f() AS $$ BEGIN DROP TABLE t; END $$", "postgres", []),
        ("SELECT 'it''s; DROP TABLE t'", None, []),
        (r"SELECT 'it\'s; DROP TABLE t; --'", "mysql", []),
        ('SELECT "x; DROP TABLE t"', "mysql", []),
        ("SELECT 1 # ; DROP TABLE t", "mysql", []),
        ("GO\nDROP TABLE t", "tsql", ["t drop_table"]),
        ("DROP TABLE public.users", "postgres", ["public.users drop_table"]),
        ("REVOKE DELETE ON t FROM bob; GRANT TRUNCATE ON t TO bob", None, []),
        ("this is no SQL: drop table users", None, []),
    ],
)
def test_find_losses_names_what_is_lost(sql: str, dialect: str | None, losses: list[str]):
    assert [f"{loss.table} {loss.how}" for loss in find_losses(sql, dialect)] == losses


def test_a_loss_says_where_it_stands_and_how_sure_it_is():
    first, second, third = find_losses(
        "SELECT 1; DROP TABLE IF EXISTS a; DELETE FROM b WHERE id > 0; DELETE FROM c WHERE 'x"
        "' = 'x' -- '"
    )
    assert (first.statement_no, first.is_conditional, first.is_certain) == (2, True, True)
    assert (second.statement_no, second.is_conditional, second.is_certain) == (3, False, False)
    assert (third.table, third.is_certain) == ("c", True)


def test_a_quote_that_does_not_end_makes_the_last_statement_uncertain():
    first, last = find_losses("DELETE FROM a; UPDATE b SET x = 'open")
    assert first.is_certain
    assert not last.is_certain


_PIECES = st.sampled_from(
    [
        *("$$", "--", "/*", "*/", "\n", " ", "DROP", "TABLE", "DELETE", "FROM", "users", "WHERE"),
        *("1=1", "BEGIN", "END", "ROLLBACK", "TO", "WITH", "x", "AS", "NOT", "CREATE", "TRIGGER"),
        *("CASE", "UPDATE", "SET", "EXPLAIN", "DO", "IF", "EXISTS", "INSERT"),
        *"();,'\"`[]$.*=<>-/#\\",
    ]
)


@given(st.lists(_PIECES, max_size=30).map(" ".join) | st.text(max_size=60))
def test_no_text_is_an_error_and_the_answer_is_always_the_same(sql: str):
    assert find_losses(sql) == find_losses(sql)
    assert empties_table(sql, "users") == empties_table(sql, "users")


@pytest.mark.parametrize(
    "piece",
    ["(", "'", "BEGIN;", "SAVEPOINT a;", "WITH a AS (DELETE FROM b ", "/*", "x ", "WITH a;"],
)
def test_a_long_script_costs_linear_time(piece: str):
    def read(size: int) -> None:
        sql = piece * (size // len(piece))
        find_losses(sql)
        empties_table(sql, "users")

    assert grows_linearly(read, 4 * 1024)


@pytest.mark.parametrize("joint", [" AND ", " OR ", " NOT ", "("])
def test_a_long_condition_costs_linear_time(joint: str):
    def read(size: int) -> None:
        condition = "1=1" + f"{joint}1=1" * size
        find_losses(f"DELETE FROM t WHERE {condition}")  # noqa: S608 - nothing runs it

    assert grows_linearly(read, 250)
