"""Two versions of a policy on the same sessions: where they judge differently, and in which fact.

Knows policy reports. Must not know how they were made, nor how a difference is shown.

A version that is silent at a place says something only if it could judge it: a missing fact, a
fault in that session or a session that could not be replayed makes the place `cannot_evaluate`,
never `lost` or `new`. A suppressed match is no fire.

Source: DESIGN.md §7 "Annotation": `policy diff`.
"""

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import msgspec

from redrive import canonical
from redrive.compare.policy_report import (
    DiffEntry,
    FireView,
    PolicyDiff,
    PolicyFault,
    PolicyReport,
)

NEW, LOST, SAME, CHANGED, CANNOT_EVALUATE = "new", "lost", "same", "changed", "cannot_evaluate"
CHANGES = (NEW, LOST, CHANGED, CANNOT_EVALUATE, SAME)
STRICTNESS: Final = {"allow": 0, "ask": 1, "deny": 2}
_SHOWN_CHARS = 80
_ABSENT: Final = object()


class _Side(msgspec.Struct, frozen=True):
    """One version's report, indexed by event_ref.

    Attributes:
        silent: session id → why the version judged no more there; the key `None` stands for all.
    """

    report: PolicyReport
    matches: Mapping[str, FireView]
    missing: Mapping[str, str]
    silent: Mapping[str | None, str]

    def fire_at(self, ref: str) -> FireView | None:
        """Find the fire at a place; a suppressed match is none."""
        match = self.matches.get(ref)
        return None if match is None or is_suppressed(match) else match

    def unjudged(self, ref: str, session_id: str) -> str:
        """Say why nothing is known of a place; the empty text where something is."""
        if ref in self.missing:
            return self.missing[ref]
        if ref in self.matches:
            return ""
        return self.silent.get(session_id) or self.silent.get(None, "")


def is_suppressed(match: FireView) -> bool:
    """Say whether a match was held back by an earlier fire."""
    return match.cooldown_suppressed or match.suppressed_by is not None


def diff_reports(old: PolicyReport, new: PolicyReport, sessions: Sequence[str]) -> PolicyDiff:
    """Compare what two versions of a policy did.

    Args:
        old: the version in use.
        new: the version under test.
        sessions: ids of the sessions that both were replayed on; what lies in another is left out.

    Returns:
        One entry per place at which either version fires or cannot judge, in the order of
        `sessions`, then of the events; `counts` has every change of `CHANGES` and adds up to them.

    Cost: O(n) for n matches, and one walk of two snapshots for each place where both fire.
    """
    order = {session_id: place for place, session_id in enumerate(sessions)}
    sides = _index(old), _index(new)
    entries = tuple(
        entry
        for session_id, ref in _places(sides, order)
        if (entry := _entry(sides, session_id, ref)) is not None
    )
    return PolicyDiff(
        policy=new.policy,
        old=_identity(old),
        new=_identity(new),
        sessions=tuple(sessions),
        counts={change: sum(e.change == change for e in entries) for change in CHANGES},
        widened=sum(map(widens, entries)),
        entries=entries,
        faults=tuple(chain(_faults("old", old), _faults("new", new))),
    )


def widens(entry: DiffEntry) -> bool:
    """Say whether the new version does more at a place on a live path: a fire, a stricter action.

    An action that is no gate's has no strictness: changed to another it widens nothing.
    """
    if entry.new is None or not entry.new.on_head_path:
        return False
    if entry.change == CHANGED and entry.old is not None:
        before, after = STRICTNESS.get(entry.old.action), STRICTNESS.get(entry.new.action)
        return before is not None and after is not None and after > before
    return entry.change == NEW


def _identity(report: PolicyReport) -> dict[str, str]:
    names = ("policy", "version", "digest", "source", "lane", "mode")
    return {name: getattr(report, name) for name in names}


def _faults(which: str, report: PolicyReport) -> Iterator[PolicyFault]:
    for fault in report.faults:
        yield msgspec.structs.replace(fault, what=f"in the {which} version: {fault.what}")


def _index(report: PolicyReport) -> _Side:
    silent: dict[str | None, str] = {}
    for fault in report.faults:
        silent.setdefault(fault.session_id, f"fault: {fault.net}: {fault.what}")
    for session in report.unreplayable:
        silent.setdefault(session.session_id, f"unreplayable: {session.reason}")
    return _Side(
        report=report,
        matches={fire.event_ref: fire for part in report.per_session for fire in part.fires},
        missing={place.event_ref: _missing(place.fact) for place in report.cannot_evaluate},
        silent=silent,
    )


def _missing(fact: str) -> str:
    return fact if fact.startswith("no ") else f"no {fact}"


def _places(sides: tuple[_Side, _Side], order: Mapping[str, int]) -> list[tuple[str, str]]:
    """List (session id, event_ref) of all places of known sessions, in order, each once.

    A place that neither version matched has no `seq`; it comes after those that have one.
    """
    keys: dict[str, tuple[int, bool, int, str]] = {}
    owners: dict[str, str] = {}
    for side in sides:
        for part in side.report.per_session:
            place = order.get(part.session_id)
            for fire in part.fires if place is not None else ():
                keys[fire.event_ref] = (place or 0, False, fire.seq, fire.event_ref)
                owners[fire.event_ref] = part.session_id
    for ref in chain.from_iterable(side.missing for side in sides):
        owner = owner_of(ref, order)
        if owner is not None and ref not in keys:
            keys[ref] = (order[owner], True, 0, ref)
            owners[ref] = owner
    return [(owners[ref], ref) for ref in sorted(keys, key=keys.__getitem__)]


def owner_of(ref: str, sessions: Container[str]) -> str | None:
    """Find the session of an event_ref; both ids may hold a `#`, the longest session id counts."""
    cuts = [place for place, char in enumerate(ref) if char == "#"]
    return next((ref[:cut] for cut in reversed(cuts) if ref[:cut] in sessions), None)


def _entry(sides: tuple[_Side, _Side], session_id: str, ref: str) -> DiffEntry | None:
    """Compare one place; nothing where both versions could judge it and neither fires."""
    old, new = (side.fire_at(ref) for side in sides)
    unjudged = [side.unjudged(ref, session_id) for side in sides]
    if any(unjudged):
        return DiffEntry(ref, CANNOT_EVALUATE, old, new, _unjudged_fact(*unjudged))
    if old is None and new is None:
        return None
    if old is None or new is None:
        return DiffEntry(ref, LOST if new is None else NEW, old, new, _one_sided_fact(sides, ref))
    change = SAME if old.action == new.action else CHANGED
    return DiffEntry(ref, change, old, new, _fact_of_two(sides, old, new))


def _unjudged_fact(old: str, new: str) -> str:
    if old == new:
        return f"in both versions: {old}"
    parts = [f"in the {name} version: {why}" for name, why in (("old", old), ("new", new)) if why]
    return "; ".join(parts)


def _one_sided_fact(sides: tuple[_Side, _Side], ref: str) -> str:
    """Say why one version fires at a place and the other does not."""
    old, new = (side.matches.get(ref) for side in sides)
    if old is not None and new is not None:
        held = new if is_suppressed(new) else old
        by = f"by the fire at {held.suppressed_by}" if held.suppressed_by else "held back"
        return f"suppressed: {by}" if held is new else f"suppressed: {by} → not suppressed"
    kind, silent = (new.kind, sides[0]) if new is not None else (old.kind if old else "", sides[1])
    none = "no match" if _subscribes(silent.report, kind) else f"no match, {kind} is not in `on`"
    return (
        f"action: {old.action} → {none}" if old else f"action: {none} → {new.action if new else ''}"
    )


def _subscribes(report: PolicyReport, kind: str) -> bool:
    return any(name == kind or name.startswith(f"{kind}:") for name in report.on)


def _fact_of_two(sides: tuple[_Side, _Side], old: FireView, new: FireView) -> str:
    """Find the first fact in which two fires differ, in a fixed order."""
    for name in ("action", "dedup_key", "reason"):
        ours, theirs = getattr(old, name), getattr(new, name)
        if ours != theirs:
            return f"{name}: {_words(ours)} → {_words(theirs)}"
    ours, theirs = (
        side.report.snapshots.get(fire.state_snapshot_ref, {})
        for side, fire in zip(sides, (old, new), strict=True)
    )
    found = first_differing_place("state", ours, theirs)
    return found or first_differing_place("inferences", old.inferences, new.inferences)


def first_differing_place(name: str, old: Any, new: Any) -> str:
    """Find the first place in which two JSON values differ, keys in sorted order.

    Returns:
        `name.key.key[3]: old → new`, values cut; the empty text if they are equal.

    Cost: O(n) of the smaller value; depth is no matter.
    """
    left = [(name, old, new)]
    while left:
        path, ours, theirs = left.pop()
        if isinstance(ours, dict) and isinstance(theirs, dict):
            keys = sorted(ours.keys() | theirs.keys(), reverse=True)
            inner = [(k, ours.get(k, _ABSENT), theirs.get(k, _ABSENT)) for k in keys]
            left.extend((f"{path}.{_cut(key)}", a, b) for key, a, b in inner)
        elif isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
            places = range(max(len(ours), len(theirs)))
            left.extend((f"{path}[{n}]", _at(ours, n), _at(theirs, n)) for n in reversed(places))
        elif not _is_same(ours, theirs):
            return f"{path}: {_shown(ours)} → {_shown(theirs)}"
    return ""


def _at(items: Sequence[Any], place: int) -> Any:
    return items[place] if place < len(items) else _ABSENT


def _is_same(ours: Any, theirs: Any) -> bool:
    """Compare as JSON does: `1` is `1.0`, and not `true`."""
    if isinstance(ours, bool) or isinstance(theirs, bool):
        return ours is theirs
    return bool(ours == theirs)


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else _cut(canonical.encode(value).decode())


def _words(text: str | None) -> str:
    return "absent" if text is None else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
