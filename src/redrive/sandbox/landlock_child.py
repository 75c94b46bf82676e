"""Starts one command under Landlock and seccomp, and ends with it all that it started.

Run as a script by an interpreter of the host, with the standard library alone: its source is all
that it gets. This process is not confined itself: it forks the one that is, waits for it, and then
ends every process below it. It is their nearest subreaper, so that none can leave its tree. It gets
nothing from them but how they end, and they may neither signal nor trace it.

Usage: landlock_child.py DESCRIPTOR, from which a JSON object is read: `argv`, `environment`, `cwd`,
`channel` (a descriptor that the command inherits, or null), `limits` (pairs for `setrlimit`),
`handled` (three numbers: what the rule set restricts of files, TCP and scopes), `rules` (pairs of
path and rights), `filter` (instructions in base64), `status` (the descriptor to write to), `parent`
(process that it ends with).

Source: landlock(7); seccomp(2); capabilities(7); prctl(2).
"""

import base64
import ctypes
import errno
import json
import os
import resource
import signal
import stat
import sys
import time
from contextlib import suppress
from typing import Any

EXIT_FAILED, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND, FIRST_SIGNAL_CODE = 125, 126, 127, 128
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_RULE_PATH_BENEATH = 1
# Of prctl(2).
_SET_DEATH_SIGNAL, _SET_DUMPABLE, _SET_SECCOMP, _DROP_BOUND, _SET_SECURE = 1, 4, 22, 24, 28
_SET_SUBREAPER, _SET_NO_NEW_PRIVILEGES, _AMBIENT = 36, 38, 47
_FILTER_MODE, _AMBIENT_CLEAR_ALL = 2, 4
# Root is nobody special any more, nor becomes so again: all of securebits with their locks, but for
# the one that keeps rights over a change of user.
_SECURE_BITS = 0xEF
_CAPABILITY_VERSION = 0x20080522
_N_CAPABILITIES = 64
# What may be asked for a file; the others are for folders alone.
_FILE_RIGHTS = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000
_END_TIMEOUT_S = 4.0
_TICK_S = 0.005
_LINE_BYTES = 8

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class NotConfinedError(Exception):
    """The kernel did not do what confines; nothing was run."""


class _RulesetAttributes(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("lines", ctypes.c_char_p))


def _done(result: int, what: str) -> int:
    if result < 0:
        raise NotConfinedError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def _call(what: str, number: int, *words: Any) -> int:
    return _done(int(_libc.syscall(ctypes.c_long(number), *words)), what)


def _prctl(option: int, *words: int) -> int:
    padded = (*words, 0, 0, 0, 0)[:4]
    return int(_libc.prctl(ctypes.c_int(option), *map(ctypes.c_ulong, padded)))


def restrict_files(handled: list[int], rules: list[list[Any]]) -> None:
    """Apply Landlock to this process and its children to come.

    Raises:
        NotConfinedError: the kernel does not do it.
        OSError: a path cannot be opened.
    """
    attributes = _RulesetAttributes(*handled)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = _call("landlock", _CREATE_RULESET, ctypes.byref(attributes), size, ctypes.c_uint(0))
    for path, rights in rules:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
            rule = _PathBeneath(rights if is_folder else rights & _FILE_RIGHTS, descriptor)
            words = (ctypes.c_int(_RULE_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint(0))
            _call(f"landlock at {path}", _ADD_RULE, ctypes.c_int(ruleset), *words)
        finally:
            os.close(descriptor)
    _call("landlock", _RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint(0))
    os.close(ruleset)


def drop_rights() -> None:
    """Give up every capability for good, also as root.

    Raises:
        NotConfinedError: some are left.
    """
    # Only who may give rights away can lower the bound; nobody else has any to gain, as no program
    # raises them any more.
    for capability in range(_N_CAPABILITIES):
        if _prctl(_DROP_BOUND, capability) != 0:
            break
    _prctl(_AMBIENT, _AMBIENT_CLEAR_ALL)
    _prctl(_SET_SECURE, _SECURE_BITS)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _done(_libc.capset(header, nothing), "capset")
    left = (ctypes.c_uint32 * 6)()
    _done(_libc.capget(header, left), "capget")
    if any(left):
        raise NotConfinedError("capset: rights are left")


def filter_calls(lines: bytes) -> None:
    """Refuse system calls from now on.

    Raises:
        NotConfinedError: the kernel does not do it.
    """
    program = _Program(len(lines) // _LINE_BYTES, lines)
    address = ctypes.cast(ctypes.byref(program), ctypes.c_void_p).value or 0
    _done(_prctl(_SET_SECCOMP, _FILTER_MODE, address), "seccomp")


def confine(setup: dict[str, Any], kept: set[int]) -> None:
    """Turn this process into the one that executes the command.

    Args:
        setup: see above.
        kept: descriptors that stay open beside input and outputs.

    Raises:
        NotConfinedError: the kernel does not do a part of it.
        OSError: the same, or a path is not there.
    """
    os.setsid()
    _done(_prctl(_SET_DEATH_SIGNAL, signal.SIGKILL), "prctl")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    first = 3
    for descriptor in sorted(kept):
        os.closerange(first, descriptor)
        first = descriptor + 1
    os.closerange(first, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        os.chdir(setup["cwd"])
    except OSError as error:
        raise NotConfinedError(f"chdir to {setup['cwd']}: {error.strerror}") from error
    _done(_prctl(_SET_NO_NEW_PRIVILEGES, 1), "prctl")
    drop_rights()
    restrict_files(setup["handled"], setup["rules"])
    for kind, value in setup["limits"]:
        resource.setrlimit(kind, (value, value))
    filter_calls(base64.b64decode(setup["filter"]))


def execute(argv: list[str], environment: dict[str, str]) -> int:
    """Execute the command; only if it cannot be is there an exit code to give."""
    try:
        os.execvpe(argv[0], argv, environment)  # noqa: S606 - that is what this is for
    except OSError as error:
        is_there = error.errno not in (errno.ENOENT, errno.ENOTDIR)
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode("utf-8", "surrogateescape"))
        return EXIT_NOT_EXECUTABLE if is_there else EXIT_NOT_FOUND


def run_child(setup: dict[str, Any], failing: int) -> int:
    """Be the confined process; say through `failing` why it cannot be, else close it."""
    channel = setup["channel"]
    try:
        if channel is not None:
            os.set_inheritable(channel, True)  # noqa: FBT003 - its only argument
        confine(setup, {failing} if channel is None else {failing, channel})
    except (OSError, ValueError, NotConfinedError) as error:
        os.write(failing, str(error).encode("utf-8", "replace"))
        return EXIT_FAILED
    return execute(setup["argv"], setup["environment"])


# --- the process that waits ---------------------------------------------------------------------
def _parents() -> dict[int, int]:
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError):
                found[int(name)] = _parent_of(int(name))
    return found


def _parent_of(process: int) -> int:
    with open(f"/proc/{process}/stat", "rb") as file:
        # Its name stands in parentheses, and may hold some.
        return int(file.read().rpartition(b")")[2].split()[1])


def _descendants() -> dict[int, int]:
    """Give each process below this one, with its parent."""
    parents = _parents()
    found: dict[int, int] = {}
    below = {os.getpid()}
    while below:
        below = {child for child, parent in parents.items() if parent in below} - found.keys()
        found |= {child: parents[child] for child in below}
    return found


def _signal(process: int, parent: int, number: int) -> None:
    """Signal a process if it still is the one that was listed: numbers are used again."""
    with suppress(OSError):
        handle = os.pidfd_open(process)
        try:
            if _parent_of(process) == parent:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _reap() -> bool:
    """Take the ends of children that have ended; say whether there are none left, ended or not."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                return False
        except ChildProcessError:
            return True


def end_all() -> bool:
    """End every process below this one; all that can multiply are stopped first.

    Returns:
        Whether none is left: the kernel says so.
    """
    deadline_s = time.monotonic() + _END_TIMEOUT_S
    stopped: set[int] = set()
    while not _reap():
        if time.monotonic() > deadline_s:
            return False
        listed = _descendants()
        new = listed.keys() - stopped
        for process in new:
            _signal(process, listed[process], signal.SIGSTOP)
        stopped |= new
        if not new:
            for process, parent in listed.items():
                _signal(process, parent, signal.SIGKILL)
            stopped.clear()
            time.sleep(_TICK_S)
    return True


def _wait(child: int) -> int | None:
    """Wait for the command's end, and give its exit status; `None` if asked to end it."""
    while True:
        if signal.sigwait((signal.SIGTERM, signal.SIGCHLD)) == signal.SIGTERM:
            return None
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
                if ended[0] == child:
                    code = os.waitstatus_to_exitcode(ended[1])
                    return code if code >= 0 else FIRST_SIGNAL_CODE - code


def _tell(status: int, key: str, value: int) -> None:
    os.write(status, f"{json.dumps({key: value})}\n".encode())


def main(arguments: list[str]) -> int:
    """Run the command and end everything; 0 if it was started and all has ended."""
    with open(int(arguments[0]), encoding="utf-8") as file:
        setup = json.load(file)
    # Blocked, so that they are waited for; not even the first one can be missed.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
    try:
        for option, word in ((_SET_DUMPABLE, 0), (_SET_SUBREAPER, 1), (_SET_DEATH_SIGNAL, 15)):
            _done(_prctl(option, word), "prctl")
    except NotConfinedError as error:
        sys.stderr.write(str(error))
        return EXIT_FAILED
    if os.getppid() != setup["parent"]:
        return EXIT_FAILED
    os.set_inheritable(setup["status"], False)  # noqa: FBT003 - its only argument
    _tell(setup["status"], "child-pid", os.getpid())
    failed, failing = os.pipe()
    child = os.fork()
    if child == 0:
        code = EXIT_FAILED
        try:
            code = run_child(setup, failing)
        finally:
            os._exit(code)
    os.close(failing)
    if setup["channel"] is not None:
        os.close(setup["channel"])
    with open(failed, "rb") as pipe:
        reason = pipe.read()
    ended = None if reason else _wait(child)
    if not end_all():
        sys.stderr.write("a process did not end")
        return EXIT_FAILED
    sys.stderr.write(reason.decode("utf-8", "replace"))
    if ended is not None:
        _tell(setup["status"], "exit-code", ended)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
