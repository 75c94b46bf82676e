"""Audits stored sessions; the audit itself is in the core."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redrive import canonical
from redrive.app.opening import OpenedSession, renderers
from redrive.audit.closure import ClosedTrajectory, try_close
from redrive.audit.report import AuditReport
from redrive.errors import RecordError, UsageError
from redrive.record.trajectory import Trajectory


def audit_session(
    session: OpenedSession,
    trajectory: Trajectory,
    *,
    environment: Mapping[str, Any] | None = None,
) -> tuple[AuditReport, ClosedTrajectory | None]:
    """Audit one path of a stored session, with every registered renderer at hand."""
    return try_close(
        session.index,
        trajectory,
        session.reader,
        session_started=session.started,
        renderers=renderers(),
        environment=environment,
    )


def read_environment(path: str) -> Mapping[str, Any]:
    """Read an environment description: one JSON object.

    Raises:
        UsageError: there is no such file.
        RecordError: it is no JSON object.
    """
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such file", where=path) from error
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}", where=path) from error
    try:
        value = canonical.decode_value(data)
    except ValueError as error:
        raise RecordError(f"{path}: not JSON: {error}", where=path) from error
    if not isinstance(value, dict):
        raise RecordError(f"{path}: expected one JSON object", where=path)
    return value
