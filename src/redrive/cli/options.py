"""Options and helpers that several verbs share."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from redrive.errors import UsageError
from redrive.reports.views import DamagedView
from redrive.stores.locate import find_cwd, find_home, locate_store, store_exists
from redrive.stores.port import SessionRow, Store
from redrive.stores.sqlite import open_store

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@contextmanager
def opened_store(explicit: str | None, *, create: bool = False) -> Iterator[Store]:
    """Open the store that the user means, and close it whatever happens.

    Raises:
        UsageError: there is no store yet and `create` is false.
        StoreError: it cannot be used.
    """
    path = locate_store(explicit, os.environ, find_cwd, find_home)
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a store", hint=f"name a file: {path}/store.db")
    if not create and not store_exists(path):
        raise UsageError(f"{path}: no store there yet", hint="redrive import PATH makes one")
    store = open_store(path, create=create)
    try:
        yield store
    finally:
        store.close()


def chosen_sessions(
    store: Store, names: tuple[str, ...]
) -> tuple[list[SessionRow], list[DamagedView]]:
    """Give the sessions named by id, unique prefix or `all`, each once.

    Returns:
        The sessions, and of `all` those that cannot be opened since their rows are damaged.
    """
    rows: dict[str, SessionRow] = {}
    damaged: dict[str, DamagedView] = {}
    for name in names:
        found, faults = store.list_sound() if name == "all" else ([store.get_session(name)], [])
        rows |= {row.session_id: row for row in found}
        damaged |= {f.session_id: DamagedView(f.session_id, f.fault) for f in faults}
    if not rows and not damaged:
        raise UsageError("the store holds no session", hint="redrive import PATH")
    return list(rows.values()), list(damaged.values())


def chosen_session(store: Store, name: str, verb: str) -> SessionRow:
    """Give the one session that a verb is about.

    Raises:
        UsageError: the name means none or several.
    """
    if name == "all":
        raise UsageError(f"{verb} takes one session", hint="`redrive sessions` lists them")
    return store.get_session(name)
