"""Comparisons of two recorded sessions, or of two paths of one."""

import msgspec

from redrive.app.opening import OpenedSession, mode_of, open_session
from redrive.compare.divergence import MAX_DIFFERENCES, Comparison, diff_sessions
from redrive.errors import UsageError
from redrive.record.trajectory import Trajectory
from redrive.replay.recorded import RecordedRun, read_run
from redrive.stores.port import Store


class DiffSide(msgspec.Struct, frozen=True):
    """One path: its session, the node it ends at, and the store's head of the session."""

    session_id: str
    path: str | None
    head: str

    @property
    def name(self) -> str:
        """Name the path as a report does."""
        return self.session_id if self.path is None else f"{self.session_id} to {self.path}"


class DiffResult(msgspec.Struct, frozen=True):
    """Two recorded paths compared; the first is the expected one."""

    left: DiffSide
    right: DiffSide
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
    sides: list[tuple[RecordedRun, Trajectory, OpenedSession]] = []
    for name, path in zip(names, paths, strict=True):
        session = open_session(store, name)
        trajectory = session.trajectory(actor, path)
        recorded = read_run(session.index, trajectory, session.reader, mode=mode_of(session))
        sides.append((recorded, trajectory, session))
    if len({(side[2].row.session_id, side[1].leaf) for side in sides}) == 1:
        raise UsageError("both sides are the same path", hint="--path-a NODE --path-b NODE")
    (left, left_path, one), (right, right_path, two) = sides
    comparison = diff_sessions(
        (left, left_path, one.reader), (right, right_path, two.reader), max_differences
    )
    described = [
        DiffSide(session.row.session_id, path, session.row.head)
        for session, path in zip((one, two), paths, strict=True)
    ]
    return DiffResult(described[0], described[1], comparison)
