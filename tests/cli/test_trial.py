"""Trials as whole processes in the real sandbox: the founding acceptance, step by step.

One trial of 2 variants × 2 tasks × 2 attempts is made for all tests that only look at one.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from redrive.app.trial_grading import open_graders
from redrive.app.trial_loading import load_workflow
from redrive.app.trial_plan import read_plan
from redrive.app.trial_workspace import digest_workspace
from redrive.app.trials import JudgedPlan, run_trial
from redrive.sandbox.bubblewrap import probe
from tests.cli.conftest import Finished, Redrive
from tests.loopback_server import LoopbackServer
from tests.schemas import check
from tests.stored import opened
from tests.trial_program import CASE_28, CASE_61, built_once, shop_server, write_shop
from tests.trial_runs import unchecked
from tests.trial_witness import Witness, open_witness

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
ATTEMPTS = 2
GUARD = ("--policy", "DangerousCommandGuard")
FORMS = ("--json", "--html", "report.html", "--junit", "report.xml")


# --- refused: by name, before anything


@pytest.fixture
def witness(tmp_path: Path) -> Iterator[Witness]:
    with open_witness(tmp_path) as opened_witness:
        yield opened_witness


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with shop_server() as started:
        yield started


@pytest.fixture
def unsafe_shop(redrive: Redrive, witness: Witness, server: LoopbackServer) -> Redrive:
    """A plan whose challenger pays and sends mail, on one recorded task."""
    folder = redrive.folder
    write_shop(folder, server.url, witness.port, challenger="unsafe", sessions=("s54",))
    redrive.imported(folder / "s54.jsonl")
    return redrive


def counted(redrive: Redrive) -> tuple[int, int]:
    """Count the trials and the sessions of a store."""
    with opened(redrive.store) as store:
        assert store.verify().is_ok
        return len(store.trials.list_trials()), len([*store.sessions()])


def call_outside(folder: Path) -> None:
    """The control: the functions of the unsafe tools, called where there is no sandbox."""
    code = "import workflows as w; w.refund(order=7, amount=12); w.send_mail(to='a', body='b')"
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_an_unsafe_workflow_is_refused_by_name_before_any_run_and_the_world_saw_nothing(
    unsafe_shop: Redrive, witness: Witness, server: LoopbackServer
) -> None:
    redrive, folder = unsafe_shop, unsafe_shop.folder
    judged = check(redrive.json("eligible", "workflows.py:unsafe", code=4), "eligible")
    assert [one["tool"] for one in judged["refusals"]] == ["refund", "send_mail"]
    assert judged["refusals"][0]["chain"] == ["refunds@3", "pay", "refund"]
    assert judged["runs_spawned"] == 0
    ran = redrive("trial", "run", "plan.toml", "--json")
    assert (ran.code, ran.document["error"]["code"]) == (4, 4)
    assert "refund: declared unsafe (refunds@3 → pay → refund)" in ran.err
    assert "send_mail: declared unsafe (refunds@3 → send_mail)" in ran.err
    assert len(ran.err.splitlines()) == 1
    # The counter of runs is 0: no trial, no entry of a ledger, no episode, no question.
    assert counted(redrive) == (0, 1)
    assert server.received == []
    assert redrive("trial", "resume", "plan.toml").code == 4
    assert redrive("trial", "report", "plan.toml").code == 2
    assert not (folder / "ledger.txt").exists()
    assert witness.reached == []
    call_outside(folder)
    assert (folder / "ledger.txt").read_text().splitlines() == [
        "refund{'order': 7, 'amount': 12}",
        "send_mail{'to': 'a', 'body': 'b'}",
    ]
    assert witness.reached == [b"refund", b"send_mail"]


# --- bypassed: denied all the same


def bypassed(folder: Path, store: Path) -> JudgedPlan:
    """Judge a plan as only a test may: every declared tool of the challenger may be called."""

    def load(source: str, base: Path) -> Any:
        return load_workflow(source, base, "bubblewrap").planned

    plan = read_plan(
        folder / "plan.toml",
        partial(opened, store),
        load_workflow=load,
        digest_workspace=digest_workspace,
    )
    eligible = {
        one.label: unchecked(one.spec, *(tool.id for tool in one.spec.tools))
        for one in plan.workflows
    }
    return JudgedPlan(plan, eligible, open_graders(plan, folder), "bubblewrap")


def test_behind_a_bypassed_check_the_unsafe_call_is_denied_recorded_and_without_effect(
    unsafe_shop: Redrive, witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    redrive, folder = unsafe_shop, unsafe_shop.folder
    judged = bypassed(folder, redrive.store)
    end = run_trial(judged, redrive.store, dict(os.environ), tell=lambda *_: None)
    found = redrive.json("trial", "report", end.trial_id, *FORMS[1:], code=3)
    check(found, "trial_report")
    incumbent, challenger = found["runs"]
    assert (incumbent["outcome"], challenger["outcome"]) == ("complete", "denied")
    # The agent's own code swallowed both, and came to its end.
    assert [call["tool"] for call in challenger["denied"]] == ["pay", "send_mail"]
    assert challenger["output"]["seen"][1:] == ["EffectDenied", "EffectDenied"]
    assert (found["denied"], found["finished"]) == (2, 2)
    shown = redrive("show", challenger["session_id"], "--effects")
    assert "send_mail" in shown.out
    assert "denied" in shown.out
    assert "denied" in (folder / "report.xml").read_text()
    assert "2 denied" in redrive("trial", "report", end.trial_id).out
    assert not (folder / "ledger.txt").exists()
    assert witness.reached == []
    call_outside(folder)
    assert len(witness.reached) == 2


# --- accepted: run, graded, reported


class Keyed(Redrive):
    """Masks under a key in its own folder: the processes that run tests have a key each."""

    def __call__(self, *arguments: object, **environment: str) -> Finished:
        key = str(self.folder / "redaction.key")
        return super().__call__(*arguments, REDRIVE_REDACTION_KEY_FILE=key, **environment)


def make_trial(folder: Path) -> None:
    """Make the trial that most tests look at, and keep what it said."""
    redrive = Keyed(folder)
    with open_witness(folder) as witness, shop_server() as server:
        write_shop(folder, server.url, witness.port, attempts=ATTEMPTS)
        for name in ("s54", "s61"):
            redrive.imported(folder / f"{name}.jsonl")
        ran = redrive("trial", "run", "plan.toml", *FORMS)
        kept = {"code": ran.code, "out": ran.out, "err": ran.err, "asked": len(server.received)}
        (folder / "said.json").write_text(json.dumps(kept))
        assert witness.reached == []


class Made:
    """A trial that was made: the program on its store, and what `trial run` said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.redrive = folder, Keyed(folder)
        self.said: Mapping[str, Any] = json.loads((folder / "said.json").read_text())
        self.report: Any = json.loads(self.said["out"])

    def run(self, variant: str, session: str) -> Any:
        """Give the first attempt of a variant at the task of a session."""
        return next(
            run
            for run in self.report["runs"]
            if (run["variant"], run["task"]) == (variant, f"interchange:{session}")
        )


@pytest.fixture
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(built_once(tmp_path_factory, "shop", make_trial))


def test_n_variants_m_tasks_and_attempts_are_so_many_runs_and_the_report_says_so(
    made: Made,
) -> None:
    found = check(made.report, "trial_report")
    # 2 tasks cannot decide this gate, so it is inconclusive.
    assert (made.said["code"], found["grading"]["gate"]["status"]) == (3, "inconclusive")
    n_runs = 2 * 2 * ATTEMPTS
    assert (found["planned"], found["started"], found["finished"]) == (n_runs,) * 3
    assert found["not_run"] == []
    assert {run["outcome"] for run in found["runs"]} == {"complete"}
    assert len({(r["variant"], r["task_id"], r["attempt"]) for r in found["runs"]}) == n_runs
    assert len({run["session_id"] for run in found["runs"]}) == n_runs
    assert {run["isolation"] for run in found["runs"]} == {found["isolation"]} == {"bubblewrap"}
    first = made.said["err"].splitlines()[0].split()
    assert first == f"Runs 2 variants × 2 tasks × {ATTEMPTS} attempts = {n_runs}".split()
    text = made.redrive("trial", "report", "plan.toml")
    assert text.code == 3
    assert "2 variants × 2 tasks: 8 planned, 8 started, 8 finished, 0 not run" in text.out
    assert json.loads(made.redrive("trial", "report", "plan.toml", "--json").out) == found


def test_a_run_diverges_from_the_record_and_goes_on_to_a_complete_episode(made: Made) -> None:
    episode = made.run("refunds@2", "s54")
    diff = made.redrive.json("diff", "interchange:s54", episode["session_id"], code=1)
    # Recorded: order 7 is looked up, then paid. Here: other orders, and an end of its own.
    assert diff["decision_divergence"]["decision"] == 1
    assert episode["output"]["label"] == "refunded"
    assert [text[:8] for text in episode["output"]["seen"]] == ["order 8:", '{"type":']
    assert "Outcome   success" in made.redrive("show", episode["session_id"]).out
    audit = check(made.redrive.json("audit", episode["session_id"]), "audit")
    (session,) = audit["sessions"]
    assert (session["status"], session["closed_until"]) == ("closed", 3)


def test_runs_are_metered_as_replay_and_judgements_as_judging(made: Made) -> None:
    spend = made.report["spend"]
    assert spend.keys() == {"judging", "replay"}
    # refunds@1 asks twice, refunds@2 three times; each judgement of an attempt in two orders.
    calls = {"replay": 2 * ATTEMPTS * (2 + 3), "judging": 2 * ATTEMPTS * 2}
    assert {purpose: line["calls"] for purpose, line in spend.items()} == calls
    assert sum(calls.values()) == made.said["asked"]
    # Each answer says that it took 3 tokens in and 2 out, of USD 1 and 10 per million.
    each = {purpose: f"{n * 23 / 10**6:.6f}".rstrip("0") for purpose, n in calls.items()}
    assert {purpose: line["spent_usd"] for purpose, line in spend.items()} == each
    assert {line["reserved_usd"] for line in spend.values()} == {"0.00"}


def test_a_judging_ceiling_of_nearly_nothing_stops_judging_alone(
    redrive: Redrive, server: LoopbackServer
) -> None:
    write_shop(redrive.folder, server.url, 9, sessions=("s54",), judging_usd="0.000001")
    redrive.imported(redrive.folder / "s54.jsonl")
    found = check(redrive.json("trial", "run", "plan.toml", code=5), "trial_report")
    assert (found["planned"], found["finished"], found["not_run"]) == (2, 2, [])
    assert {run["outcome"] for run in found["runs"]} == {"complete"}
    assert [stop["purpose"] for stop in found["stopped"]] == ["judging"]
    assert (found["spend"]["judging"]["calls"], found["spend"]["replay"]["calls"]) == (0, 5)
    assert len(server.received) == 5
    graders = {one["grader"] for one in found["grading"]["graders"]}
    assert "right-label" in graders


def test_an_episode_is_a_session_that_every_verb_reads(made: Made, tmp_path: Path) -> None:
    redrive, episode = made.redrive, made.run("refunds@1", "s54")["session_id"]
    assert "lookup" in redrive("show", episode).out
    script = tmp_path / "same.jsonl"
    lines = [{"tool_calls": [{"name": "lookup", "args": {"order": 7}}]}]
    lines.append({"text": "kept", "final": True})
    script.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shadow = redrive.json("shadow", episode, "--model", f"script:{script}")
    assert shadow["verdict"] == "IDENTICAL_REPLAY"
    assert (shadow["runs"][0]["served"], shadow["runs"][0]["live_calls"]) == (1, 0)
    policy = redrive.json("policy", "replay", "--sessions", episode, *GUARD)
    assert policy["reports"][0]["sessions_scanned"] == 1
    assert redrive.json("verify")["ok"]
    assert not (made.folder / "ledger.txt").exists()


def test_the_report_is_written_as_html_and_as_junit(made: Made) -> None:
    page = (made.folder / "report.html").read_text()
    assert "<script" not in page
    for words in ("refunds@1", "refunds@2", "most expensive rung", "bubblewrap", "interchange:s61"):
        assert words in page
    root = ElementTree.fromstring((made.folder / "report.xml").read_text())  # noqa: S314 - ours
    cases = [case for case in root.iter("testcase") if case.get("classname") != "gate"]
    assert len(cases) == 2 * 2 * ATTEMPTS
    assert not list(root.iter("failure"))
    assert len(list(root.iter("error"))) == 1  # the gate, which could not be decided


def leaks(text: str) -> list[str]:
    """Name the planted values of case 28 in a text: whole, or nine characters of a secret part."""
    parts = json.loads((CASE_28 / "expected.json").read_text())["expect"]["planted_parts"]
    return [
        name
        for name, (first, *rest) in parts.items()
        if first + "".join(rest) in text or "".join(rest)[:9] in text
    ]


def test_secrets_of_a_workspace_results_and_outputs_are_in_no_output(made: Made) -> None:
    assert len(leaks((made.folder / "shop" / "order-9.txt").read_text())) == 11  # the control
    redrive, episode = made.redrive, made.run("refunds@2", "s61")["session_id"]
    texts = [
        made.said["out"],
        made.said["err"],
        *((made.folder / name).read_text() for name in ("report.html", "report.xml")),
        *(
            redrive(*words).out
            for words in (
                ("trial", "report", "plan.toml"),
                ("show", episode),
                ("show", episode, "--effects", "--json"),
                ("cat", episode),
                ("grep", "order", "--json"),
                ("policy", "replay", "--sessions", episode, *GUARD, "--json"),
            )
        ),
    ]
    for text in texts:
        assert leaks(text) == []
    assert all(texts[2:])
    # What is no secret stays readable, where it is shown.
    for text in (texts[0], texts[7]):
        assert "ASIAPACIFIC" in text
        assert "3f786850e387550fdab836ed7e6dc881de23001b" in text


def test_case_61_each_field_of_another_environment_is_named_and_nothing_is_attributed(
    made: Made,
) -> None:
    expected = json.loads((CASE_61 / "expected.json").read_text())["expect"]
    wanted = expected["recorded.traj + replay_env.json"]["differing_fields"]
    unknown, differs = made.report["tasks"]
    assert (unknown["environment"]["status"], differs["environment"]["status"]) == (
        "not_recorded",
        "differs",
    )
    assert [one["field"] for one in differs["environment"]["differences"]] == wanted
    text = made.redrive("trial", "report", "plan.toml").out
    for field in wanted:
        assert f"interchange:s61: environment differs: {field}: " in text
    refused = "no difference between these runs and the recorded session is attributed"
    assert f"interchange:s61: {refused}" in text
    for variant in ("refunds@1", "refunds@2"):
        assert refused in made.run(variant, "s61")["notes"]
        assert refused not in made.run(variant, "s54")["notes"]
