"""Measures tracefork 1.0 beside the whole replay, on the same decisions.

tracefork needs Python 3.12 and its own dependencies, so it gets an environment of its own for the
time of the measurement. Its load, replay and diff are taken without the SDK that it usually runs
under, and its tool calls are loaded but not replayed, which favours it.
"""

import json
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

from benchmarks.data import interchange_session
from benchmarks.paired import ROUNDS, Figure, cpu_seconds, line_of
from benchmarks.replaying import N_EVENTS, load, replay
from redrive.testing import MemorySource

REQUIREMENT = "tracefork==1.0.0"
INTERPRETERS = ("python3.14", "python3.13", "python3.12")
GOAL = 0.7
_PROGRAM = """
import gc, sys, time
import httpx2
from tracefork.diff import branch_diff
from tracefork.tape import Tape
from tracefork.transport import TraceforkTransport
made = Tape()
for line in open(sys.argv[1], "rb").read().splitlines():
    if b'"type":"decision"' in line:
        request = line
        made.append_exchange(line, line)
    elif b'"type":"tool_result"' in line:
        made.append_tool_exchange(request, line)
data = made.to_bytes()
gc.collect()
gc.disable()
started = time.process_time()
tape, again = Tape.from_bytes(data), Tape()
transport = TraceforkTransport("replay", tape)
for body, _ in tape.exchanges:
    asked = httpx2.Request("POST", "http://localhost/v1/messages", content=body)
    again.append_exchange(body, transport.handle_request(asked).read())
assert branch_diff(tape, again, divergence_step=0).identical
print(time.process_time() - started)
"""


def report(*, is_quick: bool) -> str:
    """Give the figure's line, or one that says why there is none."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            python = install(folder)
            figure = measure(python, folder, N_EVENTS // 10 if is_quick else N_EVENTS)
        except subprocess.CalledProcessError as error:
            said = (error.stderr or b"").decode("utf-8", "replace").strip().splitlines()
            return f"replay  ----  beside tracefork: {said[-1] if said else error}"
        except FileNotFoundError as error:
            return f"replay  ----  beside tracefork: {error}"
    return line_of(figure)


def install(folder: Path) -> Path:
    """Make an environment that holds tracefork; give its interpreter.

    Raises:
        FileNotFoundError: there is no Python 3.12 or newer.
        CalledProcessError: it cannot be made or installed.
    """
    for name in INTERPRETERS:
        found = shutil.which(name)
        if (
            found
            and not subprocess.run([found, "-c", "import venv"], capture_output=True).returncode
        ):
            break
    else:
        raise FileNotFoundError("it needs Python 3.12 or newer, and there is none here")
    environment = folder / "venv"
    subprocess.run([found, "-m", "venv", environment], check=True, capture_output=True)
    python = environment / "bin" / "python"
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    subprocess.run((*pip, REQUIREMENT), check=True, capture_output=True)
    return python


def measure(python: Path, folder: Path, n_events: int) -> Figure:
    """Compare the two in paired rounds of CPU time."""
    lines, script = interchange_session(n_events)
    path = folder / "session.jsonl"
    path.write_bytes(lines)
    source = MemorySource("bench.jsonl", lines)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        command = (python, "-c", _PROGRAM, path)
        theirs.append(json.loads(subprocess.run(command, check=True, capture_output=True).stdout))
        ours.append(cpu_seconds(lambda: replay(load(source), lambda: script)))
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    basis = f"tracefork {statistics.median(theirs):.2f} s; redrive {statistics.median(ours):.2f} s"
    name = f"load + replay + diff of {n_events} events / tracefork's"
    return Figure("replay", name, ratio, GOAL, f"{basis} CPU; median of {ROUNDS}")
