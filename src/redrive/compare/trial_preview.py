"""Says what a trial will be before it starts: runs, calls, cost, time, and what it can show.

Knows the plan, and what is known of the sessions its tasks come from. Must not know stores, nor
what a run would do. A figure that is no more than a bound says so.

Source: DESIGN.md §6 "runs, judge calls, cost and time are shown before start", §8 `trial plan`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Context, Decimal

import msgspec
from msgspec import Raw

from redrive.audit.eligibility import Refusal
from redrive.compare.trial_environment import NOT_ATTRIBUTED, TaskEnvironment, judge_environment
from redrive.replay.money import ZERO, add, dump_usd
from redrive.replay.trial_plan import PlanModel, TrialPlan
from redrive.replay.trial_values import Purpose, TrialTask

MOST_EXPENSIVE = (
    "a trial is the most expensive rung: every run is a whole agent run against paid models;"
    " shadow and policy replay cost a fraction, look there first"
)
MAX_REQUEST_BYTES = 64 * 1024 * 1024
"""Of one request; the recording proxy takes no longer one. Each byte counts as a token."""

RECORDED, PARTLY, LIMITS, FREE = "recorded", "partly recorded", "limits", "free"
_MILLION, _MICRO, _PICO = Decimal(1_000_000), Decimal("1E-6"), Decimal("1E-12")
_MONEY = Context(prec=60)


class RecordedRun(msgspec.Struct, frozen=True):
    """What is known of the run that a task was taken from; a field is absent if not recorded.

    Attributes:
        input_tokens, output_tokens: of its answers, summed.
        duration_s: from its first event to its last.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    duration_s: float | None = None


class JudgingBound(msgspec.Struct, frozen=True):
    """What graders may ask of models: calls, and what they cost at most."""

    calls: int = 0
    usd: Decimal = ZERO


class VariantFacts(msgspec.Struct, frozen=True):
    """What the load check said of a variant."""

    refusals: tuple[Refusal, ...] = ()
    tools: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()


class PreviewFacts(msgspec.Struct, frozen=True):
    """What a preview needs beside the plan.

    Attributes:
        variants: label → what the load check said.
        recorded: task id → what is known of the run it was taken from.
        judging: see `JudgingBound`.
        parallel: runs at the same time.
        smallest_margin: what M tasks can show; absent where there is nothing to compare.
        isolation: level of the sandbox that is proven here.
    """

    variants: Mapping[str, VariantFacts] = {}
    recorded: Mapping[str, RecordedRun] = {}
    judging: JudgingBound = JudgingBound()
    parallel: int = 1
    smallest_margin: float | None = None
    isolation: str = ""


class CostLine(msgspec.Struct, frozen=True):
    """Money of one purpose, decimals as text.

    Attributes:
        bound_usd: it can never cost more: each call is reserved against the ceiling beforehand.
        estimate_usd: what it is likely to cost; the bound where nothing is known.
        is_bound: whether the estimate is no more than a bound, to be read as "at most".
        basis: `recorded`, `partly recorded`, `limits` or `free`.
        calls: of a model, at most.
    """

    purpose: str
    ceiling_usd: str | None
    bound_usd: str
    estimate_usd: str
    is_bound: bool
    basis: str
    calls: int


class TimeLine(msgspec.Struct, frozen=True):
    """How long it takes, in seconds.

    Attributes:
        runs_s: all runs one after the other.
        wall_s: with `parallel` at the same time.
        is_bound, basis: as of `CostLine`.
    """

    runs_s: float
    wall_s: float
    parallel: int
    is_bound: bool
    basis: str


class VariantPreview(msgspec.Struct, frozen=True):
    """One variant, and whether it may run at all.

    Attributes:
        isolation: the weakest level at which it can run: `landlock`, or `bubblewrap` for a command
            and for tools with network grants; empty where it is not eligible.
    """

    variant: str
    source: str
    role: str
    kind: str
    eligible: bool
    refusals: tuple[Refusal, ...]
    tools: tuple[str, ...]
    simulated: tuple[str, ...]
    isolation: str


class TaskPreview(msgspec.Struct, frozen=True):
    """One task: where it comes from, what it starts in, and whether its environment is the same."""

    task_id: str
    name: str
    origin: str
    session_id: str | None
    workspace: str | None
    workspace_digest: str | None
    has_expected: bool
    environment: TaskEnvironment


class TrialPreview(msgspec.Struct, frozen=True):
    """The document of `trial plan`.

    Attributes:
        planned: runs: variants × tasks × attempts.
        judge_calls: of graders that ask a model, at most.
        estimate_usd: all purposes together.
        is_bound: whether any part of it is no more than a bound.
        unpriced: models without a price. A plan with one is refused, so there are none.
        smallest_margin: the smallest margin that a gate over these tasks can show.
        isolation: level of the sandbox that is proven here.
        notes: what a reader must know.
    """

    name: str
    plan_digest: str
    planned: int
    n_variants: int
    n_tasks: int
    attempts: int
    judge_calls: int
    estimate_usd: str
    is_bound: bool
    unpriced: tuple[str, ...]
    smallest_margin: float | None
    gate: str
    isolation: str
    costs: tuple[CostLine, ...]
    time: TimeLine
    variants: tuple[VariantPreview, ...]
    tasks: tuple[TaskPreview, ...]
    graders: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]
    schema: str = "redrive.trial_plan"
    schema_version: int = 1

    @property
    def is_eligible(self) -> bool:
        """Whether every variant may run."""
        return all(variant.eligible for variant in self.variants)


def preview_trial(plan: TrialPlan, facts: PreviewFacts) -> TrialPreview:
    """Say what a trial will be. Cost: O(runs of one variant)."""
    replay = _replay_cost(plan, facts)
    judging = _judging_cost(plan, facts.judging)
    costs = (replay, judging) if facts.judging.calls else (replay,)
    total = add(*(Decimal(line.estimate_usd) for line in costs))
    return TrialPreview(
        name=plan.name,
        plan_digest=plan.digest,
        planned=plan.n_runs,
        n_variants=len(plan.workflows),
        n_tasks=len(plan.tasks),
        attempts=plan.attempts,
        judge_calls=facts.judging.calls,
        estimate_usd=dump_usd(total),
        is_bound=any(line.is_bound for line in costs),
        unpriced=(),
        smallest_margin=facts.smallest_margin,
        gate=plan.gate,
        isolation=facts.isolation,
        costs=costs,
        time=_time(plan, facts),
        variants=_variants(plan, facts),
        tasks=tuple(_preview_task(plan, task) for task in plan.tasks),
        graders=tuple((grader.name, grader.kind) for grader in plan.graders),
        notes=tuple(_notes(plan, facts, costs)),
    )


def _cost(model: PlanModel, input_tokens: int, output_tokens: int) -> Decimal:
    """Give what tokens cost; rounded up, far below what any bill shows."""
    price = model.price
    asked = _MONEY.multiply(price.input_usd, Decimal(input_tokens))
    answered = _MONEY.multiply(price.output_usd, Decimal(output_tokens))
    return _round_up(_MONEY.divide(_MONEY.add(asked, answered), _MILLION), _PICO)


def _round_up(usd: Decimal, step: Decimal) -> Decimal:
    return usd.quantize(step, rounding=ROUND_CEILING, context=_MONEY)


def _replay_cost(plan: TrialPlan, facts: PreviewFacts) -> CostLine:
    ceiling = plan.ceilings.get(Purpose.REPLAY)
    calls = plan.n_runs * plan.limits.model_calls if plan.models else 0
    bounds = (_cost(model, MAX_REQUEST_BYTES, model.max_tokens) for model in plan.models)
    bound = _MONEY.multiply(max(bounds, default=ZERO), Decimal(calls))
    estimate, basis = (ZERO, FREE) if bound == 0 else _expected_cost(plan, facts)
    if ceiling is not None:
        bound = min(bound, ceiling)
    return CostLine(
        purpose=Purpose.REPLAY,
        ceiling_usd=None if ceiling is None else dump_usd(ceiling),
        bound_usd=dump_usd(bound),
        estimate_usd=dump_usd(bound if estimate is None else estimate),
        is_bound=estimate is None,
        basis=basis,
        calls=calls,
    )


def _expected_cost(plan: TrialPlan, facts: PreviewFacts) -> tuple[Decimal | None, str]:
    """Take what the recorded runs used, at the price of the plan's first model.

    Tasks of which nothing is recorded count as the mean of the others. It may lie above the
    ceiling, which then stops the trial.
    """
    known = [
        _cost(plan.models[0], run.input_tokens or 0, run.output_tokens or 0)
        for task in plan.tasks
        if plan.models and (run := facts.recorded.get(task.task_id)) is not None
        if run.input_tokens is not None or run.output_tokens is not None
    ]
    if not known:
        return None, LIMITS
    mean = _MONEY.divide(sum(known, ZERO), Decimal(len(known)))
    basis = RECORDED if len(known) == len(plan.tasks) else PARTLY
    return _round_up(_MONEY.multiply(mean, Decimal(plan.n_runs)), _MICRO), basis


def _judging_cost(plan: TrialPlan, judging: JudgingBound) -> CostLine:
    ceiling = plan.ceilings.get(Purpose.JUDGING)
    bound = judging.usd if ceiling is None else min(judging.usd, ceiling)
    return CostLine(
        purpose=Purpose.JUDGING,
        ceiling_usd=None if ceiling is None else dump_usd(ceiling),
        bound_usd=dump_usd(bound),
        estimate_usd=dump_usd(bound),
        is_bound=judging.usd > 0,
        basis=LIMITS if judging.usd > 0 else FREE,
        calls=judging.calls,
    )


def _time(plan: TrialPlan, facts: PreviewFacts) -> TimeLine:
    """Sum up durations; runs of one task come together, and no run takes longer than its limit."""
    known = [
        min(run.duration_s, plan.limits.wall_s)
        for task in plan.tasks
        if (run := facts.recorded.get(task.task_id)) is not None and run.duration_s is not None
    ]
    each = plan.limits.wall_s
    basis = LIMITS
    if known:
        each = sum(known) / len(known)
        basis = RECORDED if len(known) == len(plan.tasks) else PARTLY
    total = each * plan.n_runs
    parallel = max(1, min(facts.parallel, plan.n_runs))
    rounds = -(-plan.n_runs // parallel)
    return TimeLine(total, each * rounds, parallel, not known, basis)


def _variants(plan: TrialPlan, facts: PreviewFacts) -> tuple[VariantPreview, ...]:
    found = []
    for entry in plan.workflows:
        judged = facts.variants.get(entry.label, VariantFacts())
        spec = entry.spec
        reached = set(judged.tools)
        is_networked = any(tool.grants.network for tool in spec.tools if tool.id in reached)
        needs = "bubblewrap" if is_networked or spec.kind == "command" else "landlock"
        found.append(
            VariantPreview(
                variant=entry.label,
                source=entry.source,
                role=entry.role,
                kind=spec.kind,
                eligible=not judged.refusals,
                refusals=judged.refusals,
                tools=judged.tools,
                simulated=judged.simulated,
                isolation="" if judged.refusals else needs,
            )
        )
    return tuple(found)


def _preview_task(plan: TrialPlan, task: TrialTask) -> TaskPreview:
    place = task.workspace
    return TaskPreview(
        task_id=task.task_id,
        name=task.name,
        origin=task.origin,
        session_id=task.session_id,
        workspace=None if place is None else place.kind,
        workspace_digest=None if place is None else place.digest,
        has_expected=isinstance(task.expected, Raw),
        environment=judge_environment(plan, task),
    )


def _notes(plan: TrialPlan, facts: PreviewFacts, costs: Sequence[CostLine]) -> Iterator[str]:
    """Say what a reader could take for granted and must not."""
    yield MOST_EXPENSIVE
    if any(facts.variants.get(entry.label, VariantFacts()).simulated for entry in plan.workflows):
        yield "some tools are simulated: what rests on them is marked, and is no real effect"
    for line in costs:
        ceiling = line.ceiling_usd
        if ceiling is not None and Decimal(line.estimate_usd) > Decimal(ceiling):
            yield f"{line.purpose}: the estimate lies above the ceiling, which would stop the trial"
    if len(plan.workflows) == 1:
        yield "one variant: nothing is compared, and there is no ranking"
    if not plan.graders:
        yield "no grader: runs are made, and nothing says how good they are"
    found = Counter(judge_environment(plan, task).status for task in plan.tasks)
    n_unlike = found["differs"] + found["not_compared"]
    if n_unlike:
        tasks = "1 task" if n_unlike == 1 else f"{n_unlike} tasks"
        yield f"{tasks} in another environment than recorded, or an unknown one: {NOT_ATTRIBUTED}"
