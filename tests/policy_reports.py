"""Stored policy reports for tests of labels: a policy's fires, quiet, hostile or suppressed."""

from typing import Any

from redrive import canonical
from redrive.compare.policy_report import FireView, PolicyDocument, PolicyReport, SessionFires
from redrive.stores.port import PolicyTables, ReportRow
from tests.stored import NS

SESSION = "test:a"
CODE = canonical.text_digest("def evaluate(event, state): ...")
# What a page, a terminal and a JSON block must each show as plain text.
HOSTILE = (
    "</script><script>alert(1)</script><!-- \x1b[2J\x1b]52;c;x\x07 \u202egpj.exe & \ud800 \u2028"
)


def fire(number: int, **changed: Any) -> FireView:
    """Make the fire on event `e{number}`."""
    facts: dict[str, Any] = {
        "event_ref": f"{SESSION}#e{number}",
        "state_snapshot_ref": f"s{number}",
        "action": "deny",
        "cooldown_suppressed": False,
        "leaf": "n9",
        "on_head_path": True,
        "notes": (),
        "reason": f"deletes files outside the project, case {number}",
        "seq": number,
        "step": number + 1,
        "actor": "main",
        "node_id": f"n{number}",
        "kind": "tool.call",
        "ts": "2026-11-30T17:00:00.000000000Z",
        "tool": "bash",
        "call_id": f"c{number}",
        "context": f"rm -rf ../build-{number}",
        "before": ("user: clean up the build", "bash: ls .."),
    }
    return FireView(**facts | changed)


def report_with(fires: list[FireView], **changed: Any) -> PolicyReport:
    """Make a policy's report of these fires in one session."""
    live = [f for f in fires if f.on_head_path and not f.cooldown_suppressed]
    session = SessionFires(SESSION, "0" * 64, ("n0", "n9"), 20, 12, 0, tuple(fires))
    facts: dict[str, Any] = {
        "policy": "no-rm",
        "version": "1.0",
        "digest": CODE,
        "source": "guards.py",
        "lane": "gate",
        "on": ("tool.call",),
        "cooldown_s": None,
        "per_segment": None,
        "critical": False,
        "needs": (),
        "mode": "strict",
        "model_fingerprint": None,
        "sessions_scanned": 1,
        "events_scanned": 20,
        "events_offered": 12,
        "fired": sum(not f.cooldown_suppressed for f in fires),
        "suppressed": sum(f.cooldown_suppressed for f in fires),
        "fired_on_head_path": len(live),
        "suppressed_on_head_path": 0,
        "decisions": {"deny": len(live)},
        "cannot_evaluate": (),
        "per_session": (session,) if fires else (),
        "invariant_checks": {},
        "faults": (),
        "unreplayable": (),
        "snapshots": {f"s{f.seq}": {"cwd": "project", "turn": f.seq} for f in fires},
    }
    return PolicyReport(**facts | changed)


def put_report(
    tables: PolicyTables, fires: list[FireView], *, digest: str = CODE, **changed: Any
) -> ReportRow:
    """Store a report of these fires."""
    report = report_with(fires, digest=digest, **changed)
    document = canonical.encode(PolicyDocument((report,), (SESSION,)))
    return tables.put_report(report.policy, report.version, digest, document, 7 * NS)
