"""Labels the fires of a stored policy report: the sample, and one blind rater's way through it.

Knows stored reports, samples and one rater's labels. Must not know how an item is shown, nor what
labels prove. A rater's `Annotation` never holds another rater's label: it reads its own alone.

Source: DESIGN.md §7 "Annotation".
"""

from collections.abc import Callable, Mapping

import msgspec

from redrive import canonical
from redrive.compare.policy_report import FireView, PolicyDocument, PolicyReport
from redrive.compare.precision import draw_sample
from redrive.errors import StoreError, UsageError, quote
from redrive.reports.annotation import Item
from redrive.stores.port import LabelRow, PolicyTables, ReportRow, SampleRow

BRANCHES = ("head", "all")
DEFAULT_SAMPLE = 50
DEFAULT_SEED = "1"
MAX_NOTE_CHARS = 2000
_MAX_RATER_CHARS = 64


def find_report(tables: PolicyTables, spec: str) -> ReportRow:
    """Find the newest stored report of `POLICY[@VERSION]`.

    Raises:
        UsageError: there is none; the stored policies are named.
    """
    rows = tables.reports()
    name, _, version = spec.rpartition("@")
    found = [row for row in rows if row.policy == spec]
    found = found or [row for row in rows if (row.policy, row.version) == (name, version)]
    if found:
        return found[-1]
    known = ", ".join(sorted({f"{row.policy}@{row.version}" for row in rows})[:5])
    raise UsageError(
        f"no stored report of policy {quote(spec)}" + (f"; there are: {known}" if known else ""),
        hint="redrive policy replay POLICY stores one",
    )


def read_document(tables: PolicyTables, row: ReportRow) -> PolicyDocument:
    """Read a stored report.

    Raises:
        StoreError: it is no report of policies.
    """
    try:
        value = canonical.decode_value(tables.get_report(row.id))
        return msgspec.convert(value, PolicyDocument)
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreError(f"policy report {row.id} cannot be read: {error}") from error


def report_of(document: PolicyDocument, row: ReportRow) -> PolicyReport:
    """Pick the report that a row is about out of its document.

    Raises:
        StoreError: the document holds none of this policy and version.
    """
    for report in document.reports:
        if (report.policy, report.version) == (row.policy, row.version):
            return report
    raise StoreError(f"policy report {row.id} says nothing of {row.policy}@{row.version}")


def fires_of(report: PolicyReport, branches: str) -> dict[str, FireView]:
    """Map event ref → fire, suppressed matches left out; with `head` those on live paths alone."""
    return {
        canonical.escape_surrogates(fire.event_ref): fire
        for session in report.per_session
        for fire in session.fires
        if not fire.cooldown_suppressed and (branches == "all" or fire.on_head_path)
    }


class Wish(msgspec.Struct, frozen=True):
    """How a rater wants the sample drawn.

    Attributes:
        branches: from which fires: `head` (those on live paths) or `all`.
        size: how many; absent: as the newest sample of the same fires, else 50.
        seed: with what; absent: as the newest sample of the same fires, else `1`.
    """

    branches: str = "head"
    size: int | None = None
    seed: str | None = None


def choose_sample(
    tables: PolicyTables, row: ReportRow, fires: Mapping[str, FireView], wish: Wish, now_ns: int
) -> SampleRow:
    """Give the sample that a rater labels: a stored one that fits, else a new one, stored.

    Args:
        tables: where samples lie.
        row: the report.
        fires: its fires, as `fires_of` gives them.
        wish: how it is to be drawn.
        now_ns: when a new sample is drawn.

    Raises:
        StoreError: a new one cannot be stored.
    """
    fitting = _fitting_samples(tables, row, fires, wish)
    if fitting:
        return fitting[-1]
    seed = DEFAULT_SEED if wish.seed is None else wish.seed
    refs = draw_sample(fires, wish.size or DEFAULT_SAMPLE, seed)
    how = [row.policy, row.version, row.digest, wish.branches, seed, sorted(fires), list(refs)]
    return tables.put_sample(
        SampleRow(
            id=canonical.value_digest(how)[:16],
            policy=row.policy,
            version=row.version,
            seed=seed,
            branches=wish.branches,
            population=len(fires),
            report=row.id,
            event_refs=refs,
            created_ns=now_ns,
        )
    )


def _fitting_samples(
    tables: PolicyTables, row: ReportRow, fires: Mapping[str, FireView], wish: Wish
) -> list[SampleRow]:
    """List the samples of these fires, which a later replay of the same code may find again."""
    same_code = reports_of_code(tables, row)
    return [
        sample
        for sample in tables.samples(row.policy)
        if sample.report in same_code
        and sample.branches == wish.branches
        and wish.size in (None, len(sample.event_refs))
        and wish.seed in (None, sample.seed)
        and sample.population == len(fires)
        and draw_sample(fires, len(sample.event_refs), sample.seed) == sample.event_refs
    ]


def reports_of_code(tables: PolicyTables, row: ReportRow) -> set[int]:
    """Give the ids of the reports of exactly this policy, version and code."""
    code = (row.version, row.digest)
    return {own.id for own in tables.reports(row.policy) if (own.version, own.digest) == code}


class Annotation:
    """One rater's way through one sample; each label is stored at once.

    Args:
        tables: where labels lie.
        sample: what is labelled.
        items: one per event ref of the sample, in its order.
        rater: who labels; no other rater's label is read.
        now_ns: the clock.
    """

    def __init__(
        self,
        tables: PolicyTables,
        sample: SampleRow,
        items: tuple[Item, ...],
        rater: str,
        now_ns: Callable[[], int],
    ) -> None:
        self._tables = tables
        self._now_ns = now_ns
        self.sample = sample
        self.items = items
        self.rater = rater
        self._own = {row.event_ref: row for row in tables.labels(sample.id, rater)}

    @property
    def n_labelled(self) -> int:
        """How many items this rater has labelled."""
        return len(self._own)

    def label_of(self, place: int) -> LabelRow | None:
        """Give this rater's newest label of an item, from 0."""
        return self._own.get(self.sample.event_refs[place])

    def find_open(self, start: int = 0) -> int | None:
        """Find the first item without a label, from `start` on and then from the beginning."""
        count = len(self.items)
        places = (place % count for place in range(start, start + count))
        return next((place for place in places if self.label_of(place) is None), None)

    def put(self, place: int, label: str, note: str) -> None:
        """Store what the rater says of an item; an equal label again is not stored twice.

        Raises:
            UsageError: there is no such item or label, or the note is too long.
            StoreError: it cannot be stored.
        """
        if not 0 <= place < len(self.items):
            raise UsageError(f"no item {place}: expected 0 to {len(self.items) - 1}")
        if len(note) > MAX_NOTE_CHARS:
            raise UsageError(f"a note of {len(note)} characters: expected up to {MAX_NOTE_CHARS}")
        old = self.label_of(place)
        if old is not None and (old.label, old.note) == (label, note):
            return
        ref = self.sample.event_refs[place]
        row = LabelRow(self.sample.id, ref, self.rater, label, note, self._now_ns())
        self._tables.put_label(row)
        self._own[ref] = row


def begin_annotation(
    tables: PolicyTables,
    spec: str,
    rater: str,
    now_ns: Callable[[], int],
    wish: Wish = Wish(),  # noqa: B008 - a frozen value
    task_of: Callable[[str], str] = lambda _: "",
) -> Annotation | None:
    """Begin, or go on with, one rater's labels of the newest report of `POLICY[@VERSION]`.

    Args:
        tables: of an opened store.
        spec: which policy.
        rater: a name; the same name goes on where it stopped.
        now_ns: the clock.
        wish: how the sample is to be drawn.
        task_of: gives what a session was for, by its id, redacted; empty where that is not known.

    Returns:
        `None` where the policy fired nowhere.

    Raises:
        UsageError: no such report, or a bad name or size.
        StoreError: the report cannot be read.
    """
    if not rater.strip() or len(rater) > _MAX_RATER_CHARS or not rater.isprintable():
        raise UsageError(
            f"rater {quote(rater)}: expected a name of 1 to {_MAX_RATER_CHARS} printable characters"
        )
    row = find_report(tables, spec)
    report = report_of(read_document(tables, row), row)
    fires = fires_of(report, wish.branches)
    if not fires:
        return None
    sample = choose_sample(tables, row, fires, wish, now_ns())
    items = _items(report, wish.branches, sample.event_refs, task_of)
    return Annotation(tables, sample, items, rater, now_ns)


def _items(
    report: PolicyReport, branches: str, refs: tuple[str, ...], task_of: Callable[[str], str]
) -> tuple[Item, ...]:
    """Give the item of each ref, in order; each session's task is looked up once."""
    places: dict[str, tuple[str, int, int]] = {}
    for session in report.per_session:
        own = fires_of(msgspec.structs.replace(report, per_session=(session,)), branches)
        by_seq = sorted(own, key=lambda ref: own[ref].seq)
        for number, ref in enumerate(by_seq, start=1):
            places[ref] = (session.session_id, number, len(own))
    tasks = {session_id: task_of(session_id) for session_id in {places[ref][0] for ref in refs}}
    fires = fires_of(report, branches)
    return tuple(
        Item(
            fire=fires[ref],
            state=report.snapshots.get(fires[ref].state_snapshot_ref),
            session_id=places[ref][0],
            nth=places[ref][1],
            n_in_session=places[ref][2],
            task=tasks[places[ref][0]],
        )
        for ref in refs
    )
