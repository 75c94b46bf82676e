"""Case 61 on tasks: each field of the recorded environment that differs is named."""

import json
from pathlib import Path

import msgspec
from msgspec import UNSET, Raw

from redrive.compare.trial_environment import NOT_ATTRIBUTED, judge_environment
from redrive.replay.trial_plan import TrialPlan
from redrive.replay.trial_values import TrialTask


def judged(recorded, given):
    def raw(value):
        return UNSET if value is None else Raw(msgspec.json.encode(value))

    plan = TrialPlan("t", (), (), (), {}, environment=raw(given))
    return judge_environment(plan, TrialTask("t", "t", Raw(b"1"), environment=raw(recorded)))


def test_a_dropped_configuration_names_every_field_and_attributes_nothing(cases: Path) -> None:
    folder = cases / "61-environment-config-dropped"
    expected = json.loads((folder / "expected.json").read_text())["expect"]
    config = json.loads(json.loads((folder / "recorded.traj").read_text())["replay_config"])["env"]
    offered = json.loads((folder / "replay_env.json").read_text())
    found = judged(config, offered)
    wanted = expected["recorded.traj + replay_env.json"]["differing_fields"]
    assert found.status == "differs"
    assert [entry.field for entry in found.differences] == wanted
    assert [note.split(": ")[1] for note in found.notes[:-1]] == wanted
    assert found.notes[-1] == NOT_ATTRIBUTED
    same = judged(config, json.loads((folder / "same_env.json").read_text()))
    assert (same.status, same.differences, same.notes) == ("same", (), ())


def test_an_environment_that_cannot_be_compared_says_so() -> None:
    assert judged(None, {"a": 1}).status == "not_recorded"
    assert judged(None, {"a": 1}).notes == ()
    found = judged({"a": 1}, None)
    assert found.status == "not_compared"
    assert NOT_ATTRIBUTED in found.notes[0]
