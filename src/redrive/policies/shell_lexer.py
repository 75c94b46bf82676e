"""The words of a shell script: quotes, substitutions, redirections, here-documents.

Knows where words begin and end. Must not know commands; what stands in `$(…)` is read by whoever
derives from `WordReader`. The cursor moves forward only.

Source: the bash manual, "Quoting", "Shell Expansions" and "Redirections".
"""

import re

from redrive.policies.shell_tree import (
    MAX_NESTING,
    Arithmetic,
    Literal,
    Parameter,
    Part,
    Redirect,
    Script,
    Substitution,
    TooDeepError,
    Word,
)

_BLANK = re.compile(r"(?:[ \t\r]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_REDIRECT = re.compile(r"(?:\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|<(?!\()|>(?!\())")
PLAIN = re.compile(r"[^\s'\"\\$`;&|()<>]+")
_QUOTED = re.compile(r"[^\"\\$`]+")
_HERE = re.compile(r"[^\\$`]+")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]")
_BRACED = re.compile(r"([!#]?)([A-Za-z_]\w*|\d+|[@*#?$!-])(\[[^\]]*\])?")
_OPERATION = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//?|\^\^?|,,?|:|@")
_ESCAPES = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|c.|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b"}
_BRACKET = re.compile(r"[()]|\\.|'[^']*'", re.DOTALL)
_TO_BRACE = re.compile(r"[^}'\"\\$`]+")
NOTHING = frozenset[str]()


def decode_ansi(text: str) -> str:
    r"""Decode the escapes of `$'…'`, such as `\x72` or `\n`; an unknown one stays as it is."""
    return _ESCAPES.sub(_decode_escape, text)


def _decode_escape(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] in "xu" and len(escape) > 1:
        return chr(int(escape[1:], 16))
    if escape[0] in "01234567":
        return chr(int(escape, 8) & 0xFF)
    if escape[0] == "c" and len(escape) > 1:
        return chr(ord(escape[1]) & 0x1F)
    return _ESCAPED.get(escape, escape if escape in "\\'\"?" else match[0])


class WordReader:
    """A cursor over one text; `pending` are the here-documents that the next line begins."""

    def __init__(self, source: str, depth: int) -> None:
        """Begin at the start of a text that lies `depth` deep in others."""
        self.source = source
        self.at = 0
        self.depth = depth
        self.pending: list[tuple[Redirect, str, bool]] = []

    def script(self, until: frozenset[str]) -> Script:
        """Read commands up to a reserved word or sign of `until`, which is not consumed."""
        raise NotImplementedError

    def skip_blanks(self) -> None:
        """Step over blanks and a comment."""
        if blank := _BLANK.match(self.source, self.at):
            self.at = blank.end()
        if comment := _COMMENT.match(self.source, self.at):
            self.at = comment.end()

    def skip_lines(self) -> None:
        """Step over blanks and line ends; here-documents are read where a line ends."""
        self.skip_blanks()
        while self.source.startswith("\n", self.at):
            self.at += 1
            self.read_heredocs()
            self.skip_blanks()

    # --- redirections ---

    def redirect(self) -> Redirect | None:
        """Read a redirection; `None` where none begins."""
        match = _REDIRECT.match(self.source, self.at)
        if match is None:
            return None
        self.at = match.end()
        self.skip_blanks()
        start = self.at
        redirect = Redirect(match[0], self.joined_word())
        if match[1] == "<<<":
            redirect.body = redirect.target
        elif match[1] in {"<<", "<<-"}:
            raw = self.source[start : self.at]
            self.pending.append((redirect, raw, match[1] == "<<-"))
        return redirect

    def read_heredocs(self) -> None:
        """Read the texts of the here-documents that the last line began."""
        pending, self.pending = self.pending, []
        for redirect, raw, strips_tabs in pending:
            is_quoted = any(sign in raw for sign in "'\"\\")
            delimiter = "".join(sign for sign in raw if sign not in "'\"\\")
            body = self._heredoc_text(delimiter, strips_tabs=strips_tabs)
            if is_quoted:
                redirect.body = Word((Literal(body, is_quoted=True),))
            else:
                redirect.body = Word(type(self)(body, self.depth).quoted_parts(_HERE))

    def _heredoc_text(self, delimiter: str, *, strips_tabs: bool) -> str:
        lines: list[str] = []
        while self.at < len(self.source):
            end = self.source.find("\n", self.at)
            end = len(self.source) if end < 0 else end
            line = self.source[self.at : end]
            if strips_tabs:
                line = line.lstrip("\t")
            self.at = min(end + 1, len(self.source))
            if line == delimiter:
                break
            lines.append(line + "\n")
        return "".join(lines)

    # --- words ---

    def word(self, *, after: bool = True) -> Word | None:
        """Read the next word; `None` where no word begins."""
        self.skip_blanks()
        if after or self.at >= len(self.source) or self.source[self.at] != "#":
            start = self.at
            word = self.joined_word()
            return word if self.at > start else None
        return None

    def joined_word(self) -> Word:
        """Read a word from here; no parts where none begins."""
        parts: list[Part] = []
        while self.at < len(self.source):
            if plain := PLAIN.match(self.source, self.at):
                self.at = plain.end()
                parts.append(Literal(plain[0], is_quoted=False))
            elif not self._special(parts):
                break
        return Word(tuple(parts))

    def _special(self, parts: list[Part]) -> bool:
        sign = self.source[self.at]
        if sign == "'":
            parts.append(Literal(self._up_to("'", 1), is_quoted=True))
        elif sign == '"':
            self.at += 1
            parts.append(Literal("", is_quoted=True))
            parts.extend(self.quoted_parts(_QUOTED))
            self.at += 1
        elif sign == "\\":
            escaped = self.source[self.at + 1 : self.at + 2]
            if escaped != "\n":
                parts.append(Literal(escaped, is_quoted=True))
            self.at += 2
        elif sign in "$`":
            parts.append(self._dollar(is_quoted=False))
        elif sign in "<>" and self.source.startswith("(", self.at + 1):
            self.at += 2
            parts.append(self._substitution(f"{sign}(", is_quoted=False))
        elif sign == "(" and parts and _is_extended_glob(parts[-1]):
            self.skip_brackets()
            parts.append(Literal("*", is_quoted=False))
        else:
            return False
        return True

    def _up_to(self, closer: str, opener_chars: int) -> str:
        start = self.at + opener_chars
        end = self.source.find(closer, start)
        end = len(self.source) if end < 0 else end
        self.at = end + 1
        return self.source[start:end]

    def quoted_parts(self, plain: re.Pattern[str]) -> tuple[Part, ...]:
        """Read what stands between double quotes, or a here-document's text with `_HERE`."""
        parts: list[Part] = []
        while self.at < len(self.source):
            sign = self.source[self.at]
            if run := plain.match(self.source, self.at):
                self.at = run.end()
                parts.append(Literal(run[0], is_quoted=True))
            elif sign == "\\":
                escaped = self.source[self.at + 1 : self.at + 2]
                kept = "" if escaped and escaped in '$`"\\\n' else "\\"
                text = "" if escaped == "\n" else escaped
                parts.append(Literal(kept + text, is_quoted=True))
                self.at += 2
            elif sign == '"':
                break
            else:
                parts.append(self._dollar(is_quoted=True))
        return tuple(parts)

    def _dollar(self, *, is_quoted: bool) -> Part:
        source, at = self.source, self.at
        if source[at] == "`":
            return self._backquoted(is_quoted=is_quoted)
        if source.startswith("$((", at) and (arithmetic := self._arithmetic()):
            return arithmetic
        if source.startswith("$(", at):
            self.at += 2
            return self._substitution("$(", is_quoted=is_quoted)
        if source.startswith("${", at):
            self.at += 2
            return self._braced(is_quoted=is_quoted)
        if source.startswith("$'", at) and not is_quoted:
            return Literal(decode_ansi(self._ansi_text()), is_quoted=True)
        self.at += 1
        if source.startswith('"', self.at) and not is_quoted:
            return Literal("", is_quoted=True)  # $"…" is a string to translate
        if name := NAME.match(source, self.at):
            text = name[0] if not name[0].isdigit() else name[0][0]
            self.at += len(text)
            return Parameter(text, "", Word(), is_quoted=is_quoted)
        return Literal("$", is_quoted=is_quoted)

    def _ansi_text(self) -> str:
        start = self.at = self.at + 2
        while self.at < len(self.source) and self.source[self.at] != "'":
            self.at += 2 if self.source[self.at] == "\\" else 1
        self.at += 1
        return self.source[start : self.at - 1]

    def _substitution(self, opener: str, *, is_quoted: bool) -> Part:
        script = self.script(frozenset({")"}))
        self.at += 1
        return Substitution(opener, script, is_quoted)

    def _backquoted(self, *, is_quoted: bool) -> Part:
        start = self.at = self.at + 1
        while self.at < len(self.source) and self.source[self.at] != "`":
            self.at += 2 if self.source[self.at] == "\\" else 1
        text = re.sub(r"\\([\\`$])", r"\1", self.source[start : self.at])
        self.at += 1
        return Substitution("$(", type(self)(text, self.depth).script(NOTHING), is_quoted)

    def _arithmetic(self) -> Part | None:
        start = self.at
        self.at += 1
        if not self.skip_arithmetic():
            self.at = start
            return None
        text = self.source[start + 3 : self.at - 2]
        inner = type(self)(text, self._deeper())
        return Arithmetic(inner.quoted_parts(_HERE))

    def _deeper(self) -> int:
        if self.depth >= MAX_NESTING:
            raise TooDeepError
        return self.depth + 1

    def skip_arithmetic(self) -> bool:
        """Step over `((…))`; stay where the brackets do not close as a pair."""
        start = self.at
        self.skip_brackets()
        if self.source[self.at - 2 : self.at] == "))" and self.at <= len(self.source):
            return True
        self.at = start
        return False

    def skip_brackets(self) -> None:
        """Step behind the bracket that closes the next one."""
        level = 0
        for bracket in _BRACKET.finditer(self.source, self.at):
            level += {"(": 1, ")": -1}.get(bracket[0], 0)
            if level == 0 and bracket[0] == ")":
                self.at = bracket.end()
                return
        self.at = len(self.source) + 1

    def _braced(self, *, is_quoted: bool) -> Part:
        match = _BRACED.match(self.source, self.at)
        if match is None:
            self._word_to_brace()
            return Parameter("", "", Word(), is_quoted=is_quoted)
        self.at = match.end()
        prefix, name, index = match[1], match[2], match[3] or ""
        operation = _OPERATION.match(self.source, self.at)
        self.at = operation.end() if operation else self.at
        word = self._word_to_brace()
        how = prefix + (operation[0] if operation else "")
        return Parameter(name + ("[@]" if index in {"[@]", "[*]"} else index), how, word, is_quoted)

    def _word_to_brace(self) -> Word:
        self.depth = self._deeper()
        parts: list[Part] = []
        while self.at < len(self.source) and self.source[self.at] != "}":
            if plain := _TO_BRACE.match(self.source, self.at):
                self.at = plain.end()
                parts.append(Literal(plain[0], is_quoted=False))
            elif not self._special(parts):
                self.at += 1
        self.at += 1
        self.depth -= 1
        return Word(tuple(parts))


def _is_extended_glob(part: Part) -> bool:
    return isinstance(part, Literal) and not part.is_quoted and part.text[-1:] in set("!@+*?")
