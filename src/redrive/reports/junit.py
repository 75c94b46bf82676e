"""Writes findings as JUnit XML, the form in which CI services show tests.

Knows suites of cases, and how a policy replay becomes them. XML 1.0 cannot carry every character,
not even as a reference: what is not printable (which all of these are) is shown as an escape.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from redrive.compare.policy_diff import owner_of
from redrive.compare.policy_report import (
    CannotEvaluate,
    FireView,
    PolicyDocument,
    PolicyReport,
    SessionFires,
)
from redrive.reports.counts import counted
from redrive.reports.escape import cut, escape
from redrive.reports.policy import counting_fires

SHOWN_ITEMS = 100
_TEXT_CHARS = 300
_NAME_CHARS = 500
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"})


class Finding(msgspec.Struct, frozen=True):
    """Why a case is not passed: one line, and the whole text."""

    message: str
    text: str = ""
    type: str = ""


class Case(msgspec.Struct, frozen=True):
    """One case; it passed where it has neither a failure nor an error.

    Attributes:
        failure: what the suite is there to find.
        error: why the answer is not known; a case may have both.
        output: what a reader may want to see of a case that passed.
    """

    name: str
    class_name: str
    failure: Finding | None = None
    error: Finding | None = None
    output: str = ""


class Suite(msgspec.Struct, frozen=True):
    """Cases under one name; `properties` are shown beside them."""

    name: str
    cases: tuple[Case, ...]
    properties: tuple[tuple[str, str], ...] = ()


def policy_junit(document: PolicyDocument, branches: str = "head", max_fires: int = 0) -> bytes:
    """Write a policy replay as JUnit XML: a suite per policy, a case per session.

    Args:
        document: the report.
        branches: `head` or `all`: which fires count.
        max_fires: how many fires a policy may have, over all sessions; up to here its fires are
            output, beyond they are failures.

    Returns:
        UTF-8 XML. A fault, a session that could not be replayed or was not reached, and a place
        that cannot be evaluated are errors. A fault at load and a violated invariant are errors
        of a case of their own.
    """
    return junit_xml("redrive policy replay", _policy_suites(document, branches, max_fires))


def _policy_suites(document: PolicyDocument, branches: str, max_fires: int) -> Iterator[Suite]:
    for report in document.reports:
        is_over = _count_fires(report, branches) > max_fires
        cases = list(_policy_cases(document, report, branches, is_over=is_over))
        properties = {
            "version": report.version,
            "digest": report.digest,
            "mode": report.mode,
            "branches": branches,
            "max_fires": str(max_fires),
            "is_partial": str(document.is_partial).lower(),
            "coverage": document.coverage,
        }
        yield Suite(report.policy, tuple(cases), tuple(properties.items()))


def _count_fires(report: PolicyReport, branches: str) -> int:
    return sum(1 for part in report.per_session for _ in counting_fires(part, branches))


def _policy_cases(
    document: PolicyDocument, report: PolicyReport, branches: str, *, is_over: bool
) -> Iterator[Case]:
    parts = {part.session_id: part for part in report.per_session}
    errors = _errors_by_session(document, report)
    if None in errors:
        yield Case("(all sessions)", report.policy, error=_joined(errors.pop(None)))
    names = dict.fromkeys((*document.sessions, *parts, *(name for name in errors if name)))
    for name in names:
        fires = _fires_finding(parts.get(name), branches)
        yield Case(
            name,
            report.policy,
            failure=fires if is_over else None,
            error=_joined(errors.get(name, [])),
            output="" if fires is None or is_over else fires.text,
        )


def _errors_by_session(
    document: PolicyDocument, report: PolicyReport
) -> dict[str | None, list[Finding]]:
    """Sort what makes an answer unknown by session; `None` is what belongs to no known one."""
    found: dict[str | None, list[Finding]] = {}
    for fault in report.faults:
        where = f" at {fault.where}" if fault.where else ""
        judging = f"judging {fault.event_ref}" if fault.event_ref else ""
        finding = Finding(f"fault ({fault.net}){where}: {fault.what}", judging, "fault")
        found.setdefault(fault.session_id, []).append(finding)
    for name, check in report.invariant_checks.items():
        if check.status == "fail":
            violations = _lines(check.violations, len(check.violations))
            finding = Finding(f"invariant {name} violated", violations, "invariant")
            found.setdefault(None, []).append(finding)
    for entry in report.unreplayable:
        finding = Finding(f"unreplayable: {entry.reason}", "", "unreplayable")
        found.setdefault(entry.session_id, []).append(finding)
    for name in document.sessions_left:
        finding = Finding("interrupted before this session", "", "not replayed")
        found.setdefault(name, []).append(finding)
    for owner, places in _missing_by_session(document, report).items():
        facts = ", ".join(dict.fromkeys(place.fact for place in places))
        message = f"cannot evaluate {counted(len(places), 'event')}: {facts}"
        lines = (f"{place.event_ref}: {place.reason} ({place.fact})" for place in places)
        finding = Finding(message, _lines(lines, len(places)), "cannot evaluate")
        found.setdefault(owner, []).append(finding)
    return found


def _missing_by_session(
    document: PolicyDocument, report: PolicyReport
) -> dict[str | None, list[CannotEvaluate]]:
    known = frozenset(document.sessions)
    places: dict[str | None, list[CannotEvaluate]] = {}
    for place in report.cannot_evaluate:
        places.setdefault(owner_of(place.event_ref, known), []).append(place)
    return places


def _joined(findings: list[Finding]) -> Finding | None:
    """Make one finding of several: parsers read one error of a case."""
    if len(findings) < 2:
        return findings[0] if findings else None
    lines = [line for entry in findings for line in (entry.message, entry.text) if line]
    message = f"{findings[0].message} (and {len(findings) - 1} more)"
    return Finding(message, "\n".join(lines), findings[0].type)


def _fires_finding(part: SessionFires | None, branches: str) -> Finding | None:
    fires = [] if part is None else list(counting_fires(part, branches))
    if not fires:
        return None
    actions = Counter(fire.action for fire in fires)
    message = ", ".join(f"{action} {count}" for action, count in actions.most_common())
    text = _lines(map(_fire_text, fires), len(fires))
    return Finding(f"{counted(len(fires), 'fire')}: {message}", text, "fire")


def _fire_text(fire: FireView) -> str:
    where = f"{fire.event_ref}  {fire.ts or 'no time recorded'}  {fire.tool or fire.kind}"
    context, reason = (cut(text, _TEXT_CHARS) for text in (fire.context, fire.reason))
    return f"{fire.action}  {where}\n  {context}\n  reason: {reason}"


def _lines(lines: Iterable[str], total: int) -> str:
    shown = list(islice(lines, SHOWN_ITEMS))
    more = [f"… {total - len(shown)} more of {total}"] if total > len(shown) else []
    return "\n".join((*shown, *more))


def junit_xml(name: str, suites: Iterable[Suite]) -> bytes:
    """Write suites as one JUnit document, UTF-8; texts may hold any character."""
    parts: list[str] = []
    totals = [0, 0, 0]
    for suite in suites:
        counts = _totals(suite)
        totals = [sum(pair) for pair in zip(totals, counts, strict=True)]
        parts.extend(_suite(suite, counts))
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites{_counts(name, totals)}>\n'
    return (head + "".join(parts) + "</testsuites>\n").encode()


def _totals(suite: Suite) -> list[int]:
    failures = sum(case.failure is not None for case in suite.cases)
    errors = sum(case.error is not None for case in suite.cases)
    return [len(suite.cases), failures, errors]


def _counts(name: str, counts: Sequence[int]) -> str:
    names = ("tests", "failures", "errors")
    numbers = [(key, str(count)) for key, count in zip(names, counts, strict=True)]
    return _attributes(("name", name), *numbers)


def _suite(suite: Suite, counts: Sequence[int]) -> Iterator[str]:
    yield f'<testsuite{_counts(suite.name, counts)} skipped="0">\n'
    if suite.properties:
        pairs = (
            f"<property{_attributes(('name', key), ('value', value))}/>"
            for key, value in suite.properties
        )
        yield f"<properties>{''.join(pairs)}</properties>\n"
    for case in suite.cases:
        yield f"<testcase{_attributes(('classname', case.class_name), ('name', case.name))}>"
        for tag, finding in (("error", case.error), ("failure", case.failure)):
            if finding is not None:
                about = _attributes(("message", finding.message), ("type", finding.type))
                yield f"<{tag}{about}>{_content(finding.text)}</{tag}>"
        if case.output:
            yield f"<system-out>{_content(case.output)}</system-out>"
        yield "</testcase>\n"
    yield "</testsuite>\n"


def _attributes(*pairs: tuple[str, str]) -> str:
    return "".join(f' {key}="{_marked(cut(value, _NAME_CHARS))}"' for key, value in pairs)


def _content(text: str) -> str:
    return _marked(escape(text, keep_lines=True))


def _marked(text: str) -> str:
    return text.translate(_MARKUP)
