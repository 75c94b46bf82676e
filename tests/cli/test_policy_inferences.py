"""Augmented replays: what a model inferred is asked for once, and then read from the cache."""

import json

import pytest

from tests.cli.conftest import Redrive
from tests.policy_corpus import HEAD, interchange_session, named

N_ROUNDS = 3
MODEL = """
from pathlib import Path

COUNTER = Path(__file__).parent / "asked.txt"


def answer(messages):
    with COUNTER.open("a") as file:
        file.write("asked\\n")
    return '{"answer": "yes"}' if "round 1" in messages[-1]["content"] else '{"answer": "no"}'


def other(messages):
    with COUNTER.open("a") as file:
        file.write("asked\\n")
    return '{"answer": "no"}'


def silly(messages):
    return "perhaps"


def failing(messages):
    raise RuntimeError("no answer today")
"""
POLICIES = (
    HEAD
    + """
class Claims(Policy):
    version = "1"
    on = ("model.response",)
    needs = ("completion_claim",)

    def evaluate(self, event, state):
        if event.ends_turn and state.infer("completion_claim"):
            return Notify("claims to be done")
        return None


class Twice(Policy):
    version = "1"
    on = ("model.response",)
    needs = ("completion_claim", "wrap_up")

    def evaluate(self, event, state):
        if not event.ends_turn:
            return None
        claims, ends = state.infer("completion_claim"), state.infer("wrap_up")
        return Notify(f"{claims} {ends}")


class Greedy(Policy):
    version = "1"
    on = ("tool.call",)
    needs = ("wrap_up",)

    def evaluate(self, event, state):
        return Notify("x") if state.infer("wrap_up") else None


class Unknown(Policy):
    version = "1"
    on = ("tool.call",)
    needs = ("mood",)

    def evaluate(self, event, state):
        return Notify("x") if state.infer("mood") else None


class Plain(Policy):
    version = "1"
    on = ("model.response",)

    def evaluate(self, event, state):
        return Notify("ends") if event.ends_turn else None
"""
)


@pytest.fixture
def claims(redrive):
    return prepare(redrive)


def prepare(redrive):
    path = redrive.folder / "work-0.jsonl"
    path.write_text(interchange_session("work-0", rounds=N_ROUNDS))
    redrive.imported(path)
    (redrive.folder / "model.py").write_text(MODEL)
    (redrive.folder / "claims.py").write_text(POLICIES)
    return redrive


def replay(redrive, *more, policies=("Claims",), code=0):
    words = named("claims.py", policies)
    done = redrive("policy", "replay", *words, "--json", *more)
    assert done.code == code, done
    assert done.err.count("\n") == (code == 2 or "--cache" in more)
    return done


def asked(redrive):
    path = redrive.folder / "asked.txt"
    return path.read_text().count("\n") if path.exists() else 0


MODEL_WORDS = ("--model", "python:model.py:answer")


def test_a_second_replay_reads_the_cache_and_gives_the_same_bytes(claims):
    first = replay(claims, *MODEL_WORDS)
    (report,) = first.document["reports"]
    assert (report["mode"], report["fired"]) == ("augmented", 1)
    assert report["model_fingerprint"]["spec"] == "python:model.py:answer"
    (fire,) = report["per_session"][0]["fires"]
    assert fire["inferences"] == {"completion_claim": True}
    assert asked(claims) == N_ROUNDS
    assert replay(claims, *MODEL_WORDS).out == first.out
    assert replay(claims, *MODEL_WORDS, "--offline").out == first.out
    assert replay(claims, "--offline").out == first.out, "the only model of the cache"
    assert replay(claims, *MODEL_WORDS, "--workers", "2", "--recheck", "all").out == first.out
    assert asked(claims) == N_ROUNDS


def test_a_cache_goes_to_another_store_as_a_file(claims, tmp_path):
    first = replay(claims, *MODEL_WORDS, "--export-cache", "cache.jsonl")
    lines = (claims.folder / "cache.jsonl").read_bytes()
    assert lines.count(b"\n") == N_ROUNDS
    assert b"round 1" not in lines, "what was said in a session stays at home"
    (tmp_path / "other").mkdir()
    other = prepare(Redrive(tmp_path / "other"))
    (other.folder / "cache.jsonl").write_bytes(lines)
    again = replay(other, *MODEL_WORDS, "--cache", "cache.jsonl", "--offline")
    assert again.out == first.out
    assert asked(other) == 0
    (other.folder / "torn.jsonl").write_bytes(lines[:-20])
    (other.folder / "changed.jsonl").write_bytes(
        lines.replace(b'"value":"true"', b'"value":"0"', 1)
    )
    for name in ("torn", "changed"):
        done = other(
            "policy", "replay", *named("claims.py", ["Claims"]), "--cache", f"{name}.jsonl"
        )
        assert (done.code, done.err.count("\n")) == (6, 1)
        assert f"{name}.jsonl:" in done.err
    done = other("policy", "replay", *named("claims.py", ["Claims"]), "--cache", "nowhere.jsonl")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_a_miss_offline_names_the_event(claims):
    for words in (("--offline",), ("--offline", *MODEL_WORDS)):
        done = replay(claims, *words, code=2)
        assert "interchange:work-0#n" in done.err
        assert "completion_claim" in done.err
        assert done.document["error"]["hint"]
    assert asked(claims) == 0


def test_a_policy_with_needs_and_no_model_is_a_usage_error_with_a_hint(claims):
    done = replay(claims, code=2)
    for word in ("--model SPEC", "--offline", "--mode strict", "interchange:work-0#n"):
        assert word in done.err
    done = replay(claims, policies=("Plain", "Claims"), code=2)
    assert "completion_claim" in done.err


def test_strict_mode_computes_none_and_names_what_is_missing(claims):
    done = replay(claims, "--mode", "strict", *MODEL_WORDS, policies=("Claims", "Plain"))
    claim, plain = done.document["reports"]
    assert (claim["mode"], claim["fired"], claim["faults"]) == ("strict", 0, [])
    assert len(claim["cannot_evaluate"]) == N_ROUNDS
    assert {cannot["fact"] for cannot in claim["cannot_evaluate"]} == {"completion_claim"}
    assert plain["fired"] == N_ROUNDS
    assert asked(claims) == 0
    assert replay(claims, "--mode", "strict", "--offline", code=2)


def test_two_inferences_a_turn_and_no_more_are_made(claims):
    (report,) = replay(claims, *MODEL_WORDS, policies=["Greedy"]).document["reports"]
    assert asked(claims) == N_ROUNDS, "both of a turn are one question: the last text"
    assert len(report["cannot_evaluate"]) == 4 * N_ROUNDS
    assert {c["fact"] for c in report["cannot_evaluate"]} == {"inference budget: 2 per turn"}
    (twice,) = replay(claims, *MODEL_WORDS, policies=["Twice"]).document["reports"]
    assert (twice["fired"], twice["cannot_evaluate"]) == (N_ROUNDS, [])


def test_policies_share_an_answer(claims):
    reports = replay(claims, *MODEL_WORDS, policies=("Claims", "Twice")).document["reports"]
    assert [report["fired"] for report in reports] == [1, N_ROUNDS]
    assert asked(claims) == 2 * N_ROUNDS


def test_another_model_or_another_question_is_asked_again(claims):
    replay(claims, *MODEL_WORDS)
    (report,) = replay(claims, "--model", "python:model.py:other").document["reports"]
    assert (report["fired"], asked(claims)) == (0, 2 * N_ROUNDS)
    done = replay(claims, "--offline", code=2)
    assert "answers of 2 models" in done.err
    assert replay(claims, "--offline", *MODEL_WORDS).document["reports"][0]["fired"] == 1
    # The same place, and other words: another question.
    changed = claims.folder / "work-0.jsonl"
    changed.write_text(changed.read_text().replace("is finished", "is complete"))
    changed.write_text(changed.read_text().replace('"id": "work-0"', '"id": "work-9"'))
    claims.imported(changed)
    words = ("--sessions", "interchange:work-9")
    replay(claims, *MODEL_WORDS, *words)
    assert asked(claims) == 3 * N_ROUNDS


def test_a_model_that_fails_is_one_line_and_keeps_no_report(claims):
    for name, word in (("silly", "neither yes nor no"), ("failing", "no answer today")):
        done = claims(
            "policy",
            "replay",
            *named("claims.py", ["Claims"]),
            "--model",
            f"python:model.py:{name}",
        )
        assert (done.code, done.err.count("\n"), done.out) == (6, 1, "")
        assert word in done.err


def test_a_need_that_no_inference_meets_is_named(claims):
    done = claims("policy", "replay", *named("claims.py", ["Unknown"]), *MODEL_WORDS)
    assert done.code == 6
    assert "no inference 'mood' (hint: known: completion_claim, wrap_up)" in done.err
    assert asked(claims) == 0


def test_a_script_answers_in_the_order_of_the_events(claims):
    script = claims.folder / "script.jsonl"
    answers = [json.dumps({"text": json.dumps({"answer": word})}) for word in ("no", "no", "yes")]
    script.write_text("".join(f"{line}\n" for line in answers))
    words = ("--model", "script:script.jsonl")
    first = replay(claims, *words)
    assert first.document["reports"][0]["fired"] == 1
    script.unlink()
    assert replay(claims, *words, "--offline").out == first.out


@pytest.mark.local_model
def test_the_local_model_answers_the_same_twice(claims):
    pytest.importorskip("xllamacpp")
    first = replay(claims, "--model", "local")
    (report,) = first.document["reports"]
    assert report["cannot_evaluate"] == report["faults"] == []
    assert report["model_fingerprint"]["spec"] == "local"
    assert replay(claims, "--model", "local", "--offline").out == first.out
    assert replay(claims, "--offline").out == first.out
