import json
from pathlib import Path

from redrive.audit.environment import ABSENT, FieldDifference, compare_environment


def test_equal_environments_do_not_differ_whatever_their_key_order() -> None:
    assert compare_environment({"a": 1, "b": {"c": [1]}}, {"b": {"c": [1]}, "a": 1}) == ()


def test_each_differing_field_is_named_by_its_path_sorted() -> None:
    recorded = {"image": {"name": "py", "tag": "3.11"}, "cmds": ["a", "b"], "gone": None}
    given = {"image": {"name": "py", "tag": "3.12"}, "cmds": ["b", "a"], "new": 1}
    assert compare_environment(recorded, given) == (
        FieldDifference("cmds", '["a","b"]', '["b","a"]'),
        FieldDifference("gone", "null", ABSENT),
        FieldDifference("image.tag", '"3.11"', '"3.12"'),
        FieldDifference("new", ABSENT, "1"),
    )


def test_an_object_in_the_place_of_a_text_differs_as_a_whole() -> None:
    assert compare_environment({"a": {"b": 1}}, {"a": "b"})[0].field == "a"


def test_true_is_not_one() -> None:
    assert [found.field for found in compare_environment({"a": True}, {"a": 1})] == ["a"]


def test_a_dropped_configuration_names_every_field(cases: Path) -> None:
    folder = cases / "61-environment-config-dropped"
    expected = json.loads((folder / "expected.json").read_text())["expect"]
    config = json.loads(json.loads((folder / "recorded.traj").read_text())["replay_config"])["env"]
    for name in ("replay_env.json", "same_env.json"):
        offered = json.loads((folder / name).read_text())
        wanted = expected[f"recorded.traj + {name}"]["differing_fields"]
        assert [found.field for found in compare_environment(config, offered)] == wanted
