from redrive.reports.redact import Redactor
from redrive.reports.redaction import (
    MaskedRule,
    PolicyRows,
    RedactionReport,
    SessionRedaction,
    TouchedStep,
    redaction_lines,
)


def session(**fields):
    base = {
        "session_id": "redrive:a",
        "old_head": "0" * 64,
        "head": "1" * 64,
        "rules": (MaskedRule("authorization", 2, 9),),
        "events": 3,
        "bodies": 1,
        "sources": 0,
        "steps": (TouchedStep("main", 2, opened=True), TouchedStep("main", 3, opened=False)),
    }
    return SessionRedaction(**base | fields)


def test_a_report_says_what_was_masked_and_what_that_opened():
    lines = list(redaction_lines(RedactionReport((session(),), dry_run=False)))
    assert lines == [
        "redrive:a: 2 secrets masked in 9 places of 3 events",
        "  2 secrets in 9 places by the rule authorization",
        "  1 answer as sent: only a mark is kept",
        "  1 step opened, 1 that were open lack more: main 2, main 3",
        f"  head {'0' * 64}",
        f"   now {'1' * 64}; a redacted session has another head",
    ]
    redactor = Redactor(b"k" * 32)
    assert [redactor.text(line) for line in lines] == lines


def test_a_dry_run_speaks_of_what_would_be_and_names_no_new_head():
    steps = tuple(TouchedStep("main", number, opened=True) for number in range(1, 20))
    report = RedactionReport((session(head=None, steps=steps, sources=1),), dry_run=True)
    text = "\n".join(redaction_lines(report))
    assert "would be masked" in text
    assert "19 steps would be opened" in text
    assert "main 12 and 7 more" in text
    assert "1 recorded file: rewritten with marks" in text
    assert "now" not in text


def test_what_else_was_found_is_said():
    report = RedactionReport(
        (session(rules=(), steps=()),),
        dry_run=False,
        policies=PolicyRows(inferences=2, labels=1),
        also_in=("redrive:b", "redrive:\x1bc"),
        left="another process is reading the store",
    )
    assert list(redaction_lines(report)) == [
        "redrive:a: no secret found",
        "2 cached inferences dropped",
        "1 label redacted",
        "the same secrets are in redrive:b, redrive:\\x1bc: redact them too",
        "NOT CLEAN: old bytes may still lie in the store's file: another process is reading"
        " the store",
    ]


def test_masks_without_a_step_are_told_as_well():
    text = "\n".join(redaction_lines(RedactionReport((session(steps=()),), dry_run=False)))
    assert "0 steps opened, 0 that were open lack more\n" in text
