from pathlib import Path

import pytest

from redrive.app import trial_collecting
from redrive.capture.ports import Outcome as Exchanged
from redrive.record.event import Kind
from redrive.replay.trial_values import Outcome
from redrive.sandbox.bubblewrap import probe
from tests.trial_runs import Bench, make_model, make_task, output_of

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)

WORKING = '''
import random, time
from redrive.trial import Grants, Workflow, tool

@tool("read_file", effect="read_only", grants=Grants(read=(".",)))
def read_file(path: str) -> str:
    """Read a file."""
    return open(path).read()

@tool("write_file", effect="idempotent", grants=Grants(write=("out",)))
def write_file(path: str, text: str) -> int:
    with open(path, "w") as file:
        return file.write(text)

def run(task, context):
    drawn, now = random.random(), time.time()
    answer = context.complete({"messages": [{"role": "user", "content": task}]})
    text = read_file("a.txt")
    write_file(path="out/copy.txt", text=text)
    return {"text": text, "said": answer["choices"][0]["message"]["content"], "drawn": drawn}

workflow = Workflow("reader", version="1", tools=[read_file, write_file], run=run)
'''


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    (folder / "a.txt").write_text("hello")
    return folder


def test_a_workflow_runs_to_its_end_and_leaves_a_closed_session(
    bench: Bench, workspace: Path
) -> None:
    end = bench.run(WORKING, task=make_task("do it", workspace))
    assert (end.outcome, end.error, end.denied) == (Outcome.COMPLETE, None, ())
    output = output_of(end)
    assert (output["text"], output["said"]) == ("hello", "fine")
    assert end.isolation == "bubblewrap"
    assert bench.is_closed(end)
    kinds = [event.kind for event in bench.events(end)]
    assert kinds.count(Kind.PRNG_READ) == kinds.count(Kind.CLOCK_READ) == 1
    assert (kinds[0], kinds[-1]) == (Kind.SESSION_STARTED, Kind.SESSION_ENDED)


def test_the_workspace_of_a_run_is_its_own_and_what_it_left_is_collected(
    bench: Bench, workspace: Path
) -> None:
    end = bench.run(WORKING, task=make_task("do it", workspace))
    assert [(file.path, file.kind) for file in end.files] == [("out/copy.txt", "file")]
    assert sorted(path.name for path in workspace.iterdir()) == ["a.txt"]


def test_a_run_that_leaves_more_than_can_be_looked_at_has_passed_a_limit(
    bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial_collecting, "MAX_FILES", 0)
    end = bench.run(WORKING, task=make_task("do it", workspace))
    assert end.outcome is Outcome.LIMIT
    assert end.error is not None
    assert "files: the others are not collected" in end.error


def test_a_model_call_is_reserved_before_and_settled_once_after(bench: Bench) -> None:
    end = bench.run(WORKING.replace('read_file("a.txt")', '""'))
    assert end.outcome is Outcome.COMPLETE
    assert [charge.settled[0][2] for charge in bench.account.charges] == [Exchanged.COMPLETE]
    assert bench.account.settled_once


def test_a_ceiling_ends_the_run_and_asks_no_model(bench: Bench) -> None:
    bench.account.most = 0
    model = make_model()
    end = bench.run(WORKING, models=(model,))
    assert end.outcome is Outcome.CEILING
    assert not model.answer.seen  # type: ignore[union-attr] # it is a scripted one
