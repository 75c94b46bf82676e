"""Starts a command under bubblewrap, whose namespaces end with it.

Does not know whether this bubblewrap confines anything: callers go through
`bubblewrap.run_confined` or `door`, which have that proven first.

Nothing of the caller reaches the process: bubblewrap starts with an empty environment (its own
stays readable in `/proc/1/environ`), its arguments come through a descriptor that it closes (they
would stay readable in `/proc/1/cmdline`), and no other descriptor is inherited but the one that a
`Wiring` names.

Source: DESIGN.md §6; man page of bwrap(1).
"""

import os
import platform
import resource
import secrets
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import cache

from redrive.errors import UsageError
from redrive.sandbox.confinement import ConfinedResult, Confinement, Limits, dump_arguments
from redrive.sandbox.running import (
    LIMITS_REFUSED,
    Launched,
    Run,
    disk_budgets,
    enter_group,
    kill,
    list_limits,
    on_cpus,
    sealed,
    started,
)
from redrive.sandbox.system_calls import dump_filter
from redrive.sandbox.wiring import UNWIRED, Wiring, take_channel

_HELP_TIMEOUT_S = 5.0
# Bubblewrap outside, which waits, and inside, which is the first process there.
_N_OWN_PROCESSES = 2
# What says so is drawn anew for each launch, or the command could say it.
_MARK = "LIMITS_REFUSED"
# Limits are set inside, where the user's other processes do not count. bash knows -u, dash and
# busybox -p. Not 2 on failure: that is a decision to those who run hooks.
_LIMITS_SCRIPT = f"""
{{ ulimit -c 0 && ulimit -t "$1" && ulimit -v "$2" && ulimit -f "$3" && ulimit -n "$4" &&
  {{ ulimit -u "$5" 2>/dev/null || ulimit -p "$5"; }}; }} ||
  {{ echo "${_MARK}" >&2; exit {LIMITS_REFUSED}; }}
unset {_MARK}
shift 5
exec "$@"
"""


# Where glibc counts processors; nothing else of /sys is there.
_CPUS_ONLINE = "/sys/devices/system/cpu/online"


@cache
def read_options(bubblewrap: str) -> str:
    """Read the help text of a bubblewrap, which names the options it knows; empty if it fails."""
    try:
        done = subprocess.run(
            [bubblewrap, "--help"],
            env={},
            capture_output=True,
            timeout=_HELP_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).decode("utf-8", "replace")


def launch(
    bubblewrap: str,
    argv: Sequence[str],
    confinement: Confinement,
    stdin: bytes,
    wiring: Wiring = UNWIRED,
) -> ConfinedResult:
    """Run a command under a bubblewrap of which nothing is proven.

    An exception that comes in between, such as an interrupt, ends the command and all it started.

    Args:
        bubblewrap: path of the program.
        argv: the command and its arguments, looked up inside.
        confinement: what it has.
        stdin: what it reads; then its input is closed.
        wiring: see `Wiring`.

    Raises:
        UsageError: the confinement, the command or the channel is not what it must be.
        ContainmentError: bubblewrap did not start the command, or did not end.
    """
    with ExitStack() as stack:
        channel = take_channel(stack, wiring.channel)
        if not argv or any("\0" in word for word in argv):
            raise UsageError("a command for the sandbox is empty or holds a NUL character")
        arguments = dump_arguments(confinement, read_options(bubblewrap))
        command = ("/bin/sh", "-c", _LIMITS_SCRIPT, "sh", *_limit_words(confinement.limits), *argv)
        # Entered first, so that it is removed when all else has ended.
        group = enter_group(stack, confinement.limits.n_processes + _N_OWN_PROCESSES)
        read_end, write_end = os.pipe()
        status = stack.enter_context(os.fdopen(read_end, "rb", buffering=0))
        # Closed as soon as the child has its own, or the end would never be seen.
        with os.fdopen(write_end, "wb"), ExitStack() as handed:
            descriptors = [write_end, *channel]
            mark = secrets.token_hex(16)
            words = ["--json-status-fd", str(write_end)]
            for option, data, path in _files(confinement):
                descriptors.append(handed.enter_context(sealed(data)))
                words += (option, str(descriptors[-1]), *path)
            marked = ("--setenv", _MARK, mark)
            packed = "\0".join((*words, *arguments, *marked)).encode("utf-8", "surrogateescape")
            descriptors.append(handed.enter_context(sealed(packed)))
            start = (bubblewrap, "--args", str(descriptors[-1]), "--", *command)
            joining = () if group is None else group.joining()
            with on_cpus(confinement.n_cpus):
                process = stack.enter_context(
                    started("bubblewrap", (*joining, *start), descriptors, kill)
                )
        if wiring.channel is not None:
            wiring.channel.close()
        launched = Launched("bubblewrap", process, status, kill, refusal=f"{mark}\n".encode())
        budgets = disk_budgets(confinement)
        return Run(launched, confinement.limits, group, wiring, budgets).finish(stdin)


def _files(confinement: Confinement) -> Iterator[tuple[str, bytes, tuple[str, ...]]]:
    """Yield what bubblewrap reads beside its arguments: option, bytes, path inside if it has one.

    They come before the arguments, which make the root read-only in the end.
    """
    refused_calls = dump_filter(platform.machine())
    if refused_calls is not None:
        yield "--seccomp", refused_calls, ()
    if confinement.n_cpus is not None:
        shown = f"0-{confinement.n_cpus - 1}\n" if confinement.n_cpus > 1 else "0\n"
        yield "--ro-bind-data", shown.encode(), (_CPUS_ONLINE,)


def _limit_words(limits: Limits) -> Iterator[str]:
    # As the shell counts them: address space in kB, files in blocks of 512 bytes.
    units = {resource.RLIMIT_AS: 1024, resource.RLIMIT_FSIZE: 512}
    for kind, value in list_limits(limits):
        yield str(value // units.get(kind, 1))
