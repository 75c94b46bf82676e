"""Comparisons of two recorded sessions, or of two paths of one."""

import msgspec

from redrive.app.opening import OpenedSession, open_session
from redrive.app.shadowing import mode_of
from redrive.compare.divergence import MAX_DIFFERENCES, Comparison, diff_sessions
from redrive.errors import UsageError
from redrive.record.trajectory import Trajectory
from redrive.replay.recorded import RecordedRun, read_run
from redrive.stores.port import Store


class DiffResult(msgspec.Struct, frozen=True):
    """Two recorded paths compared; the first is the expected one."""

    left: str
    right: str
    comparison: Comparison


def diff_paths(
    store: Store,
    names: tuple[str, str],
    paths: tuple[str | None, str | None] = (None, None),
    *,
    actor: str | None = None,
    max_differences: int = MAX_DIFFERENCES,
) -> DiffResult:
    """Compare two recorded sessions, or two paths of one, results included.

    Raises:
        UsageError: a session, path or actor does not exist, or both sides are the same path.
    """
    if names[0] == names[1] and paths[0] == paths[1]:
        raise UsageError("both sides are the same path", hint="--path-a NODE --path-b NODE")
    sides: list[tuple[RecordedRun, Trajectory, OpenedSession]] = []
    for name, path in zip(names, paths, strict=True):
        session = open_session(store, name)
        trajectory = session.trajectory(actor, path)
        recorded = read_run(session.index, trajectory, session.reader, mode=mode_of(session))
        sides.append((recorded, trajectory, session))
    (left, left_path, one), (right, right_path, two) = sides
    comparison = diff_sessions(
        (left, left_path, one.reader), (right, right_path, two.reader), max_differences
    )
    return DiffResult(one.row.session_id, two.row.session_id, comparison)
