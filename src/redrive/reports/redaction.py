"""What a redaction did, as values and as lines of text.

Knows shapes and words. Must not know stores, nor how secrets are found.

Source: docs/redaction.md; `redrive redact`.
"""

from collections.abc import Iterable, Iterator

import msgspec

from redrive.reports.counts import counted
from redrive.reports.escape import escape
from redrive.reports.redact_rules import RULES_VERSION

__all__ = [
    "MaskedRule",
    "PolicyRows",
    "RedactionReport",
    "SessionRedaction",
    "TouchedStep",
    "TrialRows",
    "redaction_lines",
]

_SHOWN_STEPS = 12


class MaskedRule(msgspec.Struct, frozen=True):
    """What one rule found in a session: different secrets, and places where they stood."""

    rule: str
    secrets: int
    places: int


class TouchedStep(msgspec.Struct, frozen=True):
    """A step of an actor's path that lacks something since the redaction.

    `opened`: it was closed before.
    """

    actor: str
    step: int
    opened: bool


class SessionRedaction(msgspec.Struct, frozen=True):
    """What a redaction did to one session, or would do.

    Attributes:
        session_id: as the store names it.
        old_head: digest of its last segment before; checked by `verify --head`.
        head: its head now; equal where nothing was masked, absent in a dry run.
        rules: what was masked, by rule.
        events: how many events were changed.
        bodies: how many answers, as they were sent, gave way to a mark.
        sources: how many recorded files were rewritten.
        steps: the steps of each actor's path to its head that lack something now.
    """

    session_id: str
    old_head: str
    head: str | None
    rules: tuple[MaskedRule, ...]
    events: int
    bodies: int
    sources: int
    steps: tuple[TouchedStep, ...]


class PolicyRows(msgspec.Struct, frozen=True):
    """How many stored rows about policies held a secret too; inferences were dropped."""

    reports: int = 0
    inferences: int = 0
    labels: int = 0
    hook_decisions: int = 0


class TrialRows(msgspec.Struct, frozen=True):
    """How much of trials held a secret too; kept files (answers, archives) were dropped."""

    plans: int = 0
    entries: int = 0
    artefacts: int = 0


class RedactionReport(msgspec.Struct, frozen=True):
    """What one `redact` did.

    Attributes:
        sessions: in the order named.
        dry_run: whether nothing was written.
        policies: what else was redacted.
        trials: of trials.
        also_in: other sessions of the store that hold one of the secrets.
        left: why bytes of what was removed may still lie in the file; empty where none do.
    """

    sessions: tuple[SessionRedaction, ...]
    dry_run: bool
    policies: PolicyRows = PolicyRows()
    also_in: tuple[str, ...] = ()
    left: str = ""
    rules_version: str = RULES_VERSION
    trials: TrialRows = TrialRows()


def redaction_lines(report: RedactionReport) -> Iterator[str]:
    """Write a report for a terminal."""
    for session in report.sessions:
        yield from _session_lines(session, is_dry=report.dry_run)
    yield from _policy_lines(report.policies)
    yield from _trial_lines(report.trials)
    if report.also_in:
        names = ", ".join(map(escape, report.also_in))
        yield f"the same secrets are in {names}: redact them too"
    if report.left:
        yield f"NOT CLEAN: old bytes may still lie in the store's file: {escape(report.left)}"


def _session_lines(session: SessionRedaction, *, is_dry: bool) -> Iterator[str]:
    name = escape(session.session_id)
    if not session.rules:
        yield f"{name}: no secret found"
        return
    verb = "would be masked" if is_dry else "masked"
    n_secrets = sum(rule.secrets for rule in session.rules)
    n_places = sum(rule.places for rule in session.rules)
    yield (
        f"{name}: {counted(n_secrets, 'secret')} {verb} in {counted(n_places, 'place')} of "
        f"{counted(session.events, 'event')}"
    )
    for rule in session.rules:
        places = counted(rule.places, "place")
        yield f"  {counted(rule.secrets, 'secret')} in {places} by the rule {escape(rule.rule)}"
    if session.bodies:
        yield f"  {counted(session.bodies, 'answer')} as sent: only a mark is kept"
    if session.sources:
        yield f"  {counted(session.sources, 'recorded file')}: rewritten with marks"
    yield f"  {_steps_text(session, is_dry=is_dry)}"
    yield f"  head {session.old_head}"
    if session.head is not None:
        yield f"   now {session.head}; a redacted session has another head"


def _steps_text(session: SessionRedaction, *, is_dry: bool) -> str:
    opened = [step for step in session.steps if step.opened]
    said = f"{counted(len(opened), 'step')} {'would be opened' if is_dry else 'opened'}"
    said += f", {len(session.steps) - len(opened)} that were open lack more"
    shown = ", ".join(f"{escape(s.actor)} {s.step}" for s in session.steps[:_SHOWN_STEPS])
    more = len(session.steps) - _SHOWN_STEPS
    return f"{said}: {shown}{f' and {more} more' if more > 0 else ''}" if shown else said


def _policy_lines(rows: PolicyRows) -> Iterator[str]:
    words = (
        (counted(rows.reports, "policy report"), "redacted"),
        (counted(rows.inferences, "cached inference"), "dropped"),
        (counted(rows.labels, "label"), "redacted"),
        (counted(rows.hook_decisions, "hook decision"), "redacted"),
    )
    yield from _said(words)


def _trial_lines(rows: TrialRows) -> Iterator[str]:
    words = (
        (counted(rows.plans, "trial plan"), "redacted"),
        (counted(rows.entries, "ledger entry", "ledger entries"), "redacted"),
        (counted(rows.artefacts, "file that a trial kept", "files that trials kept"), "dropped"),
    )
    yield from _said(words)


def _said(words: Iterable[tuple[str, str]]) -> Iterator[str]:
    for count, what in words:
        if not count.startswith("0 "):
            yield f"{count} {what}"
