import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.audit.references import Reference
from redrive.audit.sent import Body, SentScanner, SentText

LONG = "long " * 600
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}


def body_of(text: str) -> Body:
    body = SentScanner().scan_body(text).body
    assert body is not None
    return body


def test_parameters_are_read_under_their_neutral_names_and_null_is_absent() -> None:
    body = body_of('{"model":"m","temperature":0,"seed":null,"max_completion_tokens":9,"n":1}')
    assert body == Body("m", {"temperature": 0, "max_tokens": 9}, (), has_cache=False)


def test_a_hostile_model_name_is_not_recorded() -> None:
    assert body_of('{"model":["m"]}').model is None


NO_OBJECT = ["", '""', "[]", "not json", '"x"', '{"a":', '\ufeff{"a":1}', "[" * 100_000, "{} {}"]
DEEP = '{"a":' + "[" * 100_000 + "]" * 100_000 + "}"
INEXACT = ['{"a":1e400}', '{"a":[NaN]}', '{"a":-Infinity}', '{"seed":1' + "0" * 4400 + "}"]


@pytest.mark.parametrize("text", [*NO_OBJECT, DEEP])
def test_what_is_no_json_object_is_no_body(text: str) -> None:
    found = SentScanner().scan_body(text)
    assert (found.body, found.unmet) == (None, "one JSON object")


@pytest.mark.parametrize("text", INEXACT)
def test_a_body_with_a_number_that_cannot_be_represented_is_not_read(text: str) -> None:
    found = SentScanner().scan_body(text)
    assert (found.body, found.unmet) == (None, "one JSON object of exact numbers")


@pytest.mark.parametrize("tools", ["{}", '{"type":"web_search"}', '"t"', "[1]", '[{"type":1}]'])
def test_tools_that_are_no_list_of_tools_are_malformed(tools: str) -> None:
    assert body_of(f'{{"tools":{tools}}}').malformed == {"tools": "a list of tools"}


@pytest.mark.parametrize("tools", ["null", "[]", '[{"type":"function"},{"name":"t"}]'])
def test_tools_in_a_list_are_not_malformed(tools: str) -> None:
    assert body_of(f'{{"tools":{tools}}}').malformed == {}


def test_a_reference_under_an_escaped_key_is_found() -> None:
    text = '{"messages":[{"content":[{"type":"input_file","file_\\u0069d":"file-1"}]}]}'
    assert body_of(text).references == (Reference("input_file file-1"),)


def test_a_body_with_a_lone_surrogate_is_read_all_the_same() -> None:
    text = '{"model":"m","seed":7,"messages":[{"content":"\\ud83d"}]}'
    assert body_of(text).parameters == {"seed": 7}


def test_fields_tools_and_parts_by_reference_are_found() -> None:
    text = json.dumps(
        {
            "previous_response_id": "resp_1",
            "tools": [{"type": "web_search"}],
            "input": [{"role": "user", "content": [IMAGE, IMAGE]}],
        }
    )
    assert body_of(text).references == (
        Reference("previous_response_id resp_1"),
        Reference("web_search", is_provider_side=True),
        Reference("image_url https://example.org/cat.png"),
    )


@pytest.mark.parametrize(
    "text",
    [
        '{"cache_prompt":true}',
        '{"prompt_cache_key":"k"}',
        '{"system":[{"text":"s","cache_control":{"type":"ephemeral"}}]}',
    ],
)
def test_a_prompt_cache_is_seen(text: str) -> None:
    assert body_of(text).has_cache


def test_a_cache_that_is_switched_off_is_none() -> None:
    assert not body_of('{"cache_prompt":false}').has_cache


def test_a_context_is_scanned_for_marks_and_duplicate_keys_alone() -> None:
    scanner = SentScanner()
    assert scanner.scan_context('[{"a":1,"a":"[REDACTED]"}]') == SentText(
        "[REDACTED]", has_duplicates=True
    )
    assert scanner.scan_context("[user] go") == SentText(None, has_duplicates=False)


def grow(texts: list[str]) -> list[SentText]:
    scanner = SentScanner()
    return [scanner.scan_body(text) for text in texts]


def written(messages: list[Any], **fields: Any) -> str:
    return json.dumps({"model": "m", "messages": messages, "temperature": 0, **fields})


FIRST = [{"role": "user", "content": LONG}]
GROWN = {
    "nothing new": FIRST,
    "a plain message": [*FIRST, {"role": "assistant", "content": "ok"}],
    "a mark": [*FIRST, {"role": "tool", "content": "xxxxxxxxxx"}],
    "an image": [*FIRST, {"role": "user", "content": [IMAGE]}],
    "a cache point": [*FIRST, {"role": "user", "cache_control": {"type": "ephemeral"}}],
    "another beginning": [{"role": "system", "content": "s"}, *FIRST],
    "other text": [{"role": "user", "content": LONG + "more"}],
    "less": [{"role": "user", "content": "short"}],
}


@pytest.mark.parametrize("name", GROWN)
def test_a_grown_body_is_judged_as_if_it_were_scanned_whole(name: str) -> None:
    texts = [written(FIRST), written(GROWN[name]), written([*GROWN[name], {"role": "user"}])]
    assert grow(texts) == [SentScanner().scan_body(text) for text in texts]


def test_another_parameter_in_a_grown_body_is_seen() -> None:
    texts = [written(FIRST, seed=1), written(FIRST, seed=12), written(FIRST, seed=12, top_p=1)]
    parameters = [found.body.parameters for found in grow(texts) if found.body is not None]
    assert [p["seed"] for p in parameters] == [1, 12, 12]
    assert parameters[2]["top_p"] == 1


def test_a_list_that_was_empty_may_grow() -> None:
    texts = [written([], user=LONG), written([{"role": "user", "content": [IMAGE]}], user=LONG)]
    assert grow(texts)[1] == SentScanner().scan_body(texts[1])
    assert grow(texts)[1] != grow(texts)[0]


def test_a_duplicate_key_in_a_new_message_stays_known() -> None:
    first = json.dumps(FIRST)
    second = first[:-1] + ', {"a": 1, "a": 2}]'
    third = second[:-1] + ', {"b": 1}]'
    scanner = SentScanner()
    found = [scanner.scan_context(text).has_duplicates for text in (first, second, third)]
    assert found == [False, True, True]


def test_a_grown_text_that_is_no_body_stays_none() -> None:
    assert [found.body for found in grow([json.dumps(FIRST), json.dumps([*FIRST, {}])])] == [
        None,
        None,
    ]


LONE = '{"seed":1,"user":"\\ud83d","messages":[{"content":"' + LONG + '"}]}'


@pytest.mark.parametrize("inserted", [',{"role":"user"}', ', {"a": {"b": 1}}', ',{"a":"xxxxxxxx"}'])
def test_a_body_with_a_lone_surrogate_grows_too(inserted: str) -> None:
    texts = [LONE, LONE[:-2] + inserted + LONE[-2:]]
    assert grow(texts) == [SentScanner().scan_body(text) for text in texts]


@pytest.mark.parametrize("first", [written(FIRST), LONE])
@pytest.mark.parametrize(("at", "inserted"), [(-1, ',{"x":1}'), (-2, ","), (0, '{"x":1}')])
def test_a_body_that_an_insertion_broke_is_no_body(first: str, at: int, inserted: str) -> None:
    end = len(first) + at if at else 0
    found = grow([first, first[:end] + inserted + first[end:]])
    assert [one.unmet for one in found] == [None, "one JSON object"]


def test_a_body_that_an_insertion_mended_is_one() -> None:
    torn = '{"messages":["' + LONG + '" 2]}'
    found = grow([torn, torn.replace('" 2', '",{}, 2')])
    assert [one.unmet for one in found] == ["one JSON object", None]


MESSAGES = st.lists(
    st.sampled_from(
        [
            {"role": "user", "content": 'hi, {} [] \\ " ,'},
            {"role": "tool", "content": "********"},
            {"role": "user", "content": [IMAGE]},
            {"role": "assistant", "content": None, "x": {"a": [1, {"b": {}}]}},
        ]
    ),
    max_size=4,
)


@given(st.lists(MESSAGES, min_size=1, max_size=5), st.booleans())
def test_growth_never_changes_what_is_found(runs: list[list[Any]], is_compact: bool) -> None:
    separators = (",", ":") if is_compact else None
    messages: list[Any] = [{"role": "user", "content": LONG}]
    texts = []
    for run in runs:
        messages = [*messages, *run]
        body = {"messages": messages, "seed": 1}
        texts.append(json.dumps(body, separators=separators))
    assert grow(texts) == [SentScanner().scan_body(text) for text in texts]
