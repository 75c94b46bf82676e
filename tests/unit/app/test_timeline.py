from redrive.app import timeline
from redrive.app.timeline import timeline_of


def told(survey, **options):
    return list(timeline_of(survey, survey.pair(), **options))


def test_what_happened_is_told_in_order_with_how_each_call_ended(surveyed, decision, result):
    entries = told(
        surveyed(
            {
                "type": "event",
                "id": "u",
                "kind": "user",
                "text": "go",
                "ts": "2026-01-01T00:00:05Z",
            },
            decision("d0", text="early", ts="2026-01-01T00:00:01Z"),
            decision("d1", ("t", {"a": 1}), ("t", None), ts="2026-01-01T00:00:06Z"),
            result("d1.1", status="error"),
            result("gone"),
            {"type": "model_error", "id": "e", "status": 529, "attempt": 2, "delay_s": 1.5},
            {"type": "context_replaced", "id": "x", "from": "a", "to": "b"},
            {"type": "permission", "id": "p", "call_id": "d1.2", "decision": "denied", "by": "me"},
            {"type": "event", "id": "c", "kind": "odd"},
            {"type": "end", "id": "z", "status": "failure"},
        )
    )
    assert [(e.kind, e.what, e.status) for e in entries] == [
        ("model.response", "early", None),
        ("user.message", "go", None),
        ("tool.call", 't {"a": 1}', "error"),
        ("tool.call", "t", "no result"),
        ("tool.result", "result", "answers no call"),
        ("model.error", "status 529, attempt 2, next in 1.5 s", None),
        ("context.replaced", "context replaced", None),
        ("tool.permission", "denied by me", None),
        ("custom", "odd", None),
        ("session.ended", "ended: failure", None),
    ]
    assert entries[0].ts == "2026-01-01T00:00:01.000000000Z"


def test_one_actor_alone_may_be_told(surveyed, decision):
    survey = surveyed(decision("d1", text="m"), decision("d2", text="s", actor="sub"))
    assert [e.what for e in told(survey, actor="sub")] == ["s"]
    assert [e.what for e in told(survey)] == ["m", "s"]


def test_an_answer_that_says_nothing_is_not_told_and_a_long_one_is_cut(surveyed, decision):
    entries = told(surveyed(decision("d1"), decision("d2", text="x" * 400)))
    assert [len(e.what) for e in entries] == [301]


def test_a_discarded_path_and_conflicting_results_are_marked(surveyed, decision, result):
    entries = told(
        surveyed(
            {"type": "event", "id": "u", "kind": "user", "text": " "},
            decision("d1", ("t", {}), parent="u"),
            result("d1.1", 1, parent="d1"),
            result("d1.1", 2, parent="d1", id="again"),
            decision("d2", parent="u", text="x"),
        )
    )
    assert [(e.what, e.status, e.discarded) for e in entries] == [
        ("(no text)", None, False),
        ("t {}", "conflicting", True),
        ("x", None, False),
    ]


def test_the_order_holds_across_batches(surveyed, decision, monkeypatch):
    survey = surveyed(
        *(decision(f"d{n}", text=str(n), ts=f"2026-01-01T00:00:0{9 - n}Z") for n in range(9))
    )
    whole = told(survey)
    monkeypatch.setattr(timeline, "_BATCH", 2)
    assert told(survey) == whole
    assert [entry.what for entry in whole] == list("876543210")
