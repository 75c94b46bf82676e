"""The lines of a precision say what the figures say, and escape what comes from outside."""

from redrive.compare.precision import Drawn, Label, judge_precision, recall
from redrive.reports.precision import precision_lines, recall_lines


def lines(said, confidence=0.95, **changed):
    words = {"t": "true", "f": "false", "u": "unsure"}
    labels = [
        Label(f"a#{place}", rater, words[letter])
        for rater, letters in said.items()
        for place, letter in enumerate(letters)
    ]
    facts = {"policy": "p", "version": "1", "sample": "s", "population": 20, "drawn": 10}
    return list(precision_lines(judge_precision(labels, Drawn(**facts | changed), confidence)))


def test_a_figure_with_its_interval_counts_and_agreement():
    shown = lines({"ann": "tttttttttf", "bob": "tttttttttf"}, confidence=0.9)
    assert shown[:4] == [
        "p@1  precision 0.900 on these sessions, 90 % interval 0.606 to 0.995 (9 of 10,"
        " Clopper-Pearson)",
        "  at a gate  9 of 10, lower bound 0.606; unsure is false",
        "  labels     9 true, 1 false, 0 unsure, 0 not settled by ann, bob; 10 of 10 drawn from"
        " 20 fires, sample s",
        "  agreement  1.000 raw, 1.000 Gwet AC1, of ann and bob on 10 fires",
    ]
    assert shown[4].startswith("  note       10 of 20 fires")


def test_no_figure_is_said_as_none():
    assert lines({}, sample=None, drawn=0) == [
        "p@1  precision unknown: no fire is labelled true or false"
    ]
    assert lines({"ann": "u"})[:2] == [
        "p@1  precision unknown: no fire is labelled true or false",
        "  at a gate  0 of 1, lower bound 0.000; unsure is false",
    ]


def test_recall_names_its_set_and_lists_what_was_missed():
    assert list(recall_lines(recall("places", ["a#1", "a#\x1b2"], ["a#1"]))) == [
        "  recall     1 of 2 places in places, 95 % interval 0.013 to 0.987",
        "  missed     a#\\x1b2",
    ]


def test_names_are_escaped():
    shown = "\n".join(lines({"a\x1b[2J": "t", "b": "t"}, policy="p\x1b", version="\u202e1"))
    assert "\x1b" not in shown
    assert "\u202e" not in shown
