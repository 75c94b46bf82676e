import pytest

from redrive.app import excerpts, searching
from redrive.app.searching import Search, compile_pattern, texts_of
from redrive.errors import TamperError, UsageError
from redrive.record.event import PAYLOAD_DECODERS, Kind


def found(recorded_pair, pattern, tool=None, **options):
    store, row = recorded_pair
    options = {"is_fixed": False, "ignore_case": False} | options
    search = Search(compile_pattern(pattern, **options), tool)
    return list(search.matches(store, [row])), search


@pytest.fixture
def sample(recorded, decision, result):
    return recorded(
        {"type": "event", "id": "u1", "kind": "user", "text": "find the needle"},
        decision("d1", ("look", {"where": "hay\nNeedle"}), ("other", {"x": "needle"}), text="ok"),
        result("d1.1", {"found": ["a needle here"]}),
        result("d1.2", "needle"),
    )


def test_texts_arguments_and_results_are_searched_line_by_line(sample):
    matches, search = found(sample, "needle")
    assert [(m.kind, m.field, m.line, m.text[m.start : m.end]) for m in matches] == [
        ("user.message", "text", 1, "needle"),
        ("tool.call", "arguments.x", 1, "needle"),
        ("tool.result", "result.found[0]", 1, "needle"),
        ("tool.result", "result", 1, "needle"),
    ]
    assert [m.step for m in matches] == [None, 1, 1, 1]
    assert (search.n_sessions, search.n_matches, search.n_cut) == (1, 4, 0)


def test_case_may_be_ignored_and_the_line_is_told(sample):
    matches, _ = found(sample, "NEEDLE$", ignore_case=True)
    assert ("arguments.where", 2) in [(m.field, m.line) for m in matches]


def test_one_tool_means_its_calls_and_their_results(sample):
    matches, search = found(sample, "(?i)needle", tool="look")
    assert [(m.kind, m.field) for m in matches] == [
        ("tool.call", "arguments.where"),
        ("tool.result", "result.found[0]"),
    ]
    assert search.n_events == 2


def test_a_fixed_pattern_is_plain_text(recorded, decision):
    pair = recorded(decision("d1", text="a.b"), decision("d2", text="axb"))
    assert len(found(pair, "a.b")[0]) == 2
    assert [m.text for m in found(pair, "a.b", is_fixed=True)[0]] == ["a.b"]


def test_a_long_value_is_searched_at_its_beginning_and_counted(
    recorded, decision, result, monkeypatch
):
    monkeypatch.setattr(excerpts, "EXAMINED_BYTES", 40)
    pair = recorded(
        decision("d1", ("t", {"a": ["needle", {"b": "needle " * 9}], "c": "needle"})),
        decision("d2", ("t", '{"needle":"' + "x" * 40 + '\\u000aneedle"}')),
        result("d1.1", "needle"),
    )
    matches, search = found(pair, "needle")
    assert [m.field for m in matches] == [
        "arguments.a[0]",
        "arguments.a[1].b",
        "arguments",
        "result",
    ]
    assert search.n_cut == 1


@pytest.mark.parametrize("pattern", ["(", "[a", "a{99999999999}"])
def test_a_bad_pattern_is_the_callers_mistake(pattern):
    with pytest.raises(UsageError, match="no regular expression"):
        compile_pattern(pattern, is_fixed=False, ignore_case=False)


def test_a_long_line_is_cut_around_the_match(recorded, decision):
    pair = recorded(decision("d1", text="x" * 1000 + "needle" + "y" * 5000))
    ((match,), _) = found(pair, "needle")
    assert len(match.text) == 120 + 6 + 120
    assert match.text[match.start : match.end] == "needle"
    ((match,), _) = found(pair, "x.*y")
    assert len(match.text) < 2000
    assert match.end == len(match.text)


def test_what_lies_beyond_the_cap_is_counted(recorded, decision, monkeypatch):
    monkeypatch.setattr(searching, "MAX_CHARS", 10)
    pair = recorded(
        decision("d1", ("t", {"a": "0123456789", "b": "needle", "c": "needle"})),
        decision("d2", text="needle"),
    )
    matches, search = found(pair, "needle")
    assert [m.step for m in matches] == [2]
    assert search.n_cut == 1


def test_a_match_on_a_discarded_path_says_so(recorded, decision):
    pair = recorded(
        {"type": "event", "id": "u", "kind": "user", "text": "q"},
        decision("d1", parent="u", text="needle"),
        decision("d2", parent="u", text="needle"),
    )
    assert [m.discarded for m in found(pair, "needle")[0]] == [True, False]


def test_every_kind_can_be_searched():
    needed = {
        Kind.TOOL_CALL: '{"tool":"x"}',
        Kind.TOOL_PERMISSION: '{"decision":"x"}',
        Kind.POLICY_ACTION: '{"policy":"x","action":"y"}',
        Kind.NOTE: '{"label":"x"}',
        Kind.DAMAGE: '{"line":1,"offset":0,"bytes":1,"reason":"x"}',
    }
    for kind in Kind:
        text = needed.get(kind, '{"name":"x"}')
        texts = list(texts_of(kind, PAYLOAD_DECODERS[kind].decode(text)))
        assert all(isinstance(part, str) for pair in texts for part in pair)
        assert bool(texts) == (
            kind not in (Kind.MODEL_REQUEST, Kind.CONTEXT_REPLACED, Kind.TOOL_RESULT)
        )


def test_a_damaged_session_is_noted_and_the_others_are_searched(recorded, decision, monkeypatch):
    recorded(decision("d1", text="needle"), name="a")
    store, _ = recorded(decision("d1", text="needle"), name="b")
    rows = list(store.sessions())

    def check(_, row):
        if row.session_id == "interchange:a":
            raise TamperError("a bit flipped")

    monkeypatch.setattr(searching, "check_events", check)
    search = Search(compile_pattern("needle", is_fixed=True, ignore_case=False))
    assert [m.session_id for m in search.matches(store, rows)] == ["interchange:b"]
    assert [(d.session_id, d.fault) for d in search.damaged] == [("interchange:a", "a bit flipped")]
    with pytest.raises(TamperError):
        next(search.matches(store, rows[:1]))
