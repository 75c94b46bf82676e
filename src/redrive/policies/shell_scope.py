"""What a shell keeps while it runs a script: variables, functions, the folder it is in.

Knows scopes and the seam between running words and running text. Must not know programs.
"""

from collections import ChainMap
from typing import Protocol

from redrive.policies.shell_command import Command
from redrive.policies.shell_paths import TEMPORARY_ROOT, join_path
from redrive.policies.shell_tree import Function
from redrive.policies.shell_words import UNKNOWN, UNREAD, Stream, Value

_GIVEN: dict[str, Value] = {
    "HOME": "~",
    "TMPDIR": TEMPORARY_ROOT,
    "TMP": TEMPORARY_ROOT,
    "IFS": " ",
}


class Files:
    """Texts that a script writes itself, and its pipes, by path."""

    def __init__(self) -> None:
        """Begin without any."""
        self._streams: dict[str, Stream] = {}

    def find(self, cwd: str, name: str) -> Stream | None:
        """Find what a file holds; `None` if the script did not write it."""
        return self._streams.get(join_path(cwd, name))

    def read(self, cwd: str, name: str) -> Stream:
        """Give what a file holds as far as that is known."""
        return self._streams.get(join_path(cwd, name), UNREAD)

    def write(self, cwd: str, name: str, stream: Stream) -> None:
        """Keep what is written to a file."""
        self._streams[join_path(cwd, name)] = stream

    def add_pipe(self, stream: Stream) -> str:
        """Keep what a process substitution writes; give the name of its pipe."""
        name = f"/dev/fd/{len(self._streams) + 63}"
        self._streams[name] = stream
        return name


class Scope:
    """The state of one shell; a subshell's is a child, which leaves its parent's as it was."""

    def __init__(
        self,
        cwd: str,
        values: ChainMap[str, Value] | None = None,
        functions: ChainMap[str, Function] | None = None,
        calls: tuple[str, ...] = (),
    ) -> None:
        """Begin in folder `cwd`; `calls` are the functions being run."""
        self.cwd = cwd
        self.values: ChainMap[str, Value] = ChainMap(dict(_GIVEN)) if values is None else values
        self.functions: ChainMap[str, Function] = ChainMap() if functions is None else functions
        self.calls = calls

    def child(self) -> "Scope":
        """Make the scope of a subshell; O(depth)."""
        return Scope(self.cwd, self.values.new_child(), self.functions.new_child(), self.calls)

    def look_up(self, name: str) -> Value | None:
        """Give a variable's value; `NAME[@]` all elements of an array; `None` if not known."""
        if name == "PWD":
            return self.cwd
        value = self.values.get(name.removesuffix("[@]"))
        if name in {"@", "*"} or name.endswith("[@]"):
            return value
        if "[" in name:
            return _element(self.values.get(name.partition("[")[0]), name.partition("[")[2][:-1])
        return value[0] if isinstance(value, tuple) and value else value

    def enter(self, folder: str) -> None:
        """Change the folder as `cd` does; an unknown one makes the folder unknown."""
        self.cwd = join_path(self.cwd, folder)


def _element(value: Value | None, index: str) -> Value | None:
    if isinstance(value, tuple) and index.isdecimal() and int(index[:6]) < len(value):
        return value[int(index[:6])]
    return UNKNOWN


class Runner(Protocol):
    """What a program that runs others asks of whoever walks the script."""

    files: Files

    def text(self, source: str, scope: Scope, stdin: Stream) -> Stream:
        """Run a script's text."""

    def words(self, command: Command, scope: Scope) -> Stream:
        """Run a command, wrappers and all."""

    def emit(self, command: Command) -> None:
        """Note a command that is run."""

    def leave_unread(self) -> None:
        """Note that a limit kept some part from being read."""
