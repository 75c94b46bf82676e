"""Labels a sample with one key a fire, on a terminal or from a pipe.

Knows keys and what they do. Must not know terminals: who reads keys and writes lines is given.

Source: DESIGN.md §7 "Annotation".
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from redrive.app.annotating import MAX_NOTE_CHARS, Annotation
from redrive.reports.annotation import CRITERION, QUESTION, context_lines, fire_lines, state_lines
from redrive.reports.escape import escape

LEFT, RIGHT = "left", "right"
LABEL_KEYS = {"t": "true", "y": "true", "f": "false", "u": "unsure"}
KEYS_HELP = "t true · f false · u unsure · n note · b or ← back · → next · o state · q quit"
_BACK, _QUIT = ("b", LEFT), ("q", "")
_Write = Callable[[Iterable[str]], None]


class Keys(Protocol):
    """Where keys come from."""

    def read_key(self) -> str:
        """Give the next key as one character, `left` or `right`; empty at the end."""
        ...

    def read_line(self) -> str:
        """Give what is typed up to the end of the line, without it."""
        ...


def label_by_keys(annotation: Annotation, keys: Keys, write: _Write) -> None:
    """Show each fire without a label and store what is said of it, until `q` or the end.

    Where all have a label, one can be gone back to; a key that labels does nothing there, so that
    keys typed too far change no label.

    Raises:
        StoreError: a label cannot be stored; those before it are.
    """
    count = len(annotation.items)
    first_open = annotation.find_open()
    place: int | None = count if first_open is None else first_open
    while place is not None:
        if place == count:
            place = _end(count, keys, write)
        else:
            write(_card(annotation, place))
            place = _ask(annotation, place, keys, write)


def _end(count: int, keys: Keys, write: _Write) -> int | None:
    """Say that all are labelled; give the fire that is gone back to, or `None`."""
    help_text = f"all {count} are labelled: b goes back to change one, → to the first, q ends"
    write(["", help_text])
    while (key := keys.read_key().lower()) not in _QUIT:
        if key in _BACK:
            return count - 1
        if key == RIGHT:
            return 0
        if not key.isspace():
            write([help_text])
    return None


def _ask(annotation: Annotation, place: int, keys: Keys, write: _Write) -> int | None:
    """Read keys until one labels the fire or leaves it; give the next place, or `None` to quit."""
    old = annotation.label_of(place)
    note = "" if old is None else old.note
    while (key := keys.read_key().lower()) not in _QUIT:
        if key in LABEL_KEYS:
            return _label(annotation, place, LABEL_KEYS[key], note, write)
        if key in (*_BACK, RIGHT):
            to = place + (1 if key == RIGHT else -1)
            if 0 <= to < len(annotation.items):
                return to
            write(["this is the last" if key == RIGHT else "this is the first"])
        elif key == "n":
            note = _read_note(annotation, place, keys, write)
        elif key == "o":
            write([*state_lines(annotation.items[place]), *_question(annotation, place)])
        elif not key.isspace():
            write([KEYS_HELP])
    return None


def _label(annotation: Annotation, place: int, label: str, note: str, write: _Write) -> int:
    """Store a label; give the next place without one, and where all have one the next of all."""
    were_all_labelled = annotation.find_open() is None
    annotation.put(place, label, note)
    write([f"stored: {label} — b to change it"])
    if were_all_labelled:
        return place + 1
    first_open = annotation.find_open(place)
    return len(annotation.items) if first_open is None else first_open


def _read_note(annotation: Annotation, place: int, keys: Keys, write: _Write) -> str:
    """Read a note; it is stored at once where there is a label, else with the label."""
    said = annotation.label_of(place)
    write(["note, up to the end of the line; it is stored with your label:"])
    note = keys.read_line().strip()[:MAX_NOTE_CHARS]
    if said is not None:
        annotation.put(place, said.label, note)
        write(["note stored"])
    return note


def _card(annotation: Annotation, place: int) -> list[str]:
    item, sample = annotation.items[place], annotation.sample
    head = (
        f"── {place + 1} of {len(annotation.items)} · {escape(sample.policy)}@"
        f"{escape(sample.version)} · {annotation.n_labelled} labelled"
    )
    return ["", head, *context_lines(item), *_question(annotation, place)]


def _question(annotation: Annotation, place: int) -> list[str]:
    """Give what stands nearest to the prompt: event, reason, the own label, question, keys."""
    old = annotation.label_of(place)
    said = [] if old is None else [f"{'said':<10}{old.label} {escape(old.note)}".rstrip()]
    return [*fire_lines(annotation.items[place]), *said, QUESTION, f"  {CRITERION}", KEYS_HELP]
