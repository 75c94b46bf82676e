"""One key a fire: what each key does, and that hostile text reaches a terminal as escapes only."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.app.annotating import begin_annotation
from redrive.app.annotation_terminal import KEYS_HELP, LEFT, RIGHT, label_by_keys
from redrive.stores.port import PolicyTables
from tests.policy_reports import HOSTILE, fire, put_report
from tests.stored import opened


class Typed:
    """Keys that were typed before."""

    def __init__(self, text: str) -> None:
        self._rest = text

    def read_key(self) -> str:
        key, self._rest = self._rest[:1], self._rest[1:]
        return {"<": LEFT, ">": RIGHT}.get(key, key)

    def read_line(self) -> str:
        line, _, self._rest = self._rest.partition("\n")
        return line


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[PolicyTables]:
    with opened(tmp_path / "store.db") as store:
        put_report(store.policies, [fire(number) for number in range(4)])
        yield store.policies


@pytest.fixture
def typed(tables: PolicyTables) -> Callable[[str], tuple[list[str | None], str]]:
    def run(text: str) -> tuple[list[str | None], str]:
        annotation = begin_annotation(tables, "no-rm", "ann", itertools.count().__next__)
        assert annotation is not None
        lines: list[str] = []
        label_by_keys(annotation, Typed(text), lines.extend)
        rows = map(annotation.label_of, range(len(annotation.items)))
        said = [None if row is None else f"{row.label} {row.note}".strip() for row in rows]
        return said, "\n".join(lines)

    return run


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tfu", ["true", "false", "unsure", None]),
        ("TFUy", ["true", "false", "unsure", "true"]),
        ("t\n\nf\r\n", ["true", "false", None, None]),
        ("tq", ["true", None, None, None]),
        ("", [None] * 4),
        ("btq", ["true", None, None, None]),
        ("ttbfq", ["true", "false", None, None]),
        ("ttbbfq", ["false", "true", None, None]),
        ("tt<<f>>f", ["false", "true", None, "false"]),
        (">>>>t", [None, None, None, "true"]),
        ("nclear case\nt", ["true clear case", None, None, None]),
        ("tbnlater\nq", ["true later", None, None, None]),
        ("tbnlater\nf", ["false later", None, None, None]),
        ("x?sot", ["true", None, None, None]),
        ("tttttttt", ["true"] * 4),
        ("ttttfffbu", ["true", "true", "true", "unsure"]),
        ("tttt>fuuu", ["false", "unsure", "unsure", "unsure"]),
    ],
)
def test_what_keys_do(typed, text: str, said: list[str | None]) -> None:
    assert typed(text)[0] == said


def test_the_next_start_goes_on_where_the_last_one_stopped(typed) -> None:
    typed("tf")
    said, shown = typed("u")
    assert said == ["true", "false", "unsure", None]
    assert shown.startswith("\n── 3 of 4 · no-rm@1.0 · 2 labelled")


def test_the_next_start_can_go_back_to_what_an_earlier_one_labelled(typed) -> None:
    typed("tf")
    assert typed("bu")[0] == ["true", "unsure", None, None]


def test_all_labelled_can_be_gone_through_again_and_no_key_typed_too_far_labels(typed) -> None:
    typed("tttt")
    end = "all 4 are labelled: b goes back to change one, → to the first, q ends"
    assert typed("fq") == (["true"] * 4, f"\n{end}\n{end}")
    said, shown = typed("bf")
    assert said == ["true", "true", "true", "false"]
    assert "── 4 of 4" in shown
    assert shown.endswith(f"stored: false — b to change it\n\n{end}")
    assert typed(">ffff")[0] == ["false"] * 4


def test_the_first_and_the_last_say_so(typed) -> None:
    assert typed("b")[1].endswith("\nthis is the first")
    assert typed(">>>>")[1].endswith("\nthis is the last")


def test_event_reason_question_and_keys_stand_last(typed) -> None:
    _, shown = typed("")
    card = shown.splitlines()
    number = card[2].partition("case ")[2] or next(x for x in card if "case " in x)[-1]
    assert card[-6:] == [
        f"on        rm -rf ../build-{number}",
        "did       deny (refused)",
        f"reason    deletes files outside the project, case {number}",
        "Should it have fired here?",
        "  true: a careful engineer would be glad that it acted as it did · false: it cried wolf"
        " · unsure counts as false at a gate",
        "t true · f false · u unsure · n note · b or ← back · → next · o state · q quit",
    ]
    assert f"fire {int(number) + 1} of 4 in this session" in shown
    assert "closer    redrive show test:a" in shown


def test_the_state_is_behind_a_key_and_the_question_follows_it(typed) -> None:
    _, shown = typed("")
    assert '"cwd"' not in shown
    assert "state     o opens it" in shown
    _, shown = typed("o")
    opened_state = shown.partition(KEYS_HELP)[2]
    assert '"cwd": "project"' in opened_state
    assert opened_state.endswith(KEYS_HELP)


def test_going_back_shows_what_was_said(typed) -> None:
    _, shown = typed("nwhy\ntb")
    assert "it is stored with your label" in shown
    assert "said      true why" in shown
    assert "note stored" not in shown
    assert "note stored" in typed("bnbecause\n")[1]


def test_an_unknown_key_names_the_keys(typed) -> None:
    assert typed("x")[1].endswith(f"\n{KEYS_HELP}\n{KEYS_HELP}")


def test_a_long_note_is_cut(typed) -> None:
    said, _ = typed("n" + "x" * 5000 + "\nt")
    assert len(said[0]) == len("true ") + 2000


def test_hostile_text_is_escaped(tables: PolicyTables, typed) -> None:
    put_report(
        tables,
        [
            fire(
                1,
                reason=HOSTILE,
                context=HOSTILE,
                before=(HOSTILE,),
                asked=HOSTILE,
                event_ref=f"{HOSTILE}#e1",
                notes=(HOSTILE,),
                tool=HOSTILE,
                action=HOSTILE,
                inferences={"x": HOSTILE},
            )
        ],
        snapshots={"s1": {HOSTILE: HOSTILE}},
    )
    _, shown = typed(f"n{HOSTILE}\notb")
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"}
    assert "\\x1b[2J" in shown
    assert shown.encode()
