"""Makes policy documents: small, big and hostile, without a replay."""

from collections.abc import Sequence
from typing import Any

import msgspec

from redrive.compare.policy_diff import diff_reports
from redrive.compare.policy_report import (
    CannotEvaluate,
    FireView,
    InvariantCheck,
    PolicyDiff,
    PolicyDocument,
    PolicyFault,
    PolicyReport,
    SessionFires,
    Unreplayable,
)

HOSTILE_TEXTS = (
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "\x1b[2J\x1b]52;c;ZXZpbA==\x07 \x9b31m",
    "safe \u202e gpj.exe \u2066",
    "\ud800 lone",
    "]]> &amp; \x00 \ufffe \x0b",
    "__proto__",
    "u2028 \u2028 u2029 \u2029",
    "=HYPERLINK(1)",
)
BIG_TEXT = "A long output that was not cut. " * 32768
FORCE_PUSH = "git push --force origin main"
_TOOLS = ("Bash", "Edit", "Write", "mcp__github__create_pull_request")
_COMMANDS = (
    FORCE_PUSH,
    "rm -rf build dist",
    "src/orders/checkout.py: replace the retry loop of charge()",
    'psql "$DATABASE_URL" -c "DELETE FROM orders WHERE created_at < now() - interval \'90 days\'"',
)


def fire(session_id: str, number: int, **fields: Any) -> FireView:
    """Make one fire on a live path; `number` is its `seq`."""
    minute, second = divmod(number, 60)
    tool = _TOOLS[number % len(_TOOLS)]
    plain = {
        "event_ref": f"{session_id}#e{number}",
        "state_snapshot_ref": "s1",
        "action": "deny",
        "cooldown_suppressed": False,
        "leaf": "n9",
        "on_head_path": True,
        "notes": (),
        "reason": "rewrites a branch that others pull from",
        "seq": number,
        "step": number // 2 + 1,
        "actor": "main",
        "node_id": f"n{number}",
        "kind": "tool.call",
        "ts": f"2026-05-{minute // 60 % 28 + 1:02}T09:{minute % 60:02}:{second:02}.000000000Z",
        "tool": tool,
        "call_id": f"call_{number}",
        "context": _COMMANDS[number % len(_COMMANDS)],
        "before": ("user: ship the fix before noon", "Bash: pytest -q", "result: 41 passed"),
        "dedup_key": "branch:main",
    }
    return FireView(**(plain | fields))


def session(session_id: str, fires: Sequence[FireView], **fields: Any) -> SessionFires:
    """Make what a policy did in one session."""
    plain = {
        "session_id": session_id,
        "head": f"{len(session_id):x}".rjust(64, "7"),
        "node_path": ("n0", "n1", "n9"),
        "events_scanned": 400,
        "events_offered": 120,
        "inherited": 0,
        "fires": tuple(fires),
    }
    return SessionFires(**(plain | fields))


def report(sessions: Sequence[SessionFires] = (), **fields: Any) -> PolicyReport:
    """Make one policy's report; the counts are those of its sessions."""
    matches = [match for part in sessions for match in part.fires]
    fired = [match for match in matches if not match.cooldown_suppressed]
    held = [match for match in matches if match.cooldown_suppressed]
    plain = {
        "policy": "no-force-push",
        "version": "1.2.0",
        "digest": "5c" * 32,
        "source": "guards.py",
        "lane": "gate",
        "on": ("tool.call",),
        "cooldown_s": None,
        "per_segment": None,
        "critical": True,
        "needs": (),
        "mode": "strict",
        "model_fingerprint": None,
        "sessions_scanned": max(1, len(sessions)),
        "events_scanned": sum(part.events_scanned for part in sessions),
        "events_offered": sum(part.events_offered for part in sessions),
        "fired": len(fired),
        "suppressed": len(held),
        "fired_on_head_path": sum(match.on_head_path for match in fired),
        "suppressed_on_head_path": sum(match.on_head_path for match in held),
        "decisions": {"deny": len(fired)},
        "cannot_evaluate": (),
        "per_session": tuple(sessions),
        "invariant_checks": {
            "loop_free": InvariantCheck("not_exercised", 0),
            "breaker_exempt": InvariantCheck("pass", 4),
            "critical_always_runs": InvariantCheck("pass", 120),
            "permission_monotone": InvariantCheck("pass", len(fired)),
        },
        "faults": (),
        "unreplayable": (),
        "snapshots": {"s1": {"branch": "main", "verification": {"passed": False, "runs": [1, 2]}}},
    }
    return PolicyReport(**(plain | fields))


def document(*reports: PolicyReport, **fields: Any) -> PolicyDocument:
    """Make a whole document over the sessions of its reports."""
    ids = dict.fromkeys(part.session_id for entry in reports for part in entry.per_session)
    plain = {
        "reports": reports,
        "sessions": tuple(ids),
        "nets": ("scan", "stand-in", "recheck", "limits", "watchdog"),
        "lets_through": ("a C extension that reads the clock",),
        "redaction": "rules@3",
    }
    return PolicyDocument(**(plain | fields))


def small() -> PolicyDocument:
    """Make what a reader meets on a good day: a gate with fires, and an observer in trouble."""
    first, second = "claude_code:5b1f2c8e-41aa", "codex:019a-77"
    held = fire(
        first,
        31,
        cooldown_suppressed=True,
        suppressed_by=f"{first}#e16",
        notes=("within 300 s of the fire",),
    )
    gate = report(
        (
            session(first, (fire(first, 4), fire(first, 16), held, fire(first, 77))),
            session(second, (fire(second, 8, on_head_path=False, ts=None), fire(second, 9))),
        ),
        decisions={"deny": 4, "ask": 1},
        unenforced=("a foreign hook may let the call through",),
    )
    return document(gate, observer(first), sessions=(first, second))


def observer(session_id: str) -> PolicyReport:
    """Make an observer's report with something of everything that can go wrong."""
    notified = fire(
        session_id,
        52,
        action="Notify",
        kind="custom",
        tool=None,
        reason="the tests were not run after the last edit",
        inferences={"is_frustrated": True, "topic": "release"},
    )
    return report(
        (session(session_id, (notified,), inherited=14),),
        policy="unverified-claims",
        version="0.4",
        lane="observer",
        on=("custom:agent.claim",),
        critical=False,
        cooldown_s=300.0,
        needs=("is_frustrated",),
        mode="augmented",
        model_fingerprint={"asked": "smol@1", "served": "smol-2026-05", "temperature": 0},
        decisions={},
        cannot_evaluate=(
            CannotEvaluate(f"{session_id}#e60", "the cooldown cannot be placed", "no ts"),
            CannotEvaluate(f"{session_id}#e61", "the inference is not in the cache", "topic"),
        ),
        invariant_checks={
            "loop_free": InvariantCheck("fail", 3, (f"{session_id}#e52: two Notify",)),
            "breaker_exempt": InvariantCheck("not_exercised", 0),
        },
        faults=(
            PolicyFault("stand-in", "calls time.time()", "guards.py:41", session_id, "x#e7"),
            PolicyFault("scan", "imports socket", ""),
        ),
        unreplayable=(Unreplayable("codex:broken", "the chain breaks at node n3"),),
        notes=("Notify precision: online-only",),
    )


def big(fires: int = 5000, sessions: int = 120) -> PolicyDocument:
    """Make a document of many fires, spread evenly over sessions."""
    names = [f"claude_code:{number:04x}-9f1e-4c55" for number in range(sessions)]
    shares = {name: range(place, fires, sessions) for place, name in enumerate(names)}
    parts = [
        session(name, [fire(name, number, **_variety(name, number)) for number in numbers])
        for name, numbers in shares.items()
    ]
    return document(report(parts), sessions=tuple(names))


def _variety(session_id: str, number: int) -> dict[str, Any]:
    """Spread the fires of a session over hours, tools and actions, the same way each time."""
    mixed = number * 7919 % 10007
    day = int(session_id[12:16], 16) % 90
    hour, minute = divmod(540 + number // 120 * 7 + mixed % 5, 60)
    held = {"cooldown_suppressed": True, "suppressed_by": f"{session_id}#e{number % 120}"}
    return {
        "action": ("deny", "ask")[mixed % 3 == 0],
        "tool": _TOOLS[mixed % 11 % 4],
        "context": _COMMANDS[mixed % 4],
        "on_head_path": mixed % 13 > 0,
        "ts": f"2026-{3 + day // 30:02}-{day % 30 + 1:02}T{hour:02}:{minute:02}:00Z",
    } | (held if mixed % 11 == 0 else {})


def hostile(big_text: str = BIG_TEXT) -> PolicyDocument:
    """Make a document in which every text is an attack on whoever shows it."""
    texts = (*HOSTILE_TEXTS, big_text)
    evil = "".join(HOSTILE_TEXTS)
    name = f"claude_code:{evil}"
    fires = [
        fire(
            name,
            number,
            event_ref=f"{name}#{text[:40]}{number}",
            action=text[:40],
            reason=text,
            context=text,
            before=(text[:2000],),
            notes=(text[:2000],),
            tool=text[:60],
            actor=text[:60],
            ts=text[:40],
            dedup_key=text[:60],
            state_snapshot_ref=text[:40],
            inferences={text[:40]: text[:2000]},
        )
        for number, text in enumerate(texts)
    ]
    return document(
        report(
            (session(name, fires, head=evil, node_path=(evil,)),),
            policy=evil,
            version=evil,
            source=evil,
            lane=evil,
            mode=evil,
            model_fingerprint={evil: evil},
            needs=(evil,),
            decisions={evil: 1},
            cannot_evaluate=(CannotEvaluate(evil, evil, evil),),
            invariant_checks={evil: InvariantCheck(evil, 1, (evil,))},
            faults=(PolicyFault(evil, evil, evil, evil, evil),),
            unreplayable=(Unreplayable(evil, evil),),
            snapshots={text[:40]: {text[:40]: [text[:2000]]} for text in texts},
            unenforced=(evil,),
            notes=(evil,),
        ),
        sessions=(name,),
        nets=(evil,),
        lets_through=(evil,),
        redaction=evil,
        coverage=evil,
    )


def small_diff() -> PolicyDiff:
    """Make a comparison that holds every change."""
    name = "claude_code:5b1f2c8e-41aa"
    old = report((session(name, [fire(name, number) for number in (1, 2, 3, 5)]),))
    held = fire(name, 2, cooldown_suppressed=True, suppressed_by=f"{name}#e1")
    fires = [fire(name, 1), held, fire(name, 3, action="ask"), fire(name, 4)]
    new = report(
        (session(name, fires),),
        version="2.0.0",
        digest="9d" * 32,
        cannot_evaluate=(CannotEvaluate(f"{name}#e5", "the cooldown cannot be placed", "no ts"),),
    )
    return diff_reports(old, new, (name,))


def plain(value: Any) -> Any:
    """Give a document as it is in JSON."""
    return msgspec.to_builtins(value)
