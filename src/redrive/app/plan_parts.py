"""Reads the parts of a plan that stand for themselves: models with prices, limits, graders.

Knows tables of the plan, and which kinds of models there are. Must not know files, workflows or
tasks.
"""

from collections.abc import Sequence

from redrive import plugins
from redrive.app.plan_table import Table
from redrive.errors import UsageError, quote
from redrive.models.options import parse_spec
from redrive.replay.trial_plan import MIB, GraderSpec, PlanModel, RunLimits
from redrive.replay.trial_values import Price

MAX_MODELS = 64
MAX_GRADERS = 64
MAX_TOKENS = 10_000_000
_DAY_S = 24 * 3600
_GIB = 1024 * MIB


def read_models(table: Table) -> tuple[PlanModel, ...]:
    """Read `[[models]]`: names unique, each with its price.

    Raises:
        UsageError: a model has no price (it could not be metered), or something else is wrong.
    """
    entries = table.tables("models")
    if len(entries) > MAX_MODELS:
        table.refuse("models", f"{len(entries)} models: at most {MAX_MODELS}")
    models = [_read_model(entry) for entry in entries]
    _hold_names(entries, [model.name for model in models])
    return tuple(models)


def _read_model(table: Table) -> PlanModel:
    name = table.name("name")
    for key in ("input_usd_per_mtok", "output_usd_per_mtok"):
        if key not in table:
            hint = f'USD per million tokens, as a string; a free model says {key} = "0"'
            table.refuse(key, f"the model {quote(name)} has no price", hint)
    cached, written = "cached_input_usd_per_mtok", "cache_write_usd_per_mtok"
    expected = "USD per million tokens"
    price = Price(
        input_usd=table.money("input_usd_per_mtok", expected),
        output_usd=table.money("output_usd_per_mtok", expected),
        cached_input_usd=None if cached not in table else table.money(cached, expected),
        cache_write_usd=None if written not in table else table.money(written, expected),
    )
    key_env = table.take("key_env")
    model = PlanModel(
        name=name,
        spec=_read_spec(table),
        price=price,
        max_tokens=table.whole("max_tokens", default=1024, least=1, most=MAX_TOKENS),
        is_idempotent=table.flag("idempotent"),
        key_env=None if key_env is None else table.check_text("key_env", key_env),
    )
    table.take(cached)
    table.take(written)
    table.close()
    return model


def _read_spec(table: Table) -> str:
    """Read a model's spec; its kind is known, and what it names is looked for when it is opened."""
    spec = table.text("spec")
    try:
        plugins.require(plugins.MODELS, parse_spec(spec).kind)
    except UsageError as error:
        table.refuse("spec", error.message, error.hint)
    return spec


def read_limits(table: Table) -> RunLimits:
    """Read `[limits]`; what is not stated keeps its default."""
    default = RunLimits()

    def whole(name: str, most: int) -> int:
        return table.whole(name, default=getattr(default, name), least=1, most=most)

    limits = RunLimits(
        cpu_s=whole("cpu_s", _DAY_S),
        memory_bytes=whole("memory_bytes", 1024 * _GIB),
        n_processes=whole("n_processes", 4096),
        disk_bytes=whole("disk_bytes", 1024 * _GIB),
        output_bytes=whole("output_bytes", _GIB),
        wall_s=table.seconds("wall_s", default=default.wall_s, most=7 * _DAY_S),
        model_calls=whole("model_calls", 100_000),
        tool_calls=whole("tool_calls", 1_000_000),
    )
    table.close()
    return limits


def read_graders(table: Table) -> tuple[GraderSpec, ...]:
    """Read `[[graders]]`: names unique; what a kind takes is for its grader to read."""
    entries = table.tables("graders")
    if len(entries) > MAX_GRADERS:
        table.refuse("graders", f"{len(entries)} graders: at most {MAX_GRADERS}")
    graders = [
        GraderSpec(entry.name("name"), entry.text("kind"), options=entry.rest())
        for entry in entries
    ]
    _hold_names(entries, [grader.name for grader in graders])
    return tuple(graders)


def _hold_names(entries: Sequence[Table], names: Sequence[str]) -> None:
    """Hold that each of a list of tables has another name."""
    for number, (entry, name) in enumerate(zip(entries, names, strict=True)):
        if name in names[:number]:
            entry.refuse("name", f"{quote(name)} stands twice")
