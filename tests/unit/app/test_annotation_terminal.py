"""One key a fire: what each key does, and that hostile text reaches a terminal as escapes only."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from redrive.app.annotating import begin_annotation
from redrive.app.annotation_terminal import label_by_keys
from redrive.stores.port import PolicyTables
from tests.policy_reports import HOSTILE, fire, put_report
from tests.stored import opened


class Typed:
    """Keys that were typed before."""

    def __init__(self, text: str) -> None:
        self._rest = text

    def read_key(self) -> str:
        key, self._rest = self._rest[:1], self._rest[1:]
        return key

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
        ("ynu", ["true", "false", "unsure", None]),
        ("TFUy", ["true", "false", "unsure", "true"]),
        ("y\n\nn\r\n", ["true", "false", None, None]),
        ("yq", ["true", None, None, None]),
        ("", [None] * 4),
        ("byq", ["true", None, None, None]),
        ("yybnq", ["true", "false", None, None]),
        ("yybbnq", ["false", "true", None, None]),
        ("sclear case\ny", ["true clear case", None, None, None]),
        ("ybslater\nq", ["true later", None, None, None]),
        ("ybslater\nn", ["false later", None, None, None]),
        ("x?y", ["true", None, None, None]),
        ("yyyyyyyy", ["true"] * 4),
    ],
)
def test_what_keys_do(typed, text: str, said: list[str | None]) -> None:
    assert typed(text)[0] == said


def test_the_next_start_goes_on_where_the_last_one_stopped(typed) -> None:
    typed("yn")
    said, shown = typed("u")
    assert said == ["true", "false", "unsure", None]
    assert shown.startswith("\n── 3 of 4 · no-rm@1.0 · deny · 2 labelled")


def test_all_labelled_shows_nothing_more(typed) -> None:
    typed("yyyy")
    assert typed("n") == (["true"] * 4, "")


def test_a_fire_is_shown_with_all_that_a_rater_needs(typed) -> None:
    _, shown = typed("y")
    for part in ("deletes files", "rm -rf ../build", "user: clean up", "step ", '"cwd": "project"'):
        assert part in shown
    assert "Should it have fired here?  y true · n false" in shown


def test_going_back_shows_what_was_said(typed) -> None:
    _, shown = typed("swhy\nyb")
    assert "said      true why" in shown


def test_an_unknown_key_names_the_keys(typed) -> None:
    _, shown = typed("x")
    assert shown.endswith("\ny true · n false · u unsure · b back · s note · q quit")


def test_a_long_note_is_cut(typed) -> None:
    said, _ = typed("s" + "x" * 5000 + "\ny")
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
                notes=(HOSTILE,),
                tool=HOSTILE,
                action=HOSTILE,
                inferences={"x": HOSTILE},
            )
        ],
    )
    _, shown = typed(f"s{HOSTILE}\nyb")
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"}
    assert "\\x1b[2J" in shown
    assert shown.encode()
