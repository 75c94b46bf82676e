"""Every way in which a run ends: it is named, recorded, and nothing of the run is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from redrive.app.trial_episode import run_episode
from redrive.errors import UsageError
from redrive.record.event import Kind, payload_of
from redrive.replay.trial_plan import RunLimits
from redrive.replay.trial_values import Outcome
from redrive.sandbox.bubblewrap import probe
from tests.trial_runs import LIMITS, Bench, make_model, make_task, output_of

pytestmark = pytest.mark.skipif(
    not probe().is_proven, reason=f"no proven sandbox here: {probe().reason}"
)
MIB = 1024 * 1024
ROOT = Path(__file__).parents[3]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def _code(run: str, tools: str = "[]", before: str = "") -> str:
    return f"""
import os, subprocess, sys, threading, time
from redrive.trial import Grants, Workflow, tool
{before}
def run(task, context):
{run}
workflow = Workflow("w", version="1", tools={tools}, run=run)
"""


def _processes_with(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace")
        except OSError:
            continue
        if mark in words and str(os.getpid()) != path.parent.name:
            found.append(words)
    return found


def _wait_until(holds: Callable[[], bool]) -> bool:
    for _ in range(600):
        if holds():
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("run", "outcome", "error"),
    [
        ("    raise ValueError('a\\nb')", Outcome.FAILED, "ValueError: a b (workflows.py:6)"),
        ("    return {1, 2}", Outcome.FAILED, "gives back: set has no JSON form"),
        ("    return 'x' * 2_000_000", Outcome.LIMIT, "2000002 bytes long"),
        ("    return bytearray(10**12)", Outcome.LIMIT, "MemoryError"),
        ("    os._exit(3)", Outcome.FAILED, "it ended without an output: it exited with 3"),
        ("    context.complete({}, model='other')", Outcome.FAILED, "no model 'other'"),
        ("    context.complete({'messages': b'x'})", Outcome.FAILED, "bytes has no JSON form"),
        ("    context.complete({'stream': True})", Outcome.FAILED, "one whole answer, no stream"),
    ],
)  # fmt: skip
def test_the_end_of_a_workflow_is_told_in_one_line(
    bench: Bench, run: str, outcome: Outcome, error: str
) -> None:
    end = bench.run(_code(run))
    assert end.outcome is outcome, end.error
    assert error in (end.error or "")
    assert bench.events(end)[-1].kind is Kind.SESSION_ENDED


def test_a_file_that_cannot_be_imported_fails_by_its_line(bench: Bench) -> None:
    good = bench.job(bench.write(_code("    return 1")))
    bad = bench.write(_code("    return 1", before="1 / 0"))
    job = bench.job(bad, eligible=good.eligible)
    end = bench.run(bad.read_text(), eligible=job.eligible)
    assert (end.outcome, end.error) == (
        Outcome.FAILED,
        "ZeroDivisionError: division by zero (workflows.py:4)",
    )


@pytest.mark.parametrize(
    "said", ["NaN", '{"score": Infinity}', "", "1 2", "\ufeff1", "[" * 990 + "]" * 990]
)
def test_an_end_that_is_no_json_is_no_end(bench: Bench, said: str) -> None:
    told = f"""
    import base64, json
    output = base64.b64encode({said!r}.encode()).decode()
    context._line.post("/redrive/trial-end", json.dumps({{"output": output}}).encode(), {{}})
    os._exit(0)"""
    end = bench.run(_code(told))
    assert (end.outcome, end.output) == (Outcome.FAILED, UNSET)
    assert [event.kind for event in bench.events(end)][-1] is Kind.SESSION_ENDED


@pytest.mark.parametrize("name", ["trial.end", "trial.workspace", "tool.simulated"])
def test_a_run_cannot_note_of_itself_what_redrive_notes(bench: Bench, name: str) -> None:
    told = f"""
    import base64, json
    name, fields = (base64.b64encode(text).decode() for text in ({name.encode()!r}, b"{{}}"))
    place = {{"id": "x", "thread": "1"}}
    note = {{"place": place, "number": 1, "name": name, "fields": fields}}
    return context._line.post("/redrive/note", json.dumps(note).encode(), {{}})[0]"""
    end = bench.run(_code(told))
    assert output_of(end) == 400
    noted = [payload_of(e).name for e in bench.events(end) if e.kind is Kind.CUSTOM]
    assert noted.count(name) == (name == "trial.end")


def test_an_end_that_is_longer_than_allowed_is_a_limit_whoever_tells_it(bench: Bench) -> None:
    told = """
    import base64, json
    output = base64.b64encode(json.dumps("x" * 2000).encode()).decode()
    context._line.post("/redrive/trial-end", json.dumps({"output": output}).encode(), {})
    os._exit(0)"""
    end = bench.run(_code(told), limits=replace(LIMITS, output_bytes=1000))
    assert (end.outcome, end.output) == (Outcome.LIMIT, UNSET)


def test_a_run_that_is_too_long_is_ended(bench: Bench) -> None:
    end = bench.run(_code("    while True: pass"), limits=_limits(wall_s=2.0))
    assert (end.outcome, end.error) == (Outcome.TIMEOUT, "it took more than 2 s")


def _limits(**changes: float) -> RunLimits:
    return replace(LIMITS, **changes)


def test_processors_and_processes_are_limited(bench: Bench) -> None:
    end = bench.run(_code("    while True: pass"), limits=_limits(cpu_s=1))
    assert end.outcome is Outcome.LIMIT, end.error
    bomb = "    for _ in range(200): subprocess.Popen(['sleep', '30'])\n    time.sleep(30)"
    end = bench.run(_code(bomb), limits=_limits(n_processes=20))
    assert end.outcome is Outcome.LIMIT, end.error
    assert "too many processes" in (end.error or "")


def test_more_calls_of_models_and_tools_than_allowed_end_the_run(bench: Bench) -> None:
    asking = "    while True: context.complete({'messages': []})"
    model = make_model()
    end = bench.run(_code(asking), models=(model,), limits=_limits(model_calls=3))
    assert (end.outcome, end.error) == (Outcome.LIMIT, "more than 3 model calls")
    assert len(model.answer.seen) == 3  # type: ignore[union-attr] # a scripted one
    calling = '@tool("one", effect="pure")\ndef one() -> int:\n    return 1\n'
    end = bench.run(_code("    while True: one()", "[one]", calling), limits=_limits(tool_calls=2))
    assert (end.outcome, end.error) == (Outcome.LIMIT, "more than 2 tool calls")


FILLING = """
@tool("fill", effect="idempotent", grants=Grants(write=("out",)))
def fill(size: int) -> int:
    with open("out/big", "wb") as file:
        for _ in range(size):
            file.write(os.urandom(1 << 20))
    return size
"""


def test_a_disk_that_is_filled_ends_the_run(bench: Bench) -> None:
    code = _code("    return [fill(6), time.sleep(10)]", "[fill]", FILLING)
    end = bench.run(code, limits=_limits(disk_bytes=4 * MIB))
    assert end.outcome in (Outcome.LIMIT, Outcome.FAILED), end.error
    # The control: it is the size that ended it.
    code = _code("    return fill(6)", "[fill]", FILLING)
    assert bench.run(code, limits=_limits(disk_bytes=8 * MIB)).outcome is Outcome.COMPLETE


def test_a_stop_from_outside_cancels_the_run_and_ends_its_processes(bench: Bench) -> None:
    mark = f"mark-{os.getpid()}-stop"
    run = (
        f"    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)', '{mark}'],"
        " start_new_session=True)\n    time.sleep(99)"
    )

    def stop() -> None:
        _wait_until(lambda: bool(_processes_with(mark)))
        bench.stop.set()

    stopping = threading.Thread(target=stop)
    stopping.start()
    end = bench.run(_code(run))
    stopping.join()
    assert (end.outcome, end.error) == (Outcome.CANCELLED, "it was interrupted")
    assert not _processes_with(mark)


def test_what_a_finished_workflow_leaves_running_is_ended(bench: Bench) -> None:
    mark = f"mark-{os.getpid()}-left"
    run = (
        f"    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(99)', '{mark}'],"
        " start_new_session=True)\n"
        "    threading.Thread(target=time.sleep, args=(99,)).start()\n    return 1"
    )
    end = bench.run(_code(run))
    assert (end.outcome, output_of(end)) == (Outcome.COMPLETE, 1)
    assert not _processes_with(mark)


PARENT = '''
import sys
from pathlib import Path
from tests.trial_runs import Bench, LIMITS
bench = Bench(Path(sys.argv[1]))
bench.run(Path(sys.argv[2]).read_text())
'''  # fmt: skip


def test_a_killed_parent_leaves_no_process_of_its_run(bench: Bench) -> None:
    mark = f"mark-{os.getpid()}-kill"
    words = f"[sys.executable, '-c', 'import time; time.sleep(99)', '{mark}']"
    tool = f"""
@tool("wait", effect="pure")
def wait() -> None:
    subprocess.run({words})
"""
    file = bench.write(_code("    wait()", "[wait]", tool))
    command = [sys.executable, "-c", PARENT, str(bench.folder), str(file)]
    parent = subprocess.Popen(command, cwd=ROOT)
    try:
        assert _wait_until(lambda: any("time.sleep(99)\0" in w for w in _processes_with(mark)))
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert _wait_until(lambda: not _processes_with(mark))


DYING = """
@tool("die", effect="pure")
def die(how: str) -> str:
    if how == "exit":
        os._exit(9)
    if how == "memory":
        return "x" * 10**12
    if how == "object":
        return object()
    if how == "long":
        return "x" * 3_000_000
    if how == "raise":
        raise KeyError("missing")
    return how
"""


def test_an_error_of_a_tool_is_the_workflows_to_catch_and_a_dead_worker_is_started_anew(
    bench: Bench,
) -> None:
    run = """
    seen = []
    for how in ("exit", "memory", "object", "long", "raise", "well"):
        try:
            seen.append(die(how))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
    return seen
"""
    end = bench.run(_code(run, "[die]", DYING))
    assert end.outcome is Outcome.COMPLETE, end.error
    lost, memory, form, long, raised, well = output_of(end)
    assert "its worker is gone: it exited with 9" in lost
    assert memory == "MemoryError: "
    assert form == "TypeError: the result: object has no JSON form"
    assert long.startswith("OverflowError: the result is 3000002 bytes long")
    assert (raised, well) == ("KeyError: 'missing'", "well")


def test_a_changed_workspace_or_code_is_refused_before_anything_runs(
    bench: Bench, tmp_path: Path
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    task = make_task(1, workspace)
    (workspace / "new").write_text("x")
    with pytest.raises(UsageError, match="not the planned one"):
        bench.run(_code("    return 1"), task=task)
    job = bench.job(bench.write(_code("    return 1")))
    bench.write(_code("    return 2"))
    with pytest.raises(UsageError, match="code of w@1 is not the planned one"):
        run_episode(job, bench.account, bench.stop)
    assert not bench.store.exists()
