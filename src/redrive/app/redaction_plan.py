"""Finds what is to be masked in some stored sessions, and says what each event becomes.

Reads events, sources and bodies until no new secret turns up: one that is known from one event is
found in all of them. Must not write anything; `redacting` does.

Source: docs/redaction.md "How it is done".
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from redrive import canonical
from redrive.app.redaction_sources import Rewritten, Stretch, rewrite_source
from redrive.record.event import Event, Kind, Source
from redrive.reports.redact import MARK, Redactor
from redrive.reports.redact_known import KnownSecrets
from redrive.reports.scrub import Moved, redact_event, settle
from redrive.reports.scrub_body import mark_body
from redrive.reports.scrub_paths import rule_of
from redrive.reports.scrubber import Decode, list_encodings, search_body
from redrive.stores.port import SessionRow, Store

_DIGEST = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


@dataclass(slots=True)
class Tally:
    """What is masked in one session.

    Attributes:
        places: rule → places in events.
        secrets: rule → digests of different secrets.
        pointed: artefacts that its events point at or mention.
    """

    places: Counter[str] = field(default_factory=Counter)
    secrets: dict[str, set[str]] = field(default_factory=dict)
    pointed: set[str] = field(default_factory=set)

    def take(self, marks: Iterable[str]) -> None:
        """Count marks, one for each place."""
        for mark in marks:
            rule = rule_of(mark)
            self.places[rule] += 1
            self.secrets.setdefault(rule, set()).add(mark)


@dataclass(slots=True)
class _Found:
    """What one pass over the events of all sessions found.

    `tallies` and `touched` (the seqs of events that hold a secret) are by session, `told` and
    `encodings` by artefact.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    touched: dict[str, set[int]] = field(default_factory=dict)
    masked_nodes: set[str] = field(default_factory=set)
    told: dict[str, list[Stretch]] = field(default_factory=dict)
    encodings: dict[str, tuple[str, ...]] = field(default_factory=dict)


class RedactionPlan:
    """What a redaction of some sessions will do.

    Args:
        store: where they lie.
        rows: the sessions.
        key: what marks are made with.
        decode: undoes content encodings.

    Attributes:
        tallies: by session.
        bodies: artefact → the mark that takes its place.
        sources: artefact → what it becomes; what stays as it is, is not in it.
        beginnings: artefact of an earlier state of a grown source → that source, and the size.
        known: all secrets that were found.
    """

    def __init__(
        self, store: Store, rows: Sequence[SessionRow], key: bytes, decode: Decode
    ) -> None:
        self.known = KnownSecrets()
        self.redactor = Redactor(key, self.known)
        self.bodies: dict[str, bytes] = {}
        self.sources: dict[str, Rewritten] = {}
        self.beginnings: dict[str, tuple[str, int]] = {}
        self._store = store
        self._rows = rows
        self._decode = decode
        self._moved: dict[str, Moved] = {}
        while True:
            n_known = len(self.known.secrets)
            found = self._read_events()
            self._read_bodies(found, self._read_sources(found))
            if len(self.known.secrets) == n_known:
                break
        self.tallies = found.tallies
        self._masked_nodes = found.masked_nodes
        self._touched = found.touched

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be masked."""
        return bool(self.bodies or self.sources) or any(t.places for t in self.tallies.values())

    def events(self, session_id: str) -> Iterator[Event]:
        """Yield the events of a session as they will be."""
        return map(self.change, self._store.events(session_id))

    def change(self, event: Event) -> Event:
        """Give an event as it will be; the event itself, where nothing of it is masked."""
        changed = event
        if event.seq in self._touched[event.session_id]:
            changed, _ = redact_event(event, self.redactor)
        changed = settle(changed, self._moved, self._masked_nodes)
        digest, _ = self.beginnings.get(event.source.artefact, (event.source.artefact, 0))
        made = self.sources.get(digest)
        if made is None:
            return changed
        place = made.places.move(event.source.offset, event.source.length)
        return msgspec.structs.replace(changed, source=Source(made.digest, *place))

    def holds_secret(self, artefact: str) -> bool:
        """Say whether an artefact that is replaced holds a secret itself.

        The earlier state of a grown source may not: the secret came later.
        """
        if artefact in self.bodies:
            return True
        digest, size = self.beginnings.get(artefact, (artefact, -1))
        made = self.sources.get(digest)
        first = None if made is None else made.places.first_edit
        return first is not None and (size < 0 or first < size)

    def _read_events(self) -> _Found:
        found = _Found()
        for row in self._rows:
            tally = found.tallies[row.session_id] = Tally()
            found.touched[row.session_id] = set()
            for event in self._store.events(row.session_id):
                self._read_event(event, tally, found)
        return found

    def _read_event(self, event: Event, tally: Tally, found: _Found) -> None:
        artefact = event.source.artefact
        if artefact:
            tally.pointed.add(artefact)
        if event.kind is Kind.CUSTOM:
            tally.pointed.update(m.decode() for m in _DIGEST.findall(bytes(event.payload)))
        if not event.source.offset:  # else it was read from a line of a recorded file
            found.encodings |= list_encodings((event,))
        changed, _ = redact_event(event, self.redactor)
        if changed is event:
            return
        marks = _new_marks(event, changed)
        tally.take(marks)
        found.touched[event.session_id].add(event.seq)
        found.masked_nodes.add(changed.node_id)
        if artefact:
            stretch = Stretch(event.source.offset, event.source.length, tuple(marks))
            found.told.setdefault(artefact, []).append(stretch)

    def _read_sources(self, found: _Found) -> set[str]:
        """Find what each recorded file becomes; give all sources and earlier states of them."""
        own = {digest for row in self._rows for _, digest, _ in row.sources}
        sizes = {
            digest: size
            for tally in found.tallies.values()
            for digest in tally.pointed - own
            if (size := self._store.rewriting.find_size(digest)) is not None
        }
        self.sources, self.beginnings, seen = {}, {}, set(own)
        for digest in sorted(own):
            made = rewrite_source(self._store, digest, self.redactor, found.told, sizes)
            seen |= made.earlier.keys()
            if made.places.first_edit is not None:
                self.sources[digest] = made
                self.beginnings |= {name: (digest, size) for name, size in made.earlier.items()}
        return seen

    def _read_bodies(self, found: _Found, sources: set[str]) -> None:
        """Find which bodies hold a secret, or belong to an event that does."""
        self.bodies, self._moved = {}, {}
        pointed = {d for tally in found.tallies.values() for d in tally.pointed}
        for digest in sorted(pointed - sources):
            size = self._store.rewriting.find_size(digest)
            if size is None:
                continue
            with self._store.open_artefact(digest) as file:
                data = file.read()
            marks = search_body(data, found.encodings.get(digest, ()), self.redactor, self._decode)
            marks += tuple(mark for one in found.told.get(digest, ()) for mark in one.marks)
            if marks:
                stored = self.bodies[digest] = mark_body(marks, size)
                name = canonical.digest(stored)
                self._moved[digest] = Moved(name, len(stored), rule_of(marks[0]))


def _new_marks(old: Event, new: Event) -> list[str]:
    """List the marks that an event has and had not, one for each place."""
    before, after = (Counter(MARK.findall(_text_of(event))) for event in (old, new))
    return list((after - before).elements())


def _text_of(event: Event) -> str:
    return msgspec.json.encode(event).decode()
