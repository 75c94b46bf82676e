"""The grader `callable`: a Python function of the plan's author marks each episode.

The function never runs here: one confined child calls it for all episodes of a task, with no
network and no file but the outputs, the collected workspaces and the code beside the function.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UnsetType

from redrive import canonical
from redrive.errors import PluginError
from redrive.graders.options import check_timeout, find_file, read_options, wrong
from redrive.graders.outputs import Mark, grade_of, one_line
from redrive.grading import (
    GradeContext,
    GradedEpisode,
    GradeGroup,
    GraderSetup,
    GroupGrade,
    JobEnd,
    SandboxJob,
)
from redrive.sandbox.scan_names import find_bound_names

_CHILD = Path(__file__).with_name("callable_child.py")
_MIB = 1024 * 1024
_OUTPUT_BYTES = 16 * _MIB
_EXPECTED = 'a bool, a number from 0 to 1, or {"score", "passed", "note"}'


class CallableOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options.

    Attributes:
        function: `PATH.py:NAME`, from the plan's folder: `grade(task, output, files)`.
        threshold: the score from which an episode passes, where the function does not say.
        timeout_s: wall time for all episodes of one task.
        memory_mib: address space of the child.
    """

    function: str
    threshold: float = 1.0
    timeout_s: float = 60.0
    memory_mib: int = 4096


class CallableGrader:
    """Has a function called in the sandbox."""

    def __init__(self, options: CallableOptions, file: Path, name: str) -> None:
        self._options = options
        self._file = file
        self._name = name

    def grade(self, group: GradeGroup, context: GradeContext) -> GroupGrade:
        """Give what the function gives; where it raises or gives no score, `None`.

        Raises:
            PluginError: the file does not load, or has no function of that name.
        """
        if not group.episodes:
            return grade_of(group, ())
        end = context.run(self._job(group))
        lines = end.stdout.split(b"\n")[:-1]
        self._check_load(lines, end)
        fault = end.fault or "the function's process ended before"
        answers = [answer for line in lines[1:] if (answer := _read_answer(line)) is not None]
        if not len(answers) == len(lines) - 1 <= len(group.episodes):
            answers, fault = [], "the function wrote among its answers"
        marks = [
            (one, self._mark(answers[n]) if n < len(answers) else Mark(None, reason=fault))
            for n, one in enumerate(group.episodes)
        ]
        return grade_of(group, marks)

    def _job(self, group: GradeGroup) -> SandboxJob:
        task = group.task
        about = {"id": task.task_id, "name": task.name, "input": task.input}
        if not isinstance(task.expected, UnsetType):
            about["expected"] = task.expected
        episodes = [
            {"output": _output_of(one), "folder": str(number)}
            for number, one in enumerate(group.episodes)
        ]
        return SandboxJob(
            command=(
                *("{python}", "-I", f"{{code}}/{_CHILD.name}"),
                *(f"{{code}}/{self._file.name}", self._name, "{episodes}"),
            ),
            shown=group.episodes,
            code=tuple(map(str, (_CHILD, *_code_beside(self._file)))),
            stdin=canonical.encode({"task": about, "episodes": episodes}),
            timeout_s=self._options.timeout_s,
            memory_bytes=self._options.memory_mib * _MIB,
            output_bytes=_OUTPUT_BYTES,
        )

    def _check_load(self, lines: list[bytes], end: JobEnd) -> None:
        loaded = canonical.decode_value(lines[0]) if lines else {"error": end.fault or _tail(end)}
        if not loaded.get("loaded"):
            why = loaded.get("error", f"{self._name} cannot be called")
            raise PluginError(f"the grader does not load: {one_line(why)}", where=str(self._file))

    def _mark(self, answer: Mapping[str, Any]) -> Mark:
        if "error" in answer:
            return Mark(None, reason=one_line(str(answer["error"])))
        return read_mark(answer["found"], self._options.threshold)


def _read_answer(line: bytes) -> Mapping[str, Any] | None:
    """Read a line of the child; `None` for one that is not the child's."""
    try:
        answer = canonical.decode_value(line)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and answer.keys() & {"error", "found"} else None


def _output_of(episode: GradedEpisode) -> Any:
    return None if isinstance(episode.end.output, UnsetType) else episode.end.output


def _tail(end: JobEnd) -> str:
    return end.stderr.decode("utf-8", "replace")[-300:] or f"exit {end.exit_code}"


def read_mark(found: Any, threshold: float) -> Mark:
    """Read what a function gave: a bool, a number, or an object of score, passed and note."""
    fields = found if isinstance(found, dict) else {"score": found}
    score, passed, note = (fields.get(key) for key in ("score", "passed", "note"))
    if score is None and isinstance(passed, bool):
        score = passed
    is_known = fields.keys() <= {"score", "passed", "note"} and isinstance(passed, bool | None)
    if not isinstance(score, int | float) or not 0 <= score <= 1 or not is_known:
        return Mark(None, reason=one_line(f"the function gave {found!r}, expected {_EXPECTED}"))
    value = float(score)
    text = note if isinstance(note, str) else ""
    return Mark(value, value >= threshold if passed is None else passed, one_line(text))


def _code_beside(file: Path) -> Iterator[Path]:
    """List the file, the modules beside it and the packages: code, and no secret beside it."""
    for path in sorted(file.parent.iterdir()):
        is_package = path.is_dir() and (path / "__init__.py").is_file()
        if is_package or (path.name != _CHILD.name and path.suffix == ".py" and path.is_file()):
            yield path


def open_grader(setup: GraderSetup) -> CallableGrader:
    """Open `callable`; the file is read and not run.

    Raises:
        UsageError: an option is wrong, or there is no such file or name in it.
    """
    options = read_options(setup.spec, CallableOptions)
    check_timeout(setup.spec, options.timeout_s)
    if not 0 <= options.threshold <= 1 or options.memory_mib < 64:
        raise wrong(setup.spec, "threshold is 0 to 1, memory_mib at least 64")
    path, _, name = options.function.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier():
        raise wrong(setup.spec, "function is no PATH.py:NAME", 'function = "checks.py:grade"')
    file = find_file(setup, path).absolute()
    try:
        names = find_bound_names(ast.parse(file.read_bytes()).body)
    except (SyntaxError, ValueError, RecursionError) as error:
        raise wrong(setup.spec, f"{path} is no Python: {error}") from error
    if name not in names:
        raise wrong(setup.spec, f"there is no {name} in {path}")
    return CallableGrader(options, file, name)
