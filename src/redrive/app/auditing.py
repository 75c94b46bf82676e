"""Audits stored sessions; the audit itself is in the core."""

from collections.abc import Mapping
from typing import Any

from redrive.app.opening import OpenedSession, renderers
from redrive.audit.closure import ClosedTrajectory, try_close
from redrive.audit.report import AuditReport
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
