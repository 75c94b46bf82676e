"""SQL that a shell command hands to a database's client.

Knows where each client takes its SQL from, and its dialect. Must not judge SQL itself.
"""

from collections.abc import Iterator, Mapping

import msgspec

from redrive.policies.shell_command import Command, read_options
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_paths import is_scratch
from redrive.policies.sql import find_losses


class _Client(msgspec.Struct, frozen=True):
    """A client: its dialect, the options that hold SQL, those with a value, which operands are SQL.

    `first_sql` is the number of the first operand that is SQL; below zero: none is.
    """

    dialect: str
    sql: tuple[str, ...]
    with_value: tuple[str, ...] = ()
    first_sql: int = -1


_MYSQL = _Client("mysql", ("-e", "--execute"), ("-h", "-u", "-P", "-D", "--host", "--user"))
_PSQL = _Client(
    "postgres",
    ("-c", "--command"),
    ("-h", "-U", "-p", "-d", "-f", "-v", "-o", "-F", "--host", "--username", "--dbname", "--set"),
)
_SQLITE = _Client("sqlite", ("-cmd", "--cmd"), ("-separator", "-init", "-newline"), 1)
CLIENTS: Mapping[str, _Client] = {
    **dict.fromkeys(("mysql", "mariadb"), _MYSQL),
    **dict.fromkeys(("psql", "pgcli", "cockroach"), _PSQL),
    **dict.fromkeys(("sqlite3", "sqlite", "litecli"), _SQLITE),
    "duckdb": _Client("duckdb", ("-c", "-s", "-cmd"), ("-separator", "-init"), 1),
    "clickhouse-client": _Client("clickhouse", ("-q", "--query"), ("-h", "--host", "--port", "-u")),
    "sqlcmd": _Client("tsql", ("-Q", "-q"), ("-S", "-U", "-P", "-d")),
    "snowsql": _Client("snowflake", ("-q", "--query"), ("-a", "-u", "-d", "-c")),
    "bq": _Client("bigquery", (), ("--project_id", "--dataset_id", "--location"), 1),
    "influx": _Client("", ("-execute", "--execute"), ("-database", "-host", "-port")),
    **dict.fromkeys(("hive", "beeline"), _Client("hive", ("-e",), ("-u", "-n", "-p"))),
    "sql.execute": _Client("", (), (), 0),
    "cqlsh": _Client("", ("-e", "--execute"), ("-u", "-p", "-k")),
}


_FILE_DIALECTS = frozenset({"sqlite", "duckdb"})
_IN_MEMORY = ":memory:"


def judge_sql(command: Command, root: str | None) -> Iterator[Danger]:
    """Judge what a client is given to run: as an option, an operand or its input."""
    client = CLIENTS.get(command.program)
    if client is None:
        return
    options = read_options(command.words[1:], (*client.sql, *client.with_value))
    texts = options.values(*client.sql)
    if client.first_sql >= 0:
        texts += options.operands[client.first_sql :]
    if not texts and command.stdin.text:
        texts = [command.stdin.text]
    if client.dialect in _FILE_DIALECTS and not _opens_another(texts):
        name = options.operands[0] if options.operands else _IN_MEMORY
        if name == _IN_MEMORY or is_scratch(name, folder=command.cwd, root=root):
            return
    for text in texts:
        statements = "\n".join(
            line for line in text.split("\n") if not line.startswith((".", "\\"))
        )
        for loss in find_losses(statements, client.dialect or None):
            severity = Severity.DENY if loss.is_certain and not loss.is_mild else Severity.ASK
            yield make_danger("sql_data_loss", command, loss.table, severity=severity)


def _opens_another(texts: list[str]) -> bool:
    """Tell whether SQL for a database in a file goes on to another one."""
    return any(".open" in text or "attach" in text.lower() for text in texts)
