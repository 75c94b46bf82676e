from pathlib import Path

import pytest

from redrive.errors import PluginError, UsageError
from redrive.models.options import ModelOptions
from redrive.models.python import open_model
from redrive.replay.ports import ModelQuery, ModelReply

SOURCE = """
from redrive.models.adapters import from_step_fn
from redrive.replay.ports import ModelReply


def complete(prompt, config):
    return f"{prompt} {config.get('seed')}"


def step(messages, verbose=False):
    return {"tool": "count", "arguments": {"n": len(messages)}}


def broken(messages):
    raise RuntimeError("out of luck")


def three(a, b, c):
    return ""


class Own:
    apis = ("openai.chat",)
    closed = 0

    def decide(self, query):
        query.messages[0]["role"] = "spoiled"
        return ModelReply("own")

    def close(self):
        Own.closed += 1


class Bad:
    def decide(self, query):
        return "text"


own, bad, adapted, number = Own(), Bad(), from_step_fn(step), 7
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "my models.py"
    file.write_text(SOURCE)
    return file


def asked(path: Path, name: str, query: ModelQuery) -> ModelReply:
    model = open_model(f"{path}:{name}", ModelOptions(seed=5))
    assert model.spec == f"python:{path}:{name}"
    reply = model.decide(query)
    model.close()
    return reply


def test_a_callable_with_two_parameters_completes_text(path: Path) -> None:
    assert asked(path, "complete", ModelQuery(1, prompt="go")).text == "go 5"


@pytest.mark.parametrize("name", ["step", "adapted"])
def test_a_callable_with_one_parameter_is_a_step_function(path: Path, name: str) -> None:
    calls = asked(path, name, ModelQuery(1, messages=({"role": "user"},))).calls
    assert bytes(calls[0].arguments) == b'{"n":1}'  # type: ignore[arg-type]


def test_an_object_with_decide_is_a_model_and_cannot_change_the_query(path: Path) -> None:
    query = ModelQuery(1, messages=({"role": "user"},))
    model = open_model(f"{path}:own", ModelOptions())
    assert (model.reads_context, model.apis) == (True, ("openai.chat",))
    assert model.decide(query).text == "own"
    assert query.messages[0]["role"] == "user"
    model.close()


def test_an_object_that_gives_no_reply_is_a_plugin_error(path: Path) -> None:
    with pytest.raises(PluginError, match=r"decide\(query\) gave str"):
        asked(path, "bad", ModelQuery(1))


def test_an_object_without_close_is_closed_silently(path: Path) -> None:
    open_model(f"{path}:bad", ModelOptions()).close()


def test_an_exception_names_the_line_of_the_users_file(path: Path) -> None:
    line = SOURCE.splitlines().index('    raise RuntimeError("out of luck")') + 1
    with pytest.raises(PluginError, match="RuntimeError: out of luck") as caught:
        asked(path, "broken", ModelQuery(1))
    assert caught.value.where == f"{path}:{line}"


@pytest.mark.parametrize("name", ["three", "number", "absent"])
def test_a_name_of_no_known_shape_is_a_plugin_error(path: Path, name: str) -> None:
    with pytest.raises(PluginError) as caught:
        open_model(f"{path}:{name}", ModelOptions())
    assert "step(messages)" in caught.value.hint


@pytest.mark.parametrize(
    ("source", "line"), [("x = 1\nimport nothing_of_that_name\n", 2), ("x = (\n\n", 1)]
)
def test_a_file_that_does_not_load_is_named_with_its_line(
    tmp_path: Path, source: str, line: int
) -> None:
    file = tmp_path / "m.py"
    file.write_text(source)
    with pytest.raises(PluginError) as caught:
        open_model(f"{file}:x", ModelOptions())
    assert caught.value.where == f"{file}:{line}"


@pytest.mark.parametrize("argument", ["", "m", "m.py", "m.txt:f", "m.py:", "m.py:a b"])
def test_a_malformed_spec_is_a_usage_error(argument: str) -> None:
    with pytest.raises(UsageError, match=r"no PATH\.py:NAME"):
        open_model(argument, ModelOptions())


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        open_model(f"{tmp_path / 'none.py'}:f", ModelOptions())
