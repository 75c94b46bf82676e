"""Policy replay as a user runs it: cases, damaged files and policies that break the rules."""

import json

import pytest

POLICIES = """
from redrive.policy import Allow, Deny, Notify, Policy, Reducer


class UnvalidatedStop(Policy):
    on = ("custom:stop",)
    cooldown_s = 900

    def evaluate(self, event, state):
        return Notify("not validated") if event.data.get("unvalidated") else None


class Echo(Policy):
    on = ("user.message", "model.response", "tool.call", "tool.result")

    def evaluate(self, event, state):
        return Notify(f"saw {event.text} {event.result} {state.last_text}")


class Broken(Policy):
    on = ("tool.call",)

    def evaluate(self, event, state):
        return 1 / 0


class BrokenGate(Broken):
    lane = "gate"
    critical = True


class Cooling(Policy):
    on = ("tool.call",)
    lane = "gate"
    cooldown_s = 5


class Listing(Reducer):
    on = ("tool.call",)
    initial = []


class Shares(Echo):
    reducers = {"own": Listing()}
"""


@pytest.fixture
def guards(tmp_path):
    path = tmp_path / "guards.py"
    path.write_text(POLICIES)
    return path


def report(redrive, guards, name, *extra, code=0):
    document = redrive.json("policy", "replay", "--policy", f"{guards}:{name}", *extra, code=code)
    (found,) = document["reports"]
    return found


def fires(found, **wanted):
    return [
        fire["event_ref"].rpartition("#")[2]
        for session in found["per_session"]
        for fire in session["fires"]
        if all(fire[name] == value for name, value in wanted.items())
    ]


def test_42_the_figures_are_those_of_the_head_path_and_branches_are_told(redrive, cases, guards):
    case = cases / "42-nudge-without-repeat-suppression"
    wanted = json.loads((case / "expected.json").read_text())["expect"]
    for name in wanted:
        redrive.imported(case / name)
    straight = report(redrive, guards, "UnvalidatedStop", "--sessions", "interchange:s42")
    assert fires(straight, cooldown_suppressed=False) == wanted["session.jsonl"]["fires"]
    assert (straight["fired"], straight["suppressed"]) == (2, 8)
    rewound = report(redrive, guards, "UnvalidatedStop", "--sessions", "interchange:s42b")
    assert rewound["per_session"][0]["node_path"] == wanted["session_rewound.jsonl"]["active_path"]
    assert (rewound["fired"], rewound["fired_on_head_path"]) == (2, 1)
    assert fires(rewound, on_head_path=False) == ["w2"]


@pytest.mark.parametrize("case", ["04-torn-tail", "06-nul-block-mid-file", "56-lone-surrogate"])
def test_a_damaged_or_odd_file_is_replayed_to_its_end(redrive, cases, guards, case):
    redrive.imported(cases / case / "session.jsonl")
    found = report(redrive, guards, "Echo", "--recheck", "all")
    assert found["fired"] == found["events_offered"] > 2
    assert not found["faults"]
    assert not found["unreplayable"]
    shown = redrive("policy", "replay", "--policy", f"{guards}:Echo")
    assert shown.code == 0


def test_a_fault_names_its_line_and_the_worse_lane_decides_the_exit(redrive, cases, guards):
    redrive.imported(cases / "26-changed-arguments-no-fallback" / "session.jsonl")
    observer = report(redrive, guards, "Broken", code=6)
    assert observer["faults"][0]["net"] == "error"
    assert observer["faults"][0]["what"] == "ZeroDivisionError: division by zero"
    assert observer["faults"][0]["where"] == "guards.py:24"
    gate = report(redrive, guards, "BrokenGate", code=7)
    check = gate["invariant_checks"]["critical_always_runs"]
    assert (check["status"], bool(check["violations"])) == ("fail", True)


@pytest.mark.parametrize(
    ("name", "what"),
    [("Cooling", "is a gate with cooldown_s"), ("Shares", "reducer 'own' begins with a list")],
)
def test_a_wrong_declaration_is_refused_and_nothing_runs(redrive, cases, guards, name, what):
    redrive.imported(cases / "26-changed-arguments-no-fallback" / "session.jsonl")
    finished = redrive("policy", "replay", "--policy", f"{guards}:{name}", "--json")
    assert finished.code == 6
    error = finished.document["error"]
    assert what in error["message"]
    assert error["hint"]


def test_an_inference_about_half_an_emoji_is_made_and_cached(redrive, guards, tmp_path):
    with guards.open("a") as file:
        file.write(
            "\n\nclass Claims(Policy):\n"
            "    on = ('model.response',)\n"
            "    needs = ('completion_claim',)\n\n"
            "    def evaluate(self, event, state):\n"
            "        return Notify('done') if state.infer('completion_claim') else None\n"
        )
    model = tmp_path / "model.py"
    model.write_text('def complete(prompt, config):\n    return \'{"answer": "yes"}\'\n')
    session = tmp_path / "session.jsonl"
    lines = [
        {"type": "session", "id": "s", "task": "go"},
        {"type": "decision", "id": "d1", "output": {"text": "done \ud83d", "tool_calls": []}},
    ]
    session.write_text("".join(json.dumps(line) + "\n" for line in lines))
    redrive.imported(session)
    asked = report(redrive, guards, "Claims", "--model", f"python:{model}:complete")
    cached = report(redrive, guards, "Claims", "--offline")
    assert (asked["fired"], cached["fired"]) == (1, 1)
    assert asked["per_session"] == cached["per_session"]
