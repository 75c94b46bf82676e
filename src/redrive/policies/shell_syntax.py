"""The grammar of bash: a source text becomes a tree of simple commands, words and their parts.

Knows quotes, here-documents, compound commands and where words end. Must not know any program, nor
the value of a variable. One cursor moves forward over the text, so the cost is O(n) for whatever
text; a text that is no valid script gives what could be read of it. A generated grammar
(tree-sitter-bash 0.25) was measured and left: it needs 18 s for 64 KiB of NUL and 12 s for a long
broken pipeline, offers no way to stop it, and reads the words after `2>/dev/null` as files.

Source: the POSIX shell grammar and the bash manual, "Shell Grammar" and "Redirections".
"""

import re

from redrive.policies.shell_lexer import NAME, NOTHING, PLAIN, WordReader
from redrive.policies.shell_tree import (
    MAX_NESTING,
    Assignment,
    Function,
    Group,
    Literal,
    Loop,
    Node,
    Parameter,
    Pipeline,
    Redirect,
    Script,
    Simple,
    TooDeepError,
    Word,
)

_END = r"(?=[\s;&|()<>]|\Z)"
_SEPARATOR = re.compile(r"\n|;;&|;;|;&|;|&&|&(?!>)|\|\||\|&|\|")
_RESERVED = re.compile(
    r"(if|then|elif|else|fi|for|select|while|until|do|done|case|esac|in|function|time|coproc"
    rf"|[{{}}!]|\[\[){_END}"
)
_FUNCTION = re.compile(r"([^\s;&|()<>'\"\\$`=#]+)[ \t]*\([ \t]*\)")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]\s'\"$`]*\])?(\+?)=")
_TEST = re.compile(r"\]\]" + _END)
_CLOSERS = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "in"})
_TIME_OPTION = re.compile(rf"(?:-p|--){_END}")
_BRACKETS = re.compile(r"[ \t]*\([ \t]*\)")


def parse_script(source: str, depth: int = 0) -> Script:
    """Parse a script; whatever is left over, such as a stray `)`, is passed over.

    Args:
        source: the text of a script.
        depth: how deep the text itself lies in others.

    Raises:
        TooDeepError: deeper than `MAX_NESTING`.
    """
    return _Parser(source, depth).script(NOTHING)


class _Parser(WordReader):
    """Reads commands."""

    def script(self, until: frozenset[str]) -> Script:
        """Read commands up to a reserved word or sign of `until`, which is not consumed."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise TooDeepError
        items: list[Node] = []
        while not self._ends_script(until):
            start = self.at
            node = self._pipeline()
            if node is not None:
                items.append(node)
            elif self.at == start:
                self.at += 1
        self.depth -= 1
        return Script(tuple(items))

    def _ends_script(self, until: frozenset[str]) -> bool:
        while True:
            self.skip_blanks()
            if self.at >= len(self.source):
                self.read_heredocs()
                return True
            if self.source[self.at] == ")":
                if ")" in until:
                    return True
                self.at += 1
            elif separator := _SEPARATOR.match(self.source, self.at):
                if separator[0].startswith((";;", ";&")) and ";;" in until:
                    return True
                self._separator(separator)
            elif (word := self._reserved()) in _CLOSERS:
                if word in until:
                    return True
                self.at += len(word)
            else:
                return False

    def _separator(self, separator: re.Match[str]) -> None:
        self.at = separator.end()
        if separator[0] == "\n":
            self.read_heredocs()

    def _reserved(self) -> str:
        match = _RESERVED.match(self.source, self.at)
        return match[1] if match else ""

    def _take(self, word: str) -> bool:
        self.skip_lines()
        is_there = self._reserved() == word
        if is_there:
            self.at += len(word)
        return is_there

    def _pipeline(self) -> Node | None:
        stages: list[Node] = []
        while True:
            self.skip_lines()
            while (word := self._reserved()) in {"!", "time", "coproc"}:
                self.at += len(word)
                self.skip_blanks()
                if option := _TIME_OPTION.match(self.source, self.at):
                    self.at = option.end()
            node = self._command()
            if node is not None:
                stages.append(node)
            self.skip_blanks()
            separator = _SEPARATOR.match(self.source, self.at)
            if node is None or separator is None or separator[0] not in {"|", "|&"}:
                break
            self.at = separator.end()
        if len(stages) > 1:
            return Pipeline(tuple(stages))
        return stages[0] if stages else None

    def _command(self) -> Node | None:
        if self.source.startswith("((", self.at) and self.skip_arithmetic():
            return None
        if self.source.startswith("(", self.at):
            self.at += 1
            body = self.script(frozenset({")"}))
            self.at += 1
            return Group((body,), is_subshell=True, redirects=self._redirects())
        word = self._reserved()
        if word == "[[":
            return self._test()
        if word and word not in _CLOSERS:
            self.at += len(word)
            return self._compound(word)
        if word == "" and (function := _FUNCTION.match(self.source, self.at)):
            self.at = function.end()
            return self._function(function[1])
        return self._simple()

    def _compound(self, word: str) -> Node | None:
        match word:
            case "{":
                body = self.script(frozenset({"}"}))
                self._take("}")
                return Group((body,), is_subshell=False, redirects=self._redirects())
            case "if":
                return self._branches()
            case "while" | "until":
                condition = self.script(frozenset({"do"}))
                return self._loop("", (), condition)
            case "for" | "select":
                return self._for()
            case "case":
                return self._case()
            case _:  # function
                self.skip_blanks()
                name = PLAIN.match(self.source, self.at)
                self.at = name.end() if name else self.at
                if brackets := _BRACKETS.match(self.source, self.at):
                    self.at = brackets.end()
                return self._function(name[0] if name else "")

    def _function(self, name: str) -> Node | None:
        self.depth += 1
        if self.depth > MAX_NESTING:
            raise TooDeepError
        self.skip_lines()
        body = self._command()
        self.depth -= 1
        return None if body is None else Function(name, body)

    def _branches(self) -> Node:
        scripts = [self.script(frozenset({"then"}))]
        self._take("then")
        inner = frozenset({"then", "elif", "else", "fi"})
        while True:
            scripts.append(self.script(inner))
            word = self._reserved()
            self.at += len(word)
            if word in {"fi", ""}:
                return Group(tuple(scripts), is_subshell=False, redirects=self._redirects())

    def _loop(self, variable: str, values: tuple[Word, ...], condition: Script) -> Node:
        self._take("do")
        body = self.script(frozenset({"done"}))
        self._take("done")
        return Loop(variable, values, condition, body, self._redirects())

    def _for(self) -> Node:
        self.skip_blanks()
        variable = ""
        if self.source.startswith("((", self.at):
            self.skip_arithmetic()
        elif name := NAME.match(self.source, self.at):
            variable = name[0]
            self.at = name.end()
        values: list[Word] = []
        if self._take("in"):
            while (word := self.word()) is not None:
                values.append(word)
        elif variable:
            values.append(Word((Parameter("@", "", Word(), is_quoted=True),)))
        self.skip_blanks()
        if self.source.startswith(";", self.at):
            self.at += 1
        return self._loop(variable, tuple(values), Script(()))

    def _case(self) -> Node:
        subject = self.word() or Word()
        self._take("in")
        scripts = [Script((Simple((), (Word((Literal(":", is_quoted=False),)), subject), ()),))]
        while not self._take("esac") and self.at < len(self.source):
            self._pattern()
            scripts.append(self.script(frozenset({"esac", ";;"})))
            if separator := _SEPARATOR.match(self.source, self.at):
                self.at = separator.end()
        return Group(tuple(scripts), is_subshell=False, redirects=self._redirects())

    def _pattern(self) -> None:
        while self.at < len(self.source):
            self.skip_blanks()
            if self.source.startswith(")", self.at):
                self.at += 1
                return
            if self.word() is None:
                self.at += 1

    def _test(self) -> Node:
        self.at += 2
        words = [Word((Literal("[[", is_quoted=False),))]
        while self.at < len(self.source):
            self.skip_blanks()
            if end := _TEST.match(self.source, self.at):
                self.at = end.end()
                break
            word = self.word()
            if word is None:
                self.at += 1
            else:
                words.append(word)
        return Simple((), tuple(words), self._redirects())

    def _redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        self.skip_blanks()
        while redirect := self.redirect():
            found.append(redirect)
            self.skip_blanks()
        return tuple(found)

    def _simple(self) -> Node | None:
        assignments: list[Assignment] = []
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blanks()
            if redirect := self.redirect():
                redirects.append(redirect)
            elif not words and (assigned := _ASSIGNMENT.match(self.source, self.at)):
                assignments.append(self._assignment(assigned))
            elif (word := self.word(after=bool(words))) is not None:
                words.append(word)
            else:
                break
        if not (assignments or words or redirects):
            return None
        return Simple(tuple(assignments), tuple(words), tuple(redirects))

    def _assignment(self, match: re.Match[str]) -> Assignment:
        self.at = match.end()
        value: Word | tuple[Word, ...]
        if self.source.startswith("(", self.at):
            self.at += 1
            value = self._array()
        else:
            value = self.joined_word()
        return Assignment(match[1], value, bool(match[2]))

    def _array(self) -> tuple[Word, ...]:
        words: list[Word] = []
        while self.at < len(self.source):
            self.skip_lines()
            if self.source.startswith(")", self.at):
                self.at += 1
                break
            word = self.word()
            if word is None:
                self.at += 1
            else:
                words.append(word)
        return tuple(words)
