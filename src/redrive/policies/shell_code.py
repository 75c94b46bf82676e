"""Code in other languages that a command line hands to an interpreter.

Knows the calls that delete a folder in JavaScript, Ruby and Perl. Must not run the code, and does
not parse it: it looks at the names outside strings and comments, so it only ever asks.

Source: the documentation of Node's `fs`, Ruby's `FileUtils` and Perl's `File::Path`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from redrive.policies.shell_command import Command, read_options
from redrive.policies.shell_danger import Danger, Severity, make_danger
from redrive.policies.shell_paths import is_scratch

_MAX_CHARS = 64 * 1024
_JAVASCRIPT = frozenset({"rm", "rmSync", "rmdir", "rmdirSync"})
_RUBY = frozenset({"rm_r", "rm_rf", "rmtree", "remove_dir", "remove_entry", "remove_entry_secure"})
# Program → the names that delete a folder.
_CALLS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("node", "deno", "bun"), _JAVASCRIPT),
    "ruby": _RUBY,
    "perl": frozenset({"rmtree", "remove_tree"}),
}
_CODE_OPTIONS = ("-e", "-E", "-pe", "-ne", "--eval")
_NODE_CODE_OPTIONS = (*_CODE_OPTIONS, "-p", "--print")
_VALUES = ("-r", "-I", "-M", "-m", "--require", "--import")
# A string that does not end goes to the end of the text, so that a scan is O(n).
_STRING = r"'(?:[^'\\]|\\.)*'?|\"(?:[^\"\\]|\\.)*\"?|`(?:[^`\\]|\\.)*`?"
_SLASHES = re.compile(rf"//[^\n]*|{_STRING}|\w+|\S", re.DOTALL)
_HASHES = re.compile(rf"#[^\n]*|{_STRING}|\w+|\S", re.DOTALL)


def judge_code(command: Command, root: str | None) -> Iterator[Danger]:
    """Ask about code whose text names the deletion of a folder that is no scratch."""
    calls = _CALLS.get(command.program)
    if calls is None:
        return
    holding = _NODE_CODE_OPTIONS if calls is _JAVASCRIPT else _CODE_OPTIONS
    options = read_options(command.words[1:], (*holding, *_VALUES), is_permuted=False)
    texts = options.values(*holding)
    if options.operands[:1] == ("eval",):
        texts = list(options.operands[1:2])
    if not texts and options.operands in {(), ("-",)}:
        texts = [command.stdin.text or ""]
    for text in texts:
        for target in _find_targets(text[:_MAX_CHARS], calls):
            if not target or not is_scratch(target, folder=command.cwd, root=root):
                yield make_danger("recursive_delete", command, target, severity=Severity.ASK)
                return


def _find_targets(text: str, calls: frozenset[str]) -> Iterator[str]:
    """Yield what each call of one of the names is given; empty where that is no literal."""
    is_javascript = calls is _JAVASCRIPT
    tokens = (_SLASHES if is_javascript else _HASHES).findall(text)
    if is_javascript and "recursive" not in tokens:
        return
    for number, token in enumerate(tokens):
        if token in calls:
            yield _first_literal(tokens[number + 1 : number + 4])


def _first_literal(following: Sequence[str]) -> str:
    """Give the literal that a call's words begin with, where it stands alone."""
    words = [word for word in following if word != "("]
    if not words or words[0][:1] not in {"'", '"'} or words[1:2] not in ([], [")"], [","], [";"]):
        return ""
    return words[0].strip("'\"")
