"""Walks a shell script as bash would run it, every branch taken, and lists what it runs.

Knows control flow, redirections and where text becomes commands. Must not judge a command. Nothing
is run: values that the script does not hold are unknown. A loop's body is walked once per literal
value (at most 16), and the whole walk ends after `_MAX_STEPS`, so the cost is O(n).

Source: the bash manual, "Executing Commands".
"""

import msgspec

from redrive.policies.shell_command import Command
from redrive.policies.shell_launch import launch
from redrive.policies.shell_scope import Files, Scope
from redrive.policies.shell_syntax import parse_script
from redrive.policies.shell_tree import (
    MAX_NESTING,
    Assignment,
    Function,
    Group,
    Loop,
    Node,
    Pipeline,
    Redirect,
    Script,
    Simple,
    Substitution,
    TooDeepError,
    Word,
)
from redrive.policies.shell_words import (
    MAX_VALUE_CHARS,
    SILENT,
    UNKNOWN,
    UNREAD,
    Stream,
    Value,
    expand_fields,
    expand_text,
    join_streams,
)

MAX_CHARS = 64 * 1024
_MAX_STEPS = 40_000
_MAX_LOOP_VALUES = 16
_MAX_CALLS = 16
CHARS_PER_STEP = 64
_FILE_WRITES = frozenset({">", ">>", ">|", "&>", "&>>", ">&", "<>"})


class _ExhaustedError(Exception):
    """The walk has taken as many steps as it may."""


class Walk(msgspec.Struct, frozen=True):
    """The commands of a script in the order in which they are met.

    `is_complete` is false if the script was longer, deeper or more work than is read.
    """

    commands: tuple[Command, ...]
    is_complete: bool


def walk_script(source: str, cwd: str | None = None) -> Walk:
    """List the simple commands that a script would run, of whatever nesting.

    Args:
        source: a command line or a script; its first 64 KiB are read.
        cwd: the folder in which it is run, where that is known.

    Returns:
        What could be read; never an error, whatever the text.
    """
    walker = _Walker()
    try:
        walker.text(source, Scope(cwd or "."), UNREAD)
    except (TooDeepError, _ExhaustedError, RecursionError):
        walker.leave_unread()
    return Walk(tuple(walker.commands), walker.is_complete)


class _Walker:
    """Runs nodes; `files` are texts that the script itself writes, and its pipes by name."""

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.files = Files()
        self.steps = 0
        self.depth = 0
        self.is_complete = True
        self.has_cut_value = False

    def emit(self, command: Command) -> None:
        self.commands.append(command)

    def text(self, source: str, scope: Scope, stdin: Stream) -> Stream:
        """Parse and run a text that becomes a script; one that was cut is not read to its end."""
        if len(source) > MAX_CHARS or (self.has_cut_value and len(source) >= MAX_VALUE_CHARS):
            self.leave_unread()
        source = source[:MAX_CHARS]
        self.charge(len(source))
        return self.script(parse_script(source, self.depth), scope, stdin)

    def words(self, command: Command, scope: Scope) -> Stream:
        """Run words: a function of the script, else a program."""
        self.charge(0)
        function = scope.functions.get(command.words[0]) if command.words else None
        if function is None or command.words[0] in scope.calls:
            return launch(self, command, scope)
        if len(scope.calls) >= _MAX_CALLS:
            self.leave_unread()
            return launch(self, command, scope)
        return self._call(function, command, scope)

    def leave_unread(self) -> None:
        """Note that a limit kept some part from being read."""
        self.is_complete = False

    def note_cut(self, value: Value | None) -> None:
        """Note that a value is too long to be kept whole."""
        if isinstance(value, str) and len(value) > MAX_VALUE_CHARS:
            self.has_cut_value = True

    def charge(self, chars: int) -> None:
        """Count one step, and one more for each `CHARS_PER_STEP` of a text."""
        self.steps += 1 + chars // CHARS_PER_STEP
        if self.steps > _MAX_STEPS:
            raise _ExhaustedError

    # --- nodes ---

    def script(self, script: Script, scope: Scope, stdin: Stream) -> Stream:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise TooDeepError
        streams = [self.node(item, scope, stdin) for item in script.items]
        self.depth -= 1
        return join_streams(streams)

    def node(self, node: Node, scope: Scope, stdin: Stream) -> Stream:
        self.charge(0)
        match node:
            case Simple():
                return self._simple(node, scope, stdin)
            case Pipeline(stages):
                for stage in stages:
                    stdin = self.node(stage, scope.child(), stdin)
                return stdin
            case Script():
                return self.script(node, scope, stdin)
            case Group():
                return self._group(node, scope, stdin)
            case Loop():
                return self._loop(node, scope, stdin)
            case Function(name):
                scope.functions[name] = node
                return SILENT

    def _group(self, group: Group, scope: Scope, stdin: Stream) -> Stream:
        inner = scope.child() if group.is_subshell else scope
        stdin, written = self._redirected(group.redirects, inner, stdin)
        output = join_streams([self.script(script, inner, stdin) for script in group.scripts])
        return self._write(output, written, inner)

    def _loop(self, loop: Loop, scope: Scope, stdin: Stream) -> Stream:
        stdin, written = self._redirected(loop.redirects, scope, stdin)
        streams: list[Stream] = []
        for value in self._loop_values(loop, scope):
            if loop.variable:
                scope.values[loop.variable] = value
            streams.append(self.script(loop.condition, scope, stdin))
            streams.append(self.script(loop.body, scope, stdin))
        return self._write(join_streams(streams), written, scope)

    def _loop_values(self, loop: Loop, scope: Scope) -> list[str]:
        if not loop.variable or not loop.values:
            return [UNKNOWN]
        bound = _Bound(self, scope)
        values = [field for word in loop.values for field in expand_fields(word, bound)]
        return [*values[:_MAX_LOOP_VALUES], *([UNKNOWN] if values[_MAX_LOOP_VALUES:] else [])]

    def _simple(self, node: Simple, scope: Scope, stdin: Stream) -> Stream:
        bound = _Bound(self, scope)
        fields: list[str] = []
        for word in node.words:
            fields.extend(expand_fields(word, bound))
            self.charge(len(fields[-1]) if fields else 0)
        stdin, written = self._redirected(node.redirects, scope, stdin)
        assigned = [(item.name, self._value(item, bound)) for item in node.assignments]
        if not fields:
            for name, value in assigned:
                scope.values[name] = value
            if written:
                self.emit(Command((), scope.cwd, stdin, written))
            return self._write(SILENT, written, scope)
        pairs = tuple((name, value) for name, value in assigned if isinstance(value, str))
        command = Command(tuple(fields), scope.cwd, stdin, written, assigned=pairs)
        return self._write(self.words(command, scope), written, scope)

    def _value(self, assignment: Assignment, bound: "_Bound") -> Value:
        old = bound.look_up(assignment.name) if assignment.is_appended else None
        if isinstance(assignment.value, tuple):
            start = (old,) if isinstance(old, str) else old or ()
            words = assignment.value
            return (*start, *(field for word in words for field in expand_fields(word, bound)))
        text = expand_text(assignment.value, bound)
        self.charge(len(text))
        text = old + text if isinstance(old, str) else text
        self.note_cut(text)
        return text[:MAX_VALUE_CHARS]

    def _call(self, function: Function, command: Command, scope: Scope) -> Stream:
        if _is_bomb(function):
            self.emit(Command(command.words, scope.cwd, is_bomb=True))
        names = [str(number) for number in range(1, 10)]
        kept = {name: scope.values.get(name) for name in ("@", *names)}
        scope.values["@"] = command.words[1:]
        for name, value in zip(names, command.words[1:], strict=False):
            scope.values[name] = value
        scope.calls = (*scope.calls, function.name)
        output = self.node(function.body, scope, command.stdin)
        scope.calls = scope.calls[:-1]
        for name, old in kept.items():
            if old is not None:
                scope.values[name] = old
            else:
                scope.values[name] = UNKNOWN
        return output

    # --- redirections ---

    def _redirected(
        self, redirects: tuple[Redirect, ...], scope: Scope, stdin: Stream
    ) -> tuple[Stream, tuple[str, ...]]:
        """Give what a command then reads, and the files that it writes; `2>` first comes as 2."""
        bound = _Bound(self, scope)
        written: list[str] = []
        for redirect in redirects:
            operator = redirect.operator.lstrip("0123456789")
            if redirect.body is not None:
                text = expand_text(redirect.body, bound)
                self.charge(len(text))
                stdin = Stream(text)
                continue
            target = expand_text(redirect.target, bound)
            if operator == "<":
                is_null = target == "/dev/null"
                stdin = SILENT if is_null else self.files.read(scope.cwd, target)
            elif operator in _FILE_WRITES and not target.isdigit() and target != "-":
                prefix = redirect.operator.removesuffix(operator)
                written.append(f"{prefix}\0{target}" if prefix not in {"", "1"} else target)
        return stdin, tuple(written)

    def _write(self, output: Stream, written: tuple[str, ...], scope: Scope) -> Stream:
        """Keep what a script writes to a file of its own; what is left goes on."""
        is_taken = False
        for target in written:
            if "\0" not in target:
                is_taken = True
                self.files.write(scope.cwd, target, output)
        return SILENT if is_taken else output


class _Bound:
    """Expansion's view of a scope."""

    def __init__(self, walker: _Walker, scope: Scope) -> None:
        self.walker = walker
        self.scope = scope

    def look_up(self, name: str) -> Value | None:
        value = self.scope.look_up(name)
        self.walker.charge(len(value) if isinstance(value, str) else 0)
        return value

    def assign(self, name: str, value: Value) -> None:
        self.scope.values[name] = value

    def substitute(self, part: Substitution) -> str:
        output = self.walker.script(part.script, self.scope.child(), UNREAD)
        if part.opener == "$(":
            value = output.as_value()
            self.walker.note_cut(value)
            return value
        return self.walker.files.add_pipe(output)


def _is_bomb(function: Function) -> bool:
    """Tell whether a function pipes itself into itself: each call makes two more."""
    waiting: list[Node] = [function.body]
    while waiting:
        match waiting.pop():
            case Group(scripts):
                waiting.extend(item for script in scripts for item in script.items)
            case Pipeline(stages) if sum(_calls(stage, function.name) for stage in stages) > 1:
                return True
            case _:
                pass
    return False


def _calls(node: Node, name: str) -> bool:
    if not isinstance(node, Simple) or not node.words:
        return False
    return node.words[0] == Word(node.words[0].parts) and _literal(node.words[0]) == name


def _literal(word: Word) -> str:
    return "".join(getattr(part, "text", UNKNOWN) for part in word.parts)
