from pathlib import Path

import pytest
from msgspec import UNSET, Raw

from redrive.errors import UsageError
from redrive.models.options import ModelOptions
from redrive.models.script import ScriptModel, open_model, parse_script
from redrive.replay.ports import CallAsked, ModelFingerprint, ModelQuery

OPTIONS = ModelOptions()
RECORDED = ModelFingerprint(requested="m-1", served="m-1-2026")


def opened(tmp_path: Path, text: str) -> ScriptModel:
    path = tmp_path / "shadow.jsonl"
    path.write_text(text)
    return open_model(str(path), OPTIONS)


def test_lines_are_given_in_order_and_text_without_final_goes_on(tmp_path: Path) -> None:
    model = opened(
        tmp_path,
        '{"tool_calls":[{"name":"a","args":{"x":1.0}}]}\n'
        '{"text":"thinking","tool_calls":[{"name":"b"}]}\n\n'
        '{"text":"more"}\r\n{"text":"done","final":true}\n',
    )
    replies = [model.decide(ModelQuery(n)) for n in (1, 2, 3, 4)]
    assert [reply.text for reply in replies] == ["", "thinking", "more", "done"]
    assert [reply.is_final for reply in replies] == [False, False, False, True]
    assert replies[0].calls == (CallAsked("a", arguments=Raw(b'{"x":1.0}')),)
    assert replies[1].calls == (CallAsked("b"),)


def test_a_script_reads_no_context_and_needs_no_request(tmp_path: Path) -> None:
    model = opened(tmp_path, '{"text":"x","final":true}')
    assert (model.reads_context, model.apis) == (False, ())
    assert model.decide(ModelQuery(1, body=None)).text == "x"
    model.close()


def test_argument_text_stays_verbatim_and_differs_from_arguments() -> None:
    script = parse_script(
        b'{"tool_calls":[{"name":"p","args_json":"{\\"x\\":1"},{"name":"q","args_json":""}]}', "s"
    )
    first, second = script.replies[0].calls
    assert (first.arguments, first.arguments_text) == (UNSET, '{"x":1')
    assert second.arguments_text == ""


def test_numbers_and_lone_surrogates_of_a_line_stay_exact() -> None:
    script = parse_script(
        b'{"tool_calls":[{"name":"a","args":{"n":18446744073709551617}}]}\n{"text":"ok \\ud83d"}',
        "s",
    )
    assert script.replies[0].calls[0].arguments == Raw(b'{"n":18446744073709551617}')
    assert script.replies[1].text == "ok \ud83d"


def test_arguments_keep_the_bytes_that_they_were_written_in() -> None:
    line = '{"text": null, "tool_calls": [{"name": "a", "args": {"x": "é", "x": 1.0}}], "o": "é"}'
    assert parse_script(line.encode(), "s").replies[0].calls == (
        CallAsked("a", arguments=Raw('{"x": "é", "x": 1.0}'.encode())),
    )


def test_bytes_that_are_no_text_are_found_in_what_a_line_is_not_read_for() -> None:
    with pytest.raises(UsageError, match="not JSON"):
        parse_script(b'{"tool_calls": [], "note": "\xff"}', "s")


def test_without_a_model_line_the_recorded_model_is_said_to_have_answered(tmp_path: Path) -> None:
    reply = opened(tmp_path, '{"text":"x"}').decide(ModelQuery(1, recorded_model=RECORDED))
    assert reply.model == RECORDED


def test_a_model_line_names_who_answered(tmp_path: Path) -> None:
    model = opened(tmp_path, '{"model":{"served":"m-2","fingerprint":7}}\n{"text":"x"}')
    reply = model.decide(ModelQuery(1, recorded_model=RECORDED))
    assert reply.model == ModelFingerprint(served="m-2")


def test_a_script_that_runs_out_names_its_file_and_its_number_of_decisions(tmp_path: Path) -> None:
    model = opened(tmp_path, '{"tool_calls":[{"name":"a"}]}')
    model.decide(ModelQuery(1))
    with pytest.raises(UsageError, match="1 decisions, and decision 2 was asked") as caught:
        model.decide(ModelQuery(2))
    assert caught.value.where.endswith("shadow.jsonl")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{nope", "not JSON"),
        (b'"text"', "no object"),
        (b"{}", "without a decision"),
        (b'{"texts":"typo"}', "without a decision"),
        (b'{"text":1}', "text is no str"),
        (b'{"final":"yes"}', "final is no bool"),
        (b'{"tool_calls":{"name":"a"}}', "tool_calls is no list"),
        (b'{"tool_calls":["a"]}', "without a name"),
        (b'{"tool_calls":[{"args":{}}]}', "without a name"),
        (b'{"tool_calls":[{"name":"a","args_json":{}}]}', "args_json is no str"),
        (b'{"tool_calls":[{"name":"a","args":{},"args_json":""}]}', "both args and args_json"),
        (b'{"model":{}}', "not the first"),
        (b'{"text":"\xff"}', "not JSON"),
    ],
)
def test_a_malformed_line_is_named_with_file_and_line(line: bytes, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse_script(b'{"text":"fine"}\n' + line, "shadow.jsonl")
    assert caught.value.where == "shadow.jsonl:2"


def test_a_model_line_without_an_object_is_malformed() -> None:
    with pytest.raises(UsageError, match="without a model object"):
        parse_script(b'{"model":"m-2"}', "s")


def test_a_folder_gives_one_file_per_run_in_name_order(tmp_path: Path) -> None:
    for name in ("shadow_02", "shadow_01", "session"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text":"{name}","final":true}}')
    texts = [
        open_model(str(tmp_path), ModelOptions(run=run)).decide(ModelQuery(1)).text
        for run in (0, 1)
    ]
    assert texts == ["shadow_01", "shadow_02"]
    with pytest.raises(UsageError, match=r"2 scripts .* run 3"):
        open_model(str(tmp_path), ModelOptions(run=2))


def test_a_missing_script_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the script") as caught:
        open_model(str(tmp_path / "none.jsonl"), OPTIONS)
    assert "none.jsonl" in caught.value.where


def test_every_script_of_the_case_suite_is_read(cases: Path) -> None:
    paths = sorted(cases.glob("*/shadow*.jsonl"))
    assert len(paths) > 20
    for path in paths:
        assert parse_script(path.read_bytes(), path.name).replies[-1].is_final, path


def test_keys_that_stand_twice_in_arguments_stay_beside_argument_text_too() -> None:
    script = parse_script(
        b'{"tool_calls":[{"name":"a","args":{"x":1,"x":2}},{"name":"b","args_json":"{}"},'
        b'{"name":"c","args_json":null}]}',
        "s",
    )
    assert script.replies[0].calls == (
        CallAsked("a", arguments=Raw(b'{"x":1,"x":2}')),
        CallAsked("b", arguments_text="{}"),
        CallAsked("c"),
    )
