"""Words and figures that every form of a trial's report uses alike.

Knows outcomes, purposes, money and intervals. Must not know text, HTML or XML.
"""

from redrive.compare.gate import GateResult
from redrive.compare.trial_report import SpendLine
from redrive.reports.counts import counted
from redrive.reports.escape import cut

OUTCOMES = {
    "complete": "ok",
    "failed": "FAILED",
    "denied": "DENIED",
    "limit": "LIMIT",
    "timeout": "TIMEOUT",
    "ceiling": "ceiling",
    "model": "MODEL",
    "cancelled": "cancelled",
    "interrupted": "cut off",
    "not_started": "not run",
}
MEANINGS = {
    "complete": "the workflow came to its end",
    "failed": "the workflow raised, or its command failed",
    "denied": "it called what it may not, and nothing of that happened",
    "limit": "it passed a limit on cpu, memory, processes, disk or output",
    "timeout": "it ran out of time",
    "ceiling": "the next call would have passed a ceiling",
    "model": "a model refused or failed; no failure of the workflow, and run again on resume",
    "cancelled": "it was interrupted, and is run again on resume",
    "interrupted": "it was begun and never ended, and is run again on resume",
    "not_started": "it was planned and never begun",
}
PURPOSES = {
    "replay": "runs (replay)",
    "judging": "judging",
    "inference": "inferences",
    "live": "live",
}
_NAME_CHARS = 200


def seconds(value: float) -> str:
    """Write a duration for a reader: `0.4s`, `12s`, `3m20s`, `2h05m`."""
    if value < 10:
        return f"{value:.1f}s"
    whole = round(value)
    if whole < 120:
        return f"{whole}s"
    if whole < 2 * 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def percent(share: float) -> str:
    """Write a share of 1; what is no certainty is never written as one."""
    if 0 < share < 0.005:
        return "<1%"
    if 0.995 < share < 1:
        return ">99%"
    return f"{share * 100:.0f}%"


def interval(value: float | None, low: float | None, high: float | None) -> str:
    """Write a share of 1 with its interval."""
    if value is None:
        return "not defined"
    if low is None or high is None:
        return percent(value)
    return f"{percent(value)} [{percent(low)}, {percent(high)}]"


def spend_line(line: SpendLine) -> str:
    """Say what a purpose cost, and under which ceiling."""
    held = f", USD {line.reserved_usd} still held back" if line.reserved_usd != "0.00" else ""
    open_calls = (
        f", {line.unsettled} unsettled, which count with their reservation"
        if line.unsettled
        else ""
    )
    return (
        f"USD {line.spent_usd} of a ceiling of USD {line.ceiling_usd}{held}"
        f" ({counted(line.calls, 'model call')}{open_calls})"
    )


def gate_text(gate: GateResult) -> str:
    """Say what a gate asks."""
    one, other = (cut(name, _NAME_CHARS) for name in (gate.one, gate.other))
    return f"{one} beats {other}" if gate.must_beat else f"{one} within {gate.margin:g} of {other}"


def gate_line(gate: GateResult) -> str:
    """Say in one line what a gate asks, what came out, and what the tasks can show at all."""
    if gate.difference is None:
        return f"Gate {gate_text(gate)}: {gate.status.upper()}: no task has both scores"
    found = f"difference {gate.difference:+.3f} [{gate.low:+.3f}, {gate.high:+.3f}]"
    least = gate.smallest_margin
    can = "" if least is None else f"; {counted(gate.n_tasks, 'task')} can show {least:.3f} at best"
    return f"Gate {gate_text(gate)}: {gate.status.upper()}: {found}{can}"
