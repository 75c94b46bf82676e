from redrive.audit.gaps import make_gap
from redrive.audit.report import ClosureReport, sum_up, with_gaps
from redrive.reports.audit import audit_lines, headline

CLOSED = ClosureReport(1, 1, "n", "closed", True, "vouched", (), ())


def text_of(*steps):
    return "\n".join(audit_lines(sum_up("s:1", "main", steps, ()), "ab"))


def test_a_gap_names_its_class_once():
    clock = make_gap("clock_not_captured", "clock", state="unknown")
    result = make_gap("missing_result", "tool_result:c1", tool="t")
    text = text_of(with_gaps(CLOSED, (clock, result)))
    assert f"\n    clock: {clock.reason}\n" in text
    assert f"\n    environment: tool_result:c1: {result.reason}\n" in text


def test_steps_are_counted_with_their_noun():
    assert headline(sum_up("s", "main", (CLOSED,), ())) == "closed: 1 step"
    assert headline(sum_up("s", "main", (CLOSED, CLOSED), ())) == "closed: all 2 steps"
    gap = make_gap("no_seed", "seed")
    assert "(1 of 1 step open," in headline(sum_up("s", "main", (with_gaps(CLOSED, (gap,)),), ()))
