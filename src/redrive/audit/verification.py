"""Tells a command that checks work (tests, types, lint, build), and whether it passed.

Knows programs, and what their summaries say. Must not know sessions. A heuristic, by the words of
the command and the end of its output: a file called `latest.txt` is no test, and a run that ended
with exit code 0 behind a pipe and says "3 failed" did not pass.

Source: DESIGN.md §7, state level L1; the tables are version `CHECKS_VERSION`.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from posixpath import basename, splitext

from redrive.audit.commands import simple_commands

CHECKS_VERSION = 1
_TAIL_CHARS = 8000


class Check(StrEnum):
    """What a command checks."""

    TEST = "test"
    TYPES = "types"
    LINT = "lint"
    BUILD = "build"


_PROGRAMS = {
    **dict.fromkeys(
        (
            *("pytest", "py.test", "nose2", "tox", "nox", "unittest", "jest", "vitest", "mocha"),
            *("ava", "karma", "cypress", "rspec", "phpunit", "ctest", "gotestsum", "nextest"),
            *("bats", "busted", "pest"),
        ),
        Check.TEST,
    ),
    **dict.fromkeys(("mypy", "pyright", "tsc", "pyre", "ty", "basedpyright"), Check.TYPES),
    **dict.fromkeys(
        ("ruff", "flake8", "pylint", "eslint", "biome", "golangci-lint", "shellcheck", "rubocop"),
        Check.LINT,
    ),
    **dict.fromkeys(("msbuild", "xcodebuild", "bazelisk"), Check.BUILD),
}
# Programs, and the words after them that check something.
_SUBCOMMANDS: tuple[tuple[str, dict[Check, str]], ...] = (
    (
        "npm pnpm yarn bun deno",
        {
            Check.TEST: "test t tst test:unit test:ci test:e2e",
            Check.TYPES: "typecheck type-check check-types",
            Check.LINT: "lint",
            Check.BUILD: "build",
        },
    ),
    (
        "cargo",
        {
            Check.TEST: "test t nextest",
            Check.TYPES: "check c",
            Check.LINT: "clippy",
            Check.BUILD: "build b",
        },
    ),
    ("go", {Check.TEST: "test", Check.LINT: "vet", Check.BUILD: "build"}),
    ("dotnet bazel swift", {Check.TEST: "test", Check.BUILD: "build"}),
    (
        "mvn mvnw gradle gradlew",
        {
            Check.TEST: "test verify check integrationTest",
            Check.BUILD: "compile build assemble package",
        },
    ),
    (
        "make just task rake mise",
        {
            Check.TEST: "test tests check unit-test test-unit",
            Check.TYPES: "typecheck types",
            Check.LINT: "lint",
            Check.BUILD: "build all",
        },
    ),
    ("mix", {Check.TEST: "test", Check.BUILD: "compile"}),
    ("rails manage.py composer", {Check.TEST: "test"}),
    ("flutter", {Check.TEST: "test", Check.LINT: "analyze", Check.BUILD: "build"}),
)
_WORDS: dict[str, dict[str, Check]] = {
    program: {word: check for check, words in table.items() for word in words.split()}
    for programs, table in _SUBCOMMANDS
    for program in programs.split()
}
_RUNNERS = {
    "npx": 0, "bunx": 0, "pnpx": 0, "uvx": 0, "bundle": 1, "uv": 1, "poetry": 1, "pipenv": 1,
    "hatch": 1, "pdm": 1, "rye": 1, "coverage": 1, "pixi": 1,
}  # fmt: skip
_RUN_WORDS = frozenset({"run", "exec", "run-script", "x", "-m"})
_INTERPRETERS = re.compile(r"(?:python|pypy)[0-9.]*$")
_TEST_SCRIPT = re.compile(r"(?:test|tests|run[-_]?tests?)(?:[-_.]\w+)*\.(?:sh|py|js|ts|rb)$")
_FAILED = re.compile(
    r"\b[1-9][0-9]*\s+(?:tests? )?(?:failed|failures?|failing|errors?)\b"
    r"|\b(?:failures|failed|errors|Failures|Failed|Errors)[:=]\s*[1-9]"
    r"|^not ok \d|^# fail [1-9]|^\s*[1-9][0-9]* fail$"
    r"|^(?:FAIL|FAILED|ERROR|ERRORS)\b|\btest result: FAILED|\bnpm ERR!|^E {3}"
    r"|\b(?:BUILD|TEST) FAIL(?:ED|URE)\b|\b(?:build|compilation) failed\b"
    r"|\bTraceback \(most recent call last\)"
    r"|^make(?:\[\d+\])?: \*\*\*|\berror(?:\[[A-Z]?\d+\]| TS\d+)?: ",
    re.MULTILINE,
)
_NOTHING_RAN = re.compile(
    r"\bno tests (?:ran|found|to run|were found|collected)\b|\bcollected 0 items\b"
    r"|\bRan 0 tests\b|\brunning 0 tests\b(?![\s\S]*running [1-9])|\bNo test files found\b"
    r"|: command not found\b|\bNo module named\b|\bMissing script\b",
    re.IGNORECASE,
)


def find_check(command: str) -> Check | None:
    """Say what a shell command checks; tests win over all else. `None` where it checks nothing."""
    found = {check for words in simple_commands(command) for check in _checks(list(words))}
    return next((check for check in Check if check in found), None)


def _checks(words: Sequence[str]) -> Iterator[Check]:
    """Yield what one simple command, as its words, checks."""
    if not words:
        return
    name, rest = basename(words[0]), words[1:]
    if name in _RUNNERS and rest:
        after = rest[_RUNNERS[name] if rest[0] in _RUN_WORDS else 0 :]
        yield from _checks(_without_options(after))
        return
    if _INTERPRETERS.match(name):
        yield from _checks(_script_of(rest))
        return
    if name in _PROGRAMS and not _only_asks(rest):
        yield _PROGRAMS[name]
    elif name in _WORDS:
        yield from _subcommand(_WORDS[name], rest)
    elif _TEST_SCRIPT.match(name):
        yield Check.TEST
    elif name in ("bash", "sh", "zsh", "node", "ruby"):
        script = next(iter(_without_options(rest)), "")
        if _TEST_SCRIPT.match(basename(script)) or (name == "node" and "--test" in rest):
            yield Check.TEST


def _subcommand(table: dict[str, Check], rest: Sequence[str]) -> Iterator[Check]:
    words = [word for word in rest if not word.startswith("-") and word not in _RUN_WORDS]
    for word in words[:3]:
        check = table.get(word.removeprefix(":").rpartition(":")[2]) or table.get(word)
        if check is not None:
            yield check
            return


def _script_of(rest: Sequence[str]) -> list[str]:
    """Give what an interpreter runs: the module after `-m`, or the script."""
    words = list(rest)
    while words and words[0].startswith("-"):
        if words[0] == "-m":
            return words[1:]
        if words[0] in ("-c", "-"):
            return []
        del words[: 2 if words[0] in ("-W", "-X") else 1]
    return words


def _without_options(words: Sequence[str]) -> list[str]:
    kept = list(words)
    while kept and kept[0].startswith("-"):
        del kept[0]
    return kept


def _only_asks(rest: Sequence[str]) -> bool:
    return any(word in ("--version", "--help", "-h", "--collect-only", "--co") for word in rest)


def has_passed(output: str, *, is_ok: bool, exit_code: int | None) -> bool:
    """Say whether a check passed.

    Args:
        output: what it printed; its last 8,000 characters are read.
        is_ok: whether the tool's result is no error.
        exit_code: where recorded.
    """
    if not is_ok or exit_code not in (None, 0):
        return False
    tail = output[-_TAIL_CHARS:]
    return not (_FAILED.search(tail) or _NOTHING_RAN.search(tail))


_SOURCE_ENDINGS = """
.py .pyi .pyx .js .jsx .mjs .cjs .ts .tsx .vue .svelte .go .rs .java .kt .kts .scala .c .cc .cpp
.cxx .h .hh .hpp .cs .fs .rb .php .swift .m .mm .ex .exs .erl .clj .hs .lua .r .jl .pl .sh .bash
.zsh .sql .dart .zig .nim .ml
"""
_SOURCE = frozenset(_SOURCE_ENDINGS.split())
_TEST_FOLDERS = frozenset({"test", "tests", "__tests__", "spec", "specs", "testing", "e2e"})
_TEST_STEM = re.compile(r"^(?:test|tests|conftest|spec)$|^tests?[_-]|[_-](?:tests?|spec)$")
_TEST_CAMEL = re.compile(r"(?:^Test[A-Z0-9]|[a-z0-9]Tests?$|[a-z0-9]Spec$)")


def is_source_file(path: str) -> bool:
    """Say whether a path names code, by its ending; documents and data are none."""
    return splitext(path)[1].lower() in _SOURCE


def is_test_file(path: str) -> bool:
    """Say whether a path names code that tests other code."""
    if not is_source_file(path):
        return False
    *folders, name = path.replace("\\", "/").split("/")
    stem = splitext(name)[0]
    parts = stem.split(".")  # app.test.ts, app.spec.js
    if len(parts) > 1 and parts[-1].lower() in ("test", "tests", "spec", "e2e", "cy"):
        return True
    if _TEST_STEM.search(stem.lower()) or _TEST_CAMEL.search(stem):
        return True
    return any(folder.lower() in _TEST_FOLDERS for folder in folders)
