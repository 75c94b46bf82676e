"""The audit's result: what each step's record lacks, and what the recorder must add first.

Knows gaps and steps. Must not know events or how a gap is found.

Source: DESIGN.md §4, §8 `audit`.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from redrive.audit.gaps import CLASS_ORDER, InputClass, ProvenanceGap
from redrive.audit.manifest import Manifest, fill_manifest, sum_manifests

API_BOUNDARY = "closure is proven up to the API boundary"
Status = Literal["open", "closed"]


class ClosureReport(msgspec.Struct, frozen=True):
    """Sufficiency of the record for one step.

    Attributes:
        step: 1-based ordinal on the path.
        recorded_step: the number that the record itself gives, if any.
        node_id: the decision's node.
        status: `closed` if nothing is missing.
        decision_closed: whether asking the model this very question again is fair: input is closed
            and the sampling parameters are recorded.
        basis: on whose word absent reads count as absent: `intercepted`, `vouched`,
            `proved_by_rerun` or `unknown`.
        missing: the gaps, in the order of the classes.
        notes: what a reader should know and what opens nothing.
        provenance: which input classes the record holds here.
    """

    step: int
    recorded_step: int | None
    node_id: str
    status: Status
    decision_closed: bool
    basis: str
    missing: tuple[ProvenanceGap, ...]
    notes: tuple[str, ...]
    provenance: Manifest = Manifest()


class AuditReport(msgspec.Struct, frozen=True):
    """Sufficiency of the record for one trajectory.

    Attributes:
        session_id: the session.
        actor: the flow that was audited.
        status: `closed` if every step is closed and there is one.
        closed_until: n, if steps 1 … n are closed and n + 1 is not.
        steps: one report per step, in path order.
        by_class: per input class, the number of steps that it opens.
        notes: what holds for the whole trajectory.
        provenance: per input class, the number of steps in each state.
    """

    session_id: str
    actor: str
    status: Status
    closed_until: int
    steps: tuple[ClosureReport, ...]
    by_class: Mapping[InputClass, int]
    notes: tuple[str, ...]
    provenance: Mapping[str, Mapping[str, int]]

    @property
    def is_closed(self) -> bool:
        """Whether divergence may be attributed."""
        return self.status == "closed"

    def first_open(self) -> ClosureReport | None:
        """Find the first open step."""
        return next((step for step in self.steps if step.missing), None)


def with_gaps(report: ClosureReport, gaps: Sequence[ProvenanceGap]) -> ClosureReport:
    """Give the report with further gaps; they must not be of the class `input`."""
    missing = sort_gaps((*report.missing, *gaps))
    return msgspec.structs.replace(
        report,
        missing=missing,
        status=status_of(missing),
        provenance=fill_manifest(report.provenance, gaps),
    )


def sort_gaps(gaps: Iterable[ProvenanceGap]) -> tuple[ProvenanceGap, ...]:
    """Order gaps by class; within a class they keep their order."""
    return tuple(sorted(gaps, key=lambda gap: CLASS_ORDER[gap.input_class]))


def status_of(missing: tuple[ProvenanceGap, ...]) -> Status:
    """Give the word for a step with these gaps."""
    return "open" if missing else "closed"


def sum_up(
    session_id: str, actor: str, steps: tuple[ClosureReport, ...], notes: tuple[str, ...]
) -> AuditReport:
    """Sum up the steps of a trajectory; one without any decision is open."""
    by_class = dict.fromkeys(InputClass, 0)
    for step in steps:
        for input_class in {gap.input_class for gap in step.missing}:
            by_class[input_class] += 1
    closed_until = next((step.step - 1 for step in steps if step.missing), len(steps))
    is_closed = bool(steps) and closed_until == len(steps)
    return AuditReport(
        session_id=session_id,
        actor=actor,
        status="closed" if is_closed else "open",
        closed_until=closed_until,
        steps=steps,
        by_class=by_class,
        notes=notes,
        provenance=sum_manifests(step.provenance for step in steps),
    )


class Recommendation(msgspec.Struct, frozen=True, rename={"input_class": "class"}):
    """One thing that the recorder must add.

    Attributes:
        input_class: the class that it closes; `class` in JSON.
        cause: the kind of gap.
        steps: the number of steps that lack it.
        first_step: the first of them.
        example: what is missing there.
        hint: what to add.
        format_hint: what this recorded format allows; empty where nothing special holds.
    """

    input_class: InputClass
    cause: str
    steps: int
    first_step: int
    example: str
    hint: str
    format_hint: str


# What a format can never hold, whatever the recorder's settings: docs/formats.md.
FORMAT_HINTS: Mapping[tuple[str, InputClass], str] = {
    ("claude_code", InputClass.INPUT): "the transcript never holds system prompt, tool schemas or"
    " request bodies: record the API traffic instead",
    ("claude_code", InputClass.SAMPLING): "the transcript names the model alone; the API takes no"
    " seed",
    (
        "codex",
        InputClass.INPUT,
    ): "the rollout holds no tool schemas: record the API traffic instead",
    ("codex", InputClass.SAMPLING): "the rollout holds model and effort alone",
    ("otel_genai", InputClass.INPUT): "spans hold normalised messages: store the request body"
    " beside them, and turn content capture on",
    ("otel_genai", InputClass.SAMPLING): "set gen_ai.request.seed on the span",
    ("openinference", InputClass.INPUT): "store the raw request in input.value",
    ("openinference", InputClass.SAMPLING): "put the seed into llm.invocation_parameters",
    ("interchange", InputClass.INPUT): "give each decision `request.body` or `context`",
    ("interchange", InputClass.SAMPLING): "give each decision `sampling.seed`",
    ("interchange", InputClass.CLOCK): "write `read` lines, or vouch in `captures`",
    ("interchange", InputClass.PRNG): "write `read` lines, or vouch in `captures`",
}
_ANY_FORMAT = {
    InputClass.CLOCK: "no transcript holds clock reads: record the agent itself",
    InputClass.PRNG: "no transcript holds PRNG reads: record the agent itself",
}


def recommendations(report: AuditReport) -> tuple[Recommendation, ...]:
    """Rank what the recorder must add, by the number of steps that it opens, then by class."""
    firsts: dict[str, tuple[int, ProvenanceGap]] = {}
    counts: dict[str, int] = {}
    for step in report.steps:
        for cause, gap in {gap.cause: gap for gap in reversed(step.missing)}.items():
            firsts.setdefault(cause, (step.step, gap))
            counts[cause] = counts.get(cause, 0) + 1
    fmt = report.session_id.partition(":")[0]
    ranked = sorted(
        firsts,
        key=lambda cause: (-counts[cause], CLASS_ORDER[firsts[cause][1].input_class], cause),
    )
    return tuple(_recommend(fmt, counts[cause], *firsts[cause]) for cause in ranked)


def _recommend(fmt: str, count: int, first_step: int, gap: ProvenanceGap) -> Recommendation:
    known = FORMAT_HINTS.get((fmt, gap.input_class))
    return Recommendation(
        input_class=gap.input_class,
        cause=gap.cause,
        steps=count,
        first_step=first_step,
        example=gap.what,
        hint=gap.hint,
        format_hint=known if known is not None else _ANY_FORMAT.get(gap.input_class, ""),
    )
