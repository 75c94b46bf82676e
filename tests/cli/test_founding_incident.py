"""The founding incident: a fork whose cause lies in the record is never put down to the model.

A run of 44 decisions, closed. Three faults are planted, each by editing the written file: a float
that was re-rendered in step 41's context, the summariser's value without its ordered inputs, and a
retry's jitter whose draw was not recorded.
"""

import json

import pytest

STEPS = 44
RESULT = {"latency_ms": 0.30000000000000004, "rows": 12}


@pytest.fixture
def lines():
    """A closed session with a declared renderer; contexts are what `json.dumps` writes."""
    history = [{"role": "user", "content": "Clean up the orders"}]
    written = [
        {"type": "session", "id": "incident", "task": history[0]["content"], "renderer": "json@1"}
    ]
    parent = None
    for step in range(1, STEPS + 1):
        is_last = step == STEPS
        call = {"call_id": f"c{step}", "name": "db.describe", "args": {"table": f"t{step}"}}
        calls = [] if is_last else [call]
        text = "Done." if is_last else ""
        written.append(
            {
                "type": "decision",
                "id": f"d{step}",
                "parent": parent,
                "step": step,
                "model": {"requested": "m-1", "served": "m-1", "fingerprint": "fp"},
                "sampling": {"temperature": 0, "top_p": 1, "seed": 7},
                "context": json.dumps(history),
                "output": {"text": text, "tool_calls": calls},
            }
        )
        history.append(
            {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
        )
        parent = f"d{step}"
        if is_last:
            break
        if step == 11:
            written.append(
                {
                    "type": "read",
                    "id": "j",
                    "parent": parent,
                    "step": 12,
                    "kind": "prng",
                    "name": "retry_jitter",
                    "value": 0.31,
                }
            )
        if step == 40:
            written.append(
                {
                    "type": "derived",
                    "id": "s",
                    "parent": parent,
                    "step": 41,
                    "name": "latency_ms",
                    "function": "summarise",
                    "version": "3",
                    "inputs": [0.1, 0.2],
                    "value": 0.30000000000000004,
                }
            )
        written.append(
            {
                "type": "tool_result",
                "id": f"r{step}",
                "parent": parent,
                "call_id": f"c{step}",
                "name": "db.describe",
                "status": "ok",
                "result": RESULT,
            }
        )
        history.append({"role": "tool", "call_id": f"c{step}", "content": RESULT})
        parent = f"r{step}"
    return written


def by_id(lines, name):
    return next(line for line in lines if line["id"] == name)


def rerender(lines):
    step = by_id(lines, "d41")
    step["context"] = step["context"].replace("0.30000000000000004", "0.3")


def lose_inputs(lines):
    del by_id(lines, "s")["inputs"]


def lose_jitter(lines):
    del by_id(lines, "j")["value"]


def store(redrive, lines, tmp_path):
    path = tmp_path / "incident.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    redrive.imported(path)


def other_model(tmp_path):
    """A script that forks at once: it describes nothing and ends."""
    path = tmp_path / "fork.jsonl"
    path.write_text('{"text": "Done.", "final": true}\n')
    return f"script:{path}"


def test_as_it_was_recorded_it_is_closed_and_a_fork_is_a_divergence(redrive, lines, tmp_path):
    store(redrive, lines, tmp_path)
    (session,) = redrive.json("audit", "incident")["sessions"]
    assert (session["status"], session["closed_until"]) == ("closed", STEPS)
    assert all(not step["notes"] for step in session["steps"]), "the assembly was checked"
    document = redrive.json("shadow", "incident", "--model", other_model(tmp_path), code=1)
    assert document["verdict"] == "STOCHASTIC_MODEL_DIVERGENCE"


@pytest.mark.parametrize(
    ("plant", "step", "input_class", "words"),
    [
        (rerender, 41, "input", ("context_mismatch", "not canonical")),
        (lose_inputs, 41, "environment", ("summarise", "latency_ms")),
        (lose_jitter, 12, "prng", ("retry_jitter",)),
    ],
)
def test_a_planted_fault_is_a_gap_at_its_step_and_no_divergence(
    redrive, lines, tmp_path, plant, step, input_class, words
):
    plant(lines)
    store(redrive, lines, tmp_path)
    (session,) = redrive.json("audit", "incident", code=3)["sessions"]
    opened = [entry for entry in session["steps"] if entry["status"] == "open"]
    assert [entry["step"] for entry in opened] == [step]
    (gap,) = opened[0]["missing"]
    assert gap["class"] == input_class
    assert all(word in f"{gap['what']} {gap['reason']}" for word in words)
    assert session["closed_until"] == step - 1

    document = redrive.json("shadow", "incident", "--model", other_model(tmp_path), code=3)
    assert document["verdict"] == "INSUFFICIENT_EVIDENCE"
    assert document["attribution"] == "provenance_gap"
    assert document["runs"] == []

    prefix = ("--until", str(step - 1))
    assert redrive.json("audit", "incident", *prefix)["sessions"][0]["status"] == "closed"
    document = redrive.json("shadow", "incident", "--model", other_model(tmp_path), *prefix, code=1)
    assert document["verdict"] == "STOCHASTIC_MODEL_DIVERGENCE", "the closed prefix is a trajectory"
