"""Labels a sample with one key a fire, on a terminal or from a pipe.

Knows keys and what they do. Must not know terminals: who reads keys and writes lines is given.

Source: DESIGN.md §7 "Annotation".
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from redrive.app.annotating import MAX_NOTE_CHARS, Annotation
from redrive.reports.annotation import fire_lines
from redrive.reports.escape import escape

LABEL_KEYS = {"y": "true", "t": "true", "n": "false", "f": "false", "u": "unsure"}
_HELP = "y true · n false · u unsure · b back · s note · q quit"


class Keys(Protocol):
    """Where keys come from."""

    def read_key(self) -> str:
        """Give the next key as one character; empty at the end."""
        ...

    def read_line(self) -> str:
        """Give what is typed up to the end of the line, without it."""
        ...


def label_by_keys(
    annotation: Annotation, keys: Keys, write: Callable[[Iterable[str]], None]
) -> None:
    """Show each fire without a label and store what is said of it, until all have one or `q`.

    Raises:
        StoreError: a label cannot be stored; those before it are.
    """
    place = annotation.find_open()
    visited: list[int] = []
    while place is not None:
        write(_lines(annotation, place))
        verdict = _ask(annotation, place, keys, write)
        if verdict == "quit":
            return
        if verdict == "back":
            place = visited.pop() if visited else place
        else:
            visited.append(place)
            place = annotation.find_open(place)


def _ask(
    annotation: Annotation, place: int, keys: Keys, write: Callable[[Iterable[str]], None]
) -> str:
    """Read keys until one labels the fire (`labelled`) or leaves it (`back`, `quit`)."""
    old = annotation.label_of(place)
    note = "" if old is None else old.note
    while True:
        key = keys.read_key().lower()
        if key in LABEL_KEYS:
            annotation.put(place, LABEL_KEYS[key], note)
            write([f"→ {LABEL_KEYS[key]}"])
            return "labelled"
        if key in ("q", ""):
            return "quit"
        if key == "b":
            return "back"
        if key == "s":
            write(["note, up to the end of the line:"])
            note = keys.read_line().strip()[:MAX_NOTE_CHARS]
            if (said := annotation.label_of(place)) is not None:
                annotation.put(place, said.label, note)
        elif not key.isspace():
            write([_HELP])


def _lines(annotation: Annotation, place: int) -> list[str]:
    item, sample = annotation.items[place], annotation.sample
    head = (
        f"── {place + 1} of {len(annotation.items)} · {escape(sample.policy)}@"
        f"{escape(sample.version)} · {escape(item.fire.action)} · {annotation.n_labelled} labelled"
    )
    old = annotation.label_of(place)
    said = [] if old is None else [f"{'said':<10}{old.label} {escape(old.note)}".rstrip()]
    question = f"Should it have fired here?  {_HELP}"
    return ["", head, *fire_lines(item.fire, item.snapshot), *said, question]
