"""A policy replay, and two versions of a policy compared, shown as text.

Knows the documents. Must not know how they were made. Text from a recording is escaped and cut;
long lists are cut with their count, and are full in JSON.

Source: DESIGN.md §7 "Report".
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from redrive import canonical
from redrive.compare.policy_diff import CANNOT_EVALUATE, CHANGED, LOST, NEW, SAME, is_suppressed
from redrive.compare.policy_report import (
    DiffEntry,
    FireView,
    PolicyDiff,
    PolicyDocument,
    PolicyFault,
    PolicyReport,
    SessionFires,
)
from redrive.reports.counts import counted
from redrive.reports.escape import cut

SHOWN_FIRES = 20
SHOWN_ITEMS = 10
_NAME_CHARS = 200
_TEXT_CHARS = 300
_T = TypeVar("_T")

INVARIANTS = {
    "loop_free": "events that the framework started lead to at most one Notify",
    "breaker_exempt": "muting never touches a gate",
    "critical_always_runs": "a critical gate runs after any fault",
    "permission_monotone": "no action raises the rights of its context",
}
STATUSES = {
    "pass": "held wherever it was looked at",
    "fail": "violated",
    "not_exercised": "nothing in these sessions put it to the test: neither held nor violated",
}


def policy_lines(document: PolicyDocument) -> Iterator[str]:
    """Yield the lines of a policy replay: what was replayed, then policy by policy, then limits."""
    n_sessions = counted(len(document.sessions), "session")
    yield f"Policy replay of {n_sessions}, {counted(len(document.reports), 'policy', 'policies')}"
    yield from _partial(document)
    for report in document.reports:
        yield ""
        yield from _report_lines(report, document.branches)
    yield ""
    yield f"Purity nets {_names(document.nets) or 'none were on'}"
    if document.lets_through:
        first, *others = document.lets_through
        more = f"; {len(others)} more in --json and --html" if others else ""
        yield f"Not caught  {cut(first, _TEXT_CHARS)}{more}"
    if document.redaction:
        yield f"Redacted by {_name(document.redaction)}"
    yield f"Note        {cut(document.coverage, _TEXT_CHARS)}"


def _partial(document: PolicyDocument) -> Iterator[str]:
    if document.is_partial:
        left = document.sessions_left
        yield f"PARTIAL: interrupted, {counted(len(left), 'session')} not replayed"
        yield from _listed(left, lambda session_id: [f"  not replayed: {_name(session_id)}"])


def headline(report: PolicyReport) -> str:
    """Say in one line what a policy did; what makes its figures doubtful comes last."""
    parts = [
        f"fired {report.fired_on_head_path} on the head path ({report.fired} on all branches)",
        f"suppressed {report.suppressed_on_head_path} ({report.suppressed})",
        f"cannot evaluate {len(report.cannot_evaluate)}",
        counted(len(report.faults), "fault"),
        counted(report.sessions_scanned, "session"),
        f"{counted(report.events_scanned, 'event')} ({report.events_offered} judged)",
    ]
    return ", ".join(parts)


def _report_lines(report: PolicyReport, branches: str) -> Iterator[str]:
    yield f"{_name(report.policy)} {_name(report.version)}  {headline(report)}"
    yield from _fault_lines(report.faults)
    yield from _invariant_lines(report)
    yield f"  {_name(report.lane)} on {_names(report.on)}; {_identity(report)}"
    yield f"  {_mode(report)}"
    for note in (*report.notes, *(f"not enforced: {what}" for what in report.unenforced)):
        yield f"  note: {cut(note, _TEXT_CHARS)}"
    if report.decisions:
        yield f"  returned: {_counts(report.decisions.items())}"
    yield from _fires_lines(report, branches)
    yield from _doubt_lines(report)


def _identity(report: PolicyReport) -> str:
    hold = [f"cooldown {report.cooldown_s:g} s"] if report.cooldown_s is not None else []
    if report.per_segment is not None:
        hold.append(f"at most {report.per_segment} per segment")
    critical = ["critical"] if report.critical else []
    code = f"{_name(report.source)}, code {_name(report.digest[:12])}"
    return ", ".join((*hold, *critical, code))


def _mode(report: PolicyReport) -> str:
    needs = f", needs {_names(report.needs)}" if report.needs else ""
    if report.model_fingerprint is None:
        return f"mode {_name(report.mode)}{needs}"
    model = cut(canonical.encode(report.model_fingerprint).decode(), _TEXT_CHARS)
    return f"mode {_name(report.mode)}{needs}, inferences by {model}"


def _fault_lines(faults: Sequence[PolicyFault]) -> Iterator[str]:
    def lines(fault: PolicyFault) -> Iterator[str]:
        where = f" at {_name(fault.where)}" if fault.where else ""
        place = fault.event_ref or fault.session_id
        judging = f", judging {_name(place)}" if place else ", at load"
        yield f"  FAULT {_name(fault.net)}{where}: {cut(fault.what, _TEXT_CHARS)}{judging}"

    yield from _listed(faults, lines)


def _invariant_lines(report: PolicyReport) -> Iterator[str]:
    """Say what was violated and what held, one a line; what nothing tested stands in one."""
    checks = report.invariant_checks
    idle = [name for name, check in checks.items() if check.status == "not_exercised"]
    for name, check in sorted(checks.items(), key=lambda item: item[1].status != "fail"):
        if name in idle:
            continue
        status = "VIOLATED" if check.status == "fail" else _name(check.status)
        what = INVARIANTS.get(name, "")
        said = f" ({what})" if what else ""
        yield f"  invariant {_name(name)}: {status} × {check.count}{said}"
        yield from _listed(check.violations, lambda text: [f"    {cut(text, _TEXT_CHARS)}"])
    if idle:
        yield f"  invariants not_exercised: {_names(idle)} ({STATUSES['not_exercised']})"


def counting_fires(part: SessionFires, branches: str) -> Iterator[FireView]:
    """Yield the fires that count: those on live paths, or with branches `all` every one."""
    for match in part.fires:
        if not is_suppressed(match) and (branches == "all" or match.on_head_path):
            yield match


def _fires_lines(report: PolicyReport, branches: str) -> Iterator[str]:
    fires = [fire for part in report.per_session for fire in counting_fires(part, branches)]
    if fires:
        scope = "all branches" if branches == "all" else "head path"
        tools = Counter(fire.tool or f"no tool ({fire.kind})" for fire in fires)
        yield f"  fires by tool, {scope}: {_counts(tools.most_common())}"
    sessions = [part for part in report.per_session if part.fires]
    if sessions:
        yield "  by session:"
    yield from _listed(
        sessions,
        lambda part: [
            f"    {_name(part.session_id)}  {_session_counts(part.fires)}  head {_name(part.head)}"
        ],
    )
    matches = [match for part in report.per_session for match in part.fires]
    yield from _listed(matches, _match_lines, SHOWN_FIRES)


def _session_counts(matches: Sequence[FireView]) -> str:
    fires = [match for match in matches if not is_suppressed(match)]
    head = sum(match.on_head_path for match in fires)
    held = len(matches) - len(fires)
    suppressed = f", {held} suppressed" if held else ""
    return f"{head} on the head path, {len(fires)} on all branches{suppressed}"


def _match_lines(match: FireView) -> Iterator[str]:
    where = [
        _name(match.ts) if match.ts else "no time recorded",
        "before step 1" if match.step is None else f"step {match.step}",
        _name(match.actor),
        _name(match.tool or match.kind),
    ]
    marks = [] if match.on_head_path else ["[discarded path]"]
    if is_suppressed(match):
        by = f" by {_name(match.suppressed_by)}" if match.suppressed_by else ""
        marks.append(f"[suppressed{by}]")
    yield f"  {_name(match.action)}  {_name(match.event_ref)}  {'  '.join((*where, *marks))}"
    yield f"    {cut(match.context, _TEXT_CHARS)}"
    if match.reason:
        yield f"    reason: {cut(match.reason, _TEXT_CHARS)}"
    if match.asked:
        yield f"    the user had said: {cut(match.asked, _TEXT_CHARS)}"
    for note in match.notes:
        yield f"    note: {cut(note, _TEXT_CHARS)}"
    if match.inferences:
        yield f"    rests on: {cut(canonical.encode(match.inferences).decode(), _TEXT_CHARS)}"


def _doubt_lines(report: PolicyReport) -> Iterator[str]:
    """Yield what could not be judged."""
    missing = Counter(place.fact for place in report.cannot_evaluate)
    if missing:
        yield f"  cannot evaluate, by missing fact: {_counts(missing.most_common())}"
    yield from _listed(
        report.cannot_evaluate,
        lambda place: [
            f"    {_name(place.event_ref)}: {cut(place.reason, _TEXT_CHARS)} ({_name(place.fact)})"
        ],
    )
    yield from _listed(
        report.unreplayable,
        lambda entry: [
            f"  unreplayable: {_name(entry.session_id)}: {cut(entry.reason, _TEXT_CHARS)}"
        ],
    )


_CHANGES = (
    (NEW, "fires in the new version only"),
    (LOST, "fires in the old version only"),
    (CHANGED, "another action"),
    (CANNOT_EVALUATE, "cannot be evaluated"),
    (SAME, "the same action"),
)


def diff_lines(diff: PolicyDiff) -> Iterator[str]:
    """Yield the lines of two versions compared: the figures first, then what changed."""
    old, new = (_version(side) for side in (diff.old, diff.new))
    n_sessions = counted(len(diff.sessions), "session")
    yield f"{_name(diff.policy)}  {old} → {new}, on {n_sessions}"
    yield f"  {', '.join(f'{name} {count}' for name, count in diff.counts.items())}"
    yield f"  widened: {diff.widened} (new fires, or stricter ones, on a live path)"
    yield from _fault_lines(diff.faults)
    for change, meaning in _CHANGES:
        entries = [entry for entry in diff.entries if entry.change == change]
        if change == SAME:
            entries = [entry for entry in entries if entry.fact]
            meaning = "the same action, from other facts"
        if entries:
            yield f"  {change}: {len(entries)} ({meaning})"
        yield from _listed(entries, _entry_lines, SHOWN_FIRES)


def _version(side: dict[str, str]) -> str:
    return f"{_name(side.get('version', '?'))} ({_name(side.get('digest', '')[:12])})"


def _entry_lines(entry: DiffEntry) -> Iterator[str]:
    match = entry.new or entry.old
    discarded = "" if match is None or match.on_head_path else "  [discarded path]"
    yield f"    {_name(entry.event_ref)}  {cut(entry.fact, _TEXT_CHARS)}{discarded}"
    if match is not None:
        yield f"      {_name(match.tool or match.kind)}: {cut(match.context, _TEXT_CHARS)}"


def _listed(
    items: Sequence[_T], lines: Callable[[_T], Iterable[str]], limit: int = SHOWN_ITEMS
) -> Iterator[str]:
    """Yield the lines of the first items, and how many are left out."""
    for item in islice(items, limit):
        yield from lines(item)
    if len(items) > limit:
        yield f"    … {len(items) - limit} more of {len(items)} (all with --json)"


def _counts(pairs: Iterable[tuple[str, int]]) -> str:
    shown = list(pairs)
    rest = f", {len(shown) - SHOWN_ITEMS} more" if len(shown) > SHOWN_ITEMS else ""
    return ", ".join(f"{_name(name)} {count}" for name, count in shown[:SHOWN_ITEMS]) + rest


def _names(names: Sequence[str], between: str = ", ") -> str:
    return between.join(map(_name, names))


def _name(text: str) -> str:
    return cut(text, _NAME_CHARS)
