"""`redrive.rerun(fn, session)`: an agent's function runs again in this process.

Wires a stored session to the seams of `redrive.capture`, as `redrive.record` does for a recording:
`fn` gets an `AgentSession` and cannot tell. Clock and dice that the agent's own code reads by
itself are intercepted for the length of the rerun, whether they were while it was recorded or not.
"""

import asyncio
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from redrive.app.rerun_serving import RerunReport, RerunRequest, rerun_function
from redrive.capture.agent_code import find_root, find_roots
from redrive.capture.interception import intercept
from redrive.capture.manifest import build_manifest
from redrive.capture.serving import ServingBackend
from redrive.capture.session import AgentSession
from redrive.stores.locate import find_cwd, find_home, locate_store
from redrive.stores.port import Store
from redrive.stores.sqlite import open_store

_COMPARED = ("python", "platform", "code", "time_zone", "cpu_count")
"""What of a manifest is compared: the packages that were imported so far say nothing."""


def rerun(
    fn: Callable[[AgentSession], Any],
    session: str,
    *,
    store: str | os.PathLike[str] | Store | None = None,
    model: str | None = None,
    recompute: bool = True,
    code: str | os.PathLike[str] | None = None,
) -> RerunReport:
    """Run an agent's function again on a recorded session; nothing reaches the outside.

    Args:
        fn: the agent, sync or async; it is given the session that it would record with.
        session: id of the recorded session, or a unique prefix.
        store: the store's file, or an open store; else as `redrive.record` finds it.
        model: spec of a live model that answers each request, while the rest is served.
        recompute: let derived values be computed again, and compare them.
        code: the folder of the agent's own code; that of `fn` if absent.

    Returns:
        The report; what the agent raised stands in it.

    Raises:
        IneligibleError: the session was not recorded by redrive, or tools did not run at a seam.
        UsageError: no such session or model.
        StoreError, TamperError, ModelError: the record cannot be read, or the model failed.
    """
    roots = _roots_of(fn) if code is None else (Path(code).resolve(),)
    manifest = build_manifest(roots[0] if roots else Path.cwd())

    def run(backend: ServingBackend) -> Any:
        with intercept(backend, roots=roots):
            value = fn(AgentSession(backend))
            return asyncio.run(value) if inspect.iscoroutine(value) else value

    request = RerunRequest(session=session, model=model, recompute=recompute, variables=os.environ)
    environment = {name: manifest[name] for name in _COMPARED}
    with _opened(store) as opened:
        return rerun_function(opened, request, run, environment)


def _roots_of(fn: Callable[..., Any]) -> tuple[Path, ...]:
    """Find the folder of the agent's code: the function's own, else that of who calls."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is not None and not code.co_filename.startswith("<"):
        return (find_root(code.co_filename),)
    return find_roots(sys._getframe(2))


@contextmanager
def _opened(store: str | os.PathLike[str] | Store | None) -> Iterator[Store]:
    if store is not None and not isinstance(store, str | os.PathLike):
        yield store
        return
    named = None if store is None else os.fspath(store)
    path = locate_store(named, os.environ, find_cwd, find_home)
    opened = open_store(path, create=False)
    try:
        yield opened
    finally:
        opened.close()
