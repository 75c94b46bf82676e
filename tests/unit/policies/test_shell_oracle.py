"""Our grammar of bash against a maintained one: where that one reads a text, both see its commands.

The maintained grammar is no part of the guard: on some texts of 64 KiB it needs many seconds and
cannot be stopped, and it takes the word after `2>/dev/null` for a file. As an oracle it is good.
"""

from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
import tree_sitter
import tree_sitter_bash

from redrive.policies.shell_syntax import parse_script
from redrive.policies.shell_tree import Literal, Simple, Word
from tests.unit.policies.test_shell import ASKED, DENIED, HARMLESS

_PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
COMMANDS = [*[command for _, command in (*DENIED, *ASKED)], *HARMLESS]


def theirs(command: str) -> Counter[str] | None:
    """Count the plainly written command names; `None` where the oracle cannot read the text."""
    root = _PARSER.parse(command.encode()).root_node
    if root.has_error:
        return None
    found: Counter[str] = Counter()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        waiting += node.children
        if node.type == "command_name" and [child.type for child in node.children] == ["word"]:
            name = (node.text or b"").decode()
            if "\\" not in name and "{" not in name and name != "time":  # a word of bash itself
                found[name] += 1
    return found


def ours(value: object) -> Iterator[str]:
    """Yield the names of simple commands, wherever in the tree they stand."""
    if isinstance(value, Simple) and value.words:
        yield from _plain(value.words[0])
    if isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from ours(getattr(value, name))
    elif isinstance(value, tuple):
        for item in value:
            yield from ours(item)


def _plain(word: Word) -> Iterator[str]:
    if len(word.parts) == 1 and isinstance(word.parts[0], Literal):
        yield word.parts[0].text


def missed(command: str) -> Counter[str]:
    found = theirs(command)
    if found is None:
        return Counter()
    return found - Counter(ours(parse_script(command)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_the_oracle_sees_is_seen(command):
    assert missed(command) == Counter()


def test_the_oracle_reads_most_of_the_table_and_can_disagree():
    read = [theirs(command) for command in COMMANDS]
    assert sum(found is not None for found in read) > 0.9 * len(read)
    assert theirs("rm -rf x") - Counter(ours(parse_script("echo rm -rf x"))) == Counter(["rm"])
