"""What programs write to a pipe, as far as it follows from their words.

Knows `echo` and its kin, and which programs fetch from the network. Must not run anything.
"""

import base64
import binascii
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from redrive.policies.shell_command import Command, read_options
from redrive.policies.shell_lexer import decode_ansi
from redrive.policies.shell_paths import MADE_TEMPORARY
from redrive.policies.shell_scope import Files
from redrive.policies.shell_words import DOWNLOADED, SILENT, UNREAD, Stream

_MAX_ITEMS = 256
# What stands for the names that `docker ps -aq` lists.
EVERY_CONTAINER = "every-container"


def write_output(files: Files, command: Command) -> Stream:
    """Give what a command writes; what it writes to files is put into `files`."""
    if command.program in _DOWNLOAD_VALUES and (name := downloaded_file(command)):
        files.write(command.cwd, name, Stream(is_download=True))
    if command.program == "tee":
        for name in read_options(command.words[1:]).operands:
            files.write(command.cwd, name, command.stdin)
    writer = _WRITERS.get(command.program)
    return UNREAD if writer is None else writer(command, files)


def _echo(command: Command, files: Files) -> Stream:
    del files
    words = list(command.words[1:])
    flags = ""
    while words and words[0][:1] == "-" and words[0][1:] and set(words[0][1:]) <= set("neE"):
        flags += words.pop(0)
    text = " ".join(words)
    text = decode_ansi(text) if "e" in flags else text
    return _text_stream(text if "n" in flags else text + "\n")


def _printf(command: Command, files: Files) -> Stream:
    del files
    words = [word for word in command.words[1:] if word != "--"]
    if not words or words[0] == "-v":
        return SILENT
    layout = decode_ansi(words[0])
    places = layout.count("%s") + layout.count("%b") + layout.count("%q")
    if layout.replace("%%", "").count("%") != places:
        return UNREAD
    arguments = words[1:] or [""]
    rounds = -(-len(arguments) // places) if places else 1
    pieces = layout.replace("%b", "%s").replace("%q", "%s").split("%s")
    waiting = iter(arguments)
    written: list[str] = []
    for _ in range(min(rounds, _MAX_ITEMS)):
        written.append(pieces[0])
        written.extend(next(waiting, "") + piece for piece in pieces[1:])
    return _text_stream("".join(written).replace("%%", "%"))


def _text_stream(text: str) -> Stream:
    return Stream(None if DOWNLOADED in text else text, DOWNLOADED in text)


def _cat(command: Command, files: Files) -> Stream:
    options = read_options(command.words[1:])
    if not options.operands:
        return command.stdin
    if len(options.operands) > 1:
        return UNREAD
    name = options.operands[0]
    return command.stdin if name == "-" else files.read(command.cwd, name)


def _decode_base64(command: Command, files: Files) -> Stream:
    options = read_options(command.words[1:], ("-w", "-i", "-o", "--wrap"))
    stdin = _cat(replace(command, words=("cat", *options.operands)), files)
    if stdin.text is None or not options.has("-d", "-D", "--decode"):
        return Stream(is_download=stdin.is_download)
    try:
        return Stream(base64.b64decode(stdin.text, validate=False).decode("utf-8", "replace"))
    except (binascii.Error, ValueError):
        return UNREAD


def _download(command: Command, files: Files) -> Stream:
    del files
    return SILENT if downloaded_file(command) else Stream(is_download=True)


def downloaded_file(command: Command) -> str:
    """Name the file that `curl` or `wget` writes; empty if it writes to its output."""
    options = read_options(command.words[1:], _DOWNLOAD_VALUES[command.program])
    names = options.values(*_DOWNLOAD_FILES[command.program])
    if names:
        return "" if names[-1] in {"-", "/dev/stdout"} else names[-1]
    if command.program == "curl" and not options.has("-O", "--remote-name"):
        return ""
    address = options.operands[-1] if options.operands else ""
    return address.partition("?")[0].rpartition("/")[2] or "index.html"


def _pass(command: Command, files: Files) -> Stream:
    del files
    return Stream(is_download=command.stdin.is_download)


def _tee(command: Command, files: Files) -> Stream:
    del files
    return command.stdin


def _same_paths(command: Command, files: Files) -> Stream:
    del files
    return Stream(None, command.stdin.is_download, command.stdin.paths)


def _make_temporary(command: Command, files: Files) -> Stream:
    del command, files
    return Stream(MADE_TEMPORARY + "\n")


def _folder(command: Command, files: Files) -> Stream:
    del files
    return Stream(command.cwd + "\n")


def _containers(command: Command, files: Files) -> Stream:
    """Give what `docker ps -q` lists; a filter may leave one alone."""
    del files
    options = read_options(command.words[1:], ("-n", "--last", "-H", "-c"))
    operands = options.operands[1:] if options.operands[:1] == ("container",) else options.operands
    is_listed = operands[:1] in {("ps",), ("ls",)} and options.has("-q", "--quiet")
    is_filtered = options.has("-f", "--filter", "-n", "--last", "-l", "--latest")
    return Stream(EVERY_CONTAINER + "\n") if is_listed and not is_filtered else UNREAD


_DOWNLOAD_VALUES = {
    "curl": (
        *("-o", "-H", "-d", "-X", "-u", "-A", "-b", "-c", "-e", "-F", "-m", "-x", "-w", "-T"),
        *("--output", "--header", "--data"),
    ),
    "wget": (
        *("-O", "-o", "-P", "-U", "-T", "-t"),
        *("--output-document", "--header", "--directory-prefix"),
    ),
}
_DOWNLOAD_FILES = {"curl": ("-o", "--output"), "wget": ("-O", "--output-document")}
_Writer = Callable[[Command, Files], Stream]
_WRITERS: Mapping[str, _Writer] = {
    "echo": _echo,
    "printf": _printf,
    "cat": _cat,
    "tee": _tee,
    "base64": _decode_base64,
    "curl": _download,
    "wget": _download,
    "mktemp": _make_temporary,
    "pwd": _folder,
    **dict.fromkeys(("docker", "podman", "nerdctl"), _containers),
    **dict.fromkeys(("sed", "tr", "gunzip", "zcat", "gzip", "head", "tail"), _pass),
    **dict.fromkeys(("xz", "bzip2", "zstd", "openssl", "iconv", "dos2unix", "awk"), _pass),
    **dict.fromkeys(("sort", "uniq", "grep"), _same_paths),
}
