"""Redacts stored sessions: masks their secrets, and removes what held them from the store.

One transaction writes the new events, texts, bodies and sources and drops the old ones, so a
redaction that is killed leaves a session as it was or redacted. Must not know verbs.

Source: docs/redaction.md.
"""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack

import msgspec

from redrive import canonical
from redrive.app.auditing import audit_session
from redrive.app.opening import OpenedSession, open_row
from redrive.app.redaction_plan import RedactionPlan
from redrive.app.redaction_sources import open_rewritten
from redrive.app.trial_answers import parse_answer
from redrive.audit.report import AuditReport
from redrive.capture.exchanges import decode_content, encodings_of
from redrive.errors import TamperError, UsageError
from redrive.record.event import Event
from redrive.record.opening import find_started
from redrive.record.session import EventReader, build_index
from redrive.reports.redaction import (
    MaskedRule,
    PolicyRows,
    RedactionReport,
    SessionRedaction,
    TouchedStep,
    TrialRows,
)
from redrive.reports.scrub_paths import marks_in
from redrive.reports.scrubber import Decode
from redrive.stores.port import SessionRow, Store

Hold = Callable[[str], AbstractContextManager[object]]
"""Keeps recorders from a session, by its base id, for a while; raises `StoreError`, naming who
records it."""

Progress = Callable[[int, int, str], None]


def redact_sessions(
    store: Store,
    rows: Sequence[SessionRow],
    key: bytes,
    *,
    decode: Decode,
    hold: Hold,
    is_dry_run: bool,
    progress: Progress,
) -> RedactionReport:
    """Mask the secrets of stored sessions for good.

    Args:
        store: where they lie.
        rows: which; what another session of the store shares with them must be free of secrets.
        key: what marks are made with.
        decode: undoes content encodings.
        hold: keeps recorders from them.
        is_dry_run: say what would be done, and write nothing.
        progress: told (sessions done, in all, name).

    Raises:
        UsageError: another session shares what holds a secret; all of them are named.
        StoreError: a session is being recorded, or the store cannot be written.
    """
    with ExitStack() as held:
        for base_id in dict.fromkeys(row.base_id for row in rows):
            held.enter_context(hold(base_id))
        progress(0, len(rows), "")
        plan = RedactionPlan(store, rows, key, decode)
        views = []
        for number, row in enumerate(rows):
            progress(number, len(rows), row.session_id)
            views.append(_preview(store, row, plan))
        progress(len(rows), len(rows), "")
        others = _find_holders(store, rows, plan)
        report = RedactionReport(tuple(views), dry_run=is_dry_run, also_in=others)
        if not is_dry_run:
            report = _carry_out(store, rows, plan, report)
    return report


def _carry_out(
    store: Store, rows: Sequence[SessionRow], plan: RedactionPlan, report: RedactionReport
) -> RedactionReport:
    policies, trials = PolicyRows(), TrialRows()
    if plan.is_needed:
        with store.transaction():
            policies, trials = _Rewrite(store, rows, plan).run()
    heads = {row.session_id: store.get_row(row.session_id).head for row in rows}
    return msgspec.structs.replace(
        report,
        sessions=tuple(
            msgspec.structs.replace(view, head=heads[view.session_id]) for view in report.sessions
        ),
        policies=policies,
        trials=trials,
        left=store.rewriting.clean() if store.rewriting.needs_cleaning else "",
    )


class _ChangedReader:
    """Gives events as they will be."""

    def __init__(self, reader: EventReader, plan: RedactionPlan) -> None:
        self._reader = reader
        self._plan = plan

    def read_events(self, seqs: Iterable[int]) -> Iterator[Event]:
        """Yield the events with these seqs, in the order asked."""
        return map(self._plan.change, self._reader.read_events(seqs))


def _preview(store: Store, row: SessionRow, plan: RedactionPlan) -> SessionRedaction:
    """Say what a redaction does to one session, before it is done."""
    tally = plan.tallies[row.session_id]
    n_changed = 0

    def changed() -> Iterator[Event]:
        nonlocal n_changed
        for event in store.events(row.session_id):
            new = plan.change(event)
            n_changed += (new.payload, new.id) != (event.payload, event.id)
            yield new

    steps: tuple[TouchedStep, ...] = ()
    if plan.is_needed:
        index = build_index(row.session_id, changed)
        reader = _ChangedReader(store.reader(row.session_id), plan)
        after = OpenedSession(row, index, reader, find_started(index, reader), None)
        steps = tuple(_touched_steps(open_row(store, row), after))
    return SessionRedaction(
        session_id=row.session_id,
        old_head=row.head,
        head=None,
        rules=tuple(
            MaskedRule(rule, len(tally.secrets[rule]), n)
            for rule, n in sorted(tally.places.items())
        ),
        events=n_changed,
        bodies=len(tally.pointed & plan.bodies.keys()),
        sources=sum(digest in plan.sources for _, digest, _ in row.sources),
        steps=steps,
    )


def _touched_steps(before: OpenedSession, after: OpenedSession) -> Iterator[TouchedStep]:
    """Yield the steps that lack more than before, on the path of each actor to its head."""
    names = zip(before.index.actors, after.index.actors, strict=True)
    for old_name, new_name in names:
        old, new = (
            _audit(session, name) for session, name in ((before, old_name), (after, new_name))
        )
        for was, now in zip(old.steps, new.steps, strict=True):
            if len(now.missing) > len(was.missing) or now.status != was.status:
                yield TouchedStep(new_name, now.step, opened=now.status != was.status)


def _audit(session: OpenedSession, actor: str) -> AuditReport:
    return audit_session(session, session.trajectory(actor))[0]


def _find_holders(store: Store, rows: Sequence[SessionRow], plan: RedactionPlan) -> tuple[str, ...]:
    """Find the other sessions that hold one of the secrets; each is read until one is found."""
    named = {row.session_id for row in rows}
    if not plan.known.secrets:
        return ()
    return tuple(
        row.session_id
        for row in store.list_sound()[0]
        if row.session_id not in named
        and any(plan.known.is_in(bytes(e.payload)) for e in store.events(row.session_id))
    )


class _Rewrite:
    """Writes what a plan says, inside a transaction."""

    def __init__(self, store: Store, rows: Sequence[SessionRow], plan: RedactionPlan) -> None:
        self._store = store
        self._rows = rows
        self._plan = plan
        self._named = {row.session_id for row in rows}
        self._marks = {
            mark
            for tally in plan.tallies.values()
            for marks in tally.secrets.values()
            for mark in marks
        }

    def run(self) -> tuple[PolicyRows, TrialRows]:
        """Write the new, and remove the old."""
        rewriting = self._store.rewriting
        rewriting.begin()
        before = self._digests()
        for data in self._plan.bodies.values():
            self._store.put_artefact(canonical.digest(data), len(data), io.BytesIO(data), None)
        for digest, made in self._plan.sources.items():
            stream = open_rewritten(self._store, digest, self._plan.redactor, made)
            self._store.put_artefact(made.digest, made.size, stream, None)
        for row in self._rows:
            self._write(row)
            rewriting.drop_superseded(row.session_id)
        gone = before - self._digests()
        rewriting.drop(gone - self._shared(gone).keys())
        changes = rewriting.rewrite_policies(self._redact_policy)
        of_trials = rewriting.rewrite_trials(self._redact_policy, self._is_forgotten)
        return (
            msgspec.convert(changes, PolicyRows, from_attributes=True),
            msgspec.convert(of_trials, TrialRows, from_attributes=True),
        )

    def _is_forgotten(self, data: bytes) -> bool:
        """Say whether a file that a trial keeps holds a secret, in one piece or in a stream's."""
        try:
            answer = parse_answer(data)
            body = decode_content(answer.body, encodings_of(answer.headers))
        except (TamperError, ValueError):
            return self._plan.known.is_in(data)
        return canonical.digest(answer.body) in self._plan.bodies or self._plan.known.is_in(body)

    def _digests(self) -> set[str]:
        listed = (self._store.rewriting.digests_of(name) for name in self._named)
        return set().union(*listed)

    def _write(self, row: SessionRow) -> None:
        events = self._plan.events(row.session_id)  # of the projection that is current now
        writer = self._store.create(
            row.base_id, row.format, row.importer_version, replaces=row.session_id
        )
        for event in events:
            writer.append(event)
        writer.close()
        self._store.set_summary(row.session_id, self._plan.redactor.value(row.summary))
        for source in self._store.rewriting.list_sources(row.session_id):
            made = self._plan.sources.get(source.sha256)
            digest, size = (source.sha256, source.size) if made is None else made[:2]
            report = self._plan.redactor.value(source.report)
            if "sha256" in report:
                report = report | {"sha256": digest}
            self._store.add_source(
                msgspec.structs.replace(source, sha256=digest, size=size, report=report)
            )

    def _shared(self, gone: set[str]) -> dict[str, set[str]]:
        """Find what other sessions still rest on.

        Raises:
            UsageError: it holds a secret.
        """
        users = self._store.rewriting.users_of(gone, self._named)
        refused = {
            name
            for digest, names in users.items()
            if self._store.rewriting.find_size(digest) is None or self._plan.holds_secret(digest)
            for name in names
        }
        if refused:
            own, others = (", ".join(sorted(names)) for names in (self._named, refused))
            together = " ".join(sorted(self._named | refused))
            raise UsageError(
                f"{own} shares what holds a secret with {others}",
                hint=f"redact them together: redrive redact {together}",
            )
        return users

    def _redact_policy(self, data: bytes) -> bytes:
        """Redact a stored JSON text that holds a secret of these sessions; leave any other."""
        redacted = self._plan.redactor.json(data)
        if redacted is data:
            return data
        new = set(marks_in(redacted.decode())) - set(marks_in(data.decode()))
        return redacted if new & self._marks else data
