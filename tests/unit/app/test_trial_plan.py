"""A plan is read whole or refused with file and key."""

from decimal import Decimal
from pathlib import Path

import pytest

from redrive.app.trial_plan import HINT, PlanChanges, read_plan
from redrive.errors import RedriveError, UsageError
from redrive.replay.trial_plan import RunLimits, plan_runs
from redrive.replay.trial_values import Purpose
from tests.trial_plans import (
    CEILINGS,
    GRADER,
    HEAD,
    LINES,
    MODEL,
    TASKS,
    WHOLE,
    digest_fake,
    load_fake,
    no_store,
    plan_of,
)

JUDGE = '[[graders]]\nname = "style"\nkind = "judge"\nmodel = "small"\n'


def refused(folder: Path, text: str, **fields) -> str:
    with pytest.raises(UsageError) as found:
        plan_of(folder, text, **fields)
    assert "\n" not in found.value.message
    return found.value.message


def test_a_plan_is_read_as_written(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, WHOLE + "[limits]\nwall_s = 120\nmodel_calls = 5\n")
    assert [entry.label for entry in plan.workflows] == ["workflows@1", "workflows@2"]
    assert [entry.role for entry in plan.workflows] == ["incumbent", "challenger"]
    assert [entry.source for entry in plan.workflows] == ["workflows.py:v1", "workflows.py:v2"]
    assert [task.name for task in plan.tasks] == ["one", "tasks.jsonl:2"]
    assert plan.models[0].price.output_usd == Decimal("0.40")
    assert plan.models[0].max_tokens == 256
    assert plan.ceilings == {Purpose.REPLAY: Decimal(1), Purpose.JUDGING: Decimal("0.2")}
    assert plan.limits == RunLimits(wall_s=120, model_calls=5)
    assert (plan.attempts, plan.seed, plan.parallel, plan.simulate) == (1, 0, 0, ())
    assert plan.folder == str(tmp_path)
    assert plan.n_runs == len(list(plan_runs(plan))) == 4


def test_prices_of_cached_input_are_read_where_they_are_stated(tmp_path):
    cached = 'cached_input_usd_per_mtok = "0.03"\ncache_write_usd_per_mtok = "0.375"\n'
    plan = plan_of(tmp_path, WHOLE.replace("output_usd_per_mtok", cached + "output_usd_per_mtok"))
    price = plan.models[0].price
    assert (price.cached_input_usd, price.cache_write_usd) == (Decimal("0.03"), Decimal("0.375"))


def test_what_a_grader_takes_stays_as_written(tmp_path: Path) -> None:
    text = WHOLE + 'pointer = "/label"\ntolerance = 0.5\nwords = ["a", 1]\n'
    assert plan_of(tmp_path, text).graders[0].options == {
        "pointer": "/label",
        "tolerance": 0.5,
        "words": ["a", 1],
    }


def test_a_plan_without_models_needs_no_ceiling(tmp_path: Path) -> None:
    assert plan_of(tmp_path, HEAD + TASKS).ceilings == {}


BAD = [
    (WHOLE.replace('name = "triage"', 'name = "tri age"'), "plan.toml: name: expected 1 to 64"),
    (WHOLE.replace('name = "triage"\n', ""), "plan.toml: name: missing: expected a string"),
    ("atempts = 3\n" + WHOLE, "plan.toml: atempts: unknown key"),
    ("attempts = 0\n" + WHOLE, "plan.toml: attempts: expected 1 to 1000, found 0"),
    ("attempts = true\n" + WHOLE, "attempts: expected an integer, found a boolean"),
    ("attempts = 1.5\n" + WHOLE, "attempts: expected an integer, found a float"),
    ("seed = -1\n" + WHOLE, "seed: expected 0 to 9223372036854775807, found -1"),
    ("seed = " + "9" * 300 + "\n" + WHOLE, "found a number of 997 bits"),
    ("simulate = [1]\n" + WHOLE, "simulate[0]: expected a string, found an integer"),
    ("simulate = 'a'\n" + WHOLE, "simulate: expected a list of strings, found a string"),
    ("simulate = ['a', 'a']\n" + WHOLE, "simulate[1]: 'a' stands twice"),
    (HEAD + TASKS + MODEL, "plan.toml: ceilings.replay_usd: missing: runs ask models"),
    (
        HEAD + TASKS + MODEL + JUDGE + '[ceilings]\nreplay_usd = "1"\n',
        "ceilings.judging_usd: missing: a judge asks a model",
    ),
    (WHOLE.replace('"1.00"', "1.00"), "ceilings.replay_usd: found the float 1.0: a TOML float is"),
    (WHOLE.replace('"1.00"', "1"), "ceilings.replay_usd: found the number 1: money is written as"),
    (WHOLE.replace('"1.00"', "true"), "ceilings.replay_usd: expected a decimal as a string"),
    (WHOLE.replace('"1.00"', '"-1.00"'), "ceilings.replay_usd: negative: '-1.00'"),
    (WHOLE.replace('"1.00"', '"1e3"'), "ceilings.replay_usd: expected a plain decimal"),
    (WHOLE.replace('"1.00"', '"NaN"'), "ceilings.replay_usd: expected a plain decimal"),
    (WHOLE.replace("replay_usd", "live_usd"), "ceilings.live_usd: unknown key"),
    (WHOLE.replace('"0.10"', "0.10"), "models[0].input_usd_per_mtok: found the float 0.1"),
    (
        WHOLE.replace('input_usd_per_mtok = "0.10"\n', ""),
        "models[0].input_usd_per_mtok: the model 'small' has no price",
    ),
    (WHOLE.replace('"local"', '"lokal"'), "models[0].spec: no model named 'lokal'"),
    (WHOLE.replace('"local"', '":x"'), "models[0].spec: a model spec without a kind"),
    (WHOLE.replace("max_tokens = 256", "max_tokens = 0"), "models[0].max_tokens: expected 1 to"),
    (WHOLE.replace("max_tokens = 256", "tokens = 256"), "models[0].tokens: unknown key"),
    (WHOLE + MODEL, "models[1].name: 'small' stands twice"),
    (WHOLE + GRADER, "graders[1].name: 'correct' stands twice"),
    (WHOLE + GRADER.replace("correct", "x").replace('kind = "exact"', ""), "graders[1].kind: mis"),
    (WHOLE + "when = 2020-01-01\n", "graders[0].when: a date or time has no JSON form"),
    (WHOLE + "tolerance = nan\n", "graders[0].tolerance: nan has no JSON form"),
    (WHOLE + "deep = " + "[" * 40 + "]" * 40 + "\n", "nested too deeply"),
    (WHOLE + JUDGE.replace('model = "small"', ""), "graders[1].model: missing: a judge names"),
    (WHOLE + JUDGE.replace("small", "big"), "graders[1].model: 'big' is no model of the plan"),
    (WHOLE.replace("role", "rolle"), "workflows[0].rolle: unknown key"),
    (WHOLE.replace('incumbent" }', 'winner" }'), "workflows[0].role: expected challenger or inc"),
    (WHOLE.replace(":v2", ":v1"), "workflows[1].source: workflows@1 stands twice"),
    (WHOLE.replace(":v2", ":absent"), "plan.toml: workflows[1].source: no absent in the file"),
    (HEAD[: HEAD.index("workflows")] + TASKS, "workflows: names no workflow"),
    (WHOLE.replace("within 0.05", "above"), "plan.toml: gate: no gate: "),
    (WHOLE.replace('"challenger within', '"v3 within'), "gate: the gate's 'v3' is no variant"),
    (
        WHOLE.replace('role = "challenger"', 'role = "incumbent"').replace(
            '"challenger within', '"workflows@1 within'
        ),
        "gate: the gate's 'incumbent' is 2 variants",
    ),
    (WHOLE.replace(GRADER, ""), "gate: a gate needs a grader"),
    (WHOLE.replace(TASKS, ""), "plan.toml: tasks: expected exactly one of `jsonl` and `sessions`"),
    (WHOLE.replace(TASKS, "tasks = 1\n"), "tasks: expected a table, found an integer"),
    (
        "models = 1\n" + WHOLE.replace(MODEL, ""),
        "models: expected a list of tables, found an integer",
    ),
    ("models = [1]\n" + WHOLE.replace(MODEL, ""), "models[0]: expected a table, found an integer"),
    (WHOLE + "[limits]\nwall_s = inf\n", "limits.wall_s: expected more than 0 and at most"),
    (WHOLE + "[limits]\nwall_s = 0\n", "limits.wall_s: expected more than 0"),
    (WHOLE + "[limits]\nwall_s = '1'\n", "limits.wall_s: expected seconds, found a string"),
    (WHOLE + "[limits]\nmemory_mb = 1\n", "limits.memory_mb: unknown key"),
    (WHOLE.replace("max_tokens", 'idempotent = "yes"\nmax_tokens'), "models[0].idempotent: expect"),
    ("environment = 'absent.json'\n" + WHOLE, "environment: "),
    ("environment = 'tasks.jsonl'\n" + WHOLE, "environment: "),
    ("environment = '/dev/zero'\n" + WHOLE, "environment: /dev/zero: no file"),
    ("environment = ''\n" + WHOLE, "environment: expected one line"),
    ("attempts = 1000\n" + WHOLE, "attempts: 202000 runs: at most 100000 in one trial"),
    ("x = [1\n", "plan.toml: not TOML: "),
    ("x = " + "[" * 5000, "plan.toml: not TOML: nested too deeply"),
    ("x = " + "9" * 5000, "plan.toml: not TOML: "),
    ("name = 'a'\nname = 'b'\n", "plan.toml: not TOML: "),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_a_wrong_plan_is_refused_with_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    lines = "".join(f'{{"input": {n}}}\n' for n in range(101)) if "202000" in message else LINES
    assert message in refused(tmp_path, text, lines=lines)


def test_money_of_a_refused_float_says_why_and_how_to_write_it(tmp_path: Path) -> None:
    message = refused(tmp_path, WHOLE.replace('"0.40"', "0.40"))
    assert message == (
        "plan.toml: models[0].output_usd_per_mtok: found the float 0.4: a TOML float is a binary"
        ' fraction and not exact: write output_usd_per_mtok = "0.10"'
    )


def test_no_such_plan_and_what_is_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such plan") as found:
        plan_of_path(tmp_path / "absent.toml")
    assert found.value.hint == HINT
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not TOML"):
        plan_of_path(tmp_path / "bytes.toml")
    (tmp_path / "long.toml").write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(UsageError, match="more than 1048576 bytes"):
        plan_of_path(tmp_path / "long.toml")
    with pytest.raises(RedriveError):
        plan_of_path(tmp_path)


def plan_of_path(path: Path) -> None:
    read_plan(path, no_store, load_workflow=load_fake, digest_workspace=digest_fake)


def test_nothing_is_loaded_before_the_plan_itself_is_sound(tmp_path: Path) -> None:
    text = WHOLE.replace(":v2", ":absent") + "colour = 1\n[surplus]\n"
    assert "surplus: unknown key" in refused(tmp_path, text)


def test_the_command_line_changes_the_plan_and_its_digest(tmp_path: Path) -> None:
    plain = plan_of(tmp_path)
    changes = PlanChanges(gate="challenger within 0.10 of incumbent", simulate=("mail", "mail"))
    changed = plan_of(tmp_path, changes=changes)
    assert changed.gate == "challenger within 0.10 of incumbent"
    assert changed.simulate == ("mail",)
    assert changed.digest != plain.digest


def test_a_simulator_named_twice_is_one(tmp_path: Path) -> None:
    text = 'simulate = ["mail"]\n' + WHOLE
    changes = PlanChanges(simulate=("mail", "push"))
    assert plan_of(tmp_path, text, changes=changes).simulate == ("mail", "push")


def test_the_digest_follows_what_changes_a_run_and_nothing_else(tmp_path: Path) -> None:
    digest = plan_of(tmp_path).digest
    (tmp_path / "elsewhere").mkdir()
    same = [
        plan_of(tmp_path / "elsewhere"),
        plan_of(tmp_path, "# a comment\n" + WHOLE),
        plan_of(tmp_path, "parallel = 2\n" + WHOLE),
        plan_of(tmp_path, WHOLE.replace('"1.00"', '"5.00"')),
    ]
    assert {plan.digest for plan in same} == {digest}
    other = [
        plan_of(tmp_path, "seed = 1\n" + WHOLE),
        plan_of(tmp_path, WHOLE.replace(":v2", ":v3")),
        plan_of(tmp_path, WHOLE.replace("0.40", "0.41")),
        plan_of(tmp_path, lines=LINES.replace('"x"', '"y"')),
        plan_of(tmp_path, lines=LINES.replace('"x"', "null")),
        plan_of(tmp_path, lines=LINES.replace(', "expected": "x"', "")),
        plan_of(tmp_path, WHOLE.replace(CEILINGS, CEILINGS + "[limits]\nwall_s = 1\n")),
    ]
    assert len({digest, *(plan.digest for plan in other)}) == 8


def test_the_environment_of_the_runs_is_a_table_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "env.json").write_text('{"b": 1, "a": [2]}')
    read = plan_of(tmp_path, 'environment = "env.json"\n' + WHOLE)
    written = plan_of(tmp_path, WHOLE + "[environment]\nb = 1\na = [2]\n")
    assert read.environment == written.environment
    (tmp_path / "list.json").write_text("[1]")
    assert "expected one JSON object" in refused(tmp_path, 'environment = "list.json"\n' + WHOLE)


def test_too_many_parts_are_refused(tmp_path: Path) -> None:
    many = "".join(MODEL.replace('"small"', f'"m{n}"') for n in range(65))
    assert "65 models: at most 64" in refused(tmp_path, HEAD + TASKS + CEILINGS + many)
    many = "".join(GRADER.replace('"correct"', f'"g{n}"') for n in range(65))
    assert "65 graders: at most 64" in refused(tmp_path, HEAD + TASKS + many)
    sources = ",".join(f'{{source = "w.py:v{n}"}}' for n in range(65))
    text = f'name = "a"\nworkflows = [{sources}]\n' + TASKS
    assert "65 workflows: at most 64" in refused(tmp_path, text)
