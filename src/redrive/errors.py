"""Every exception of redrive, as one tree.

Findings (a divergence, a gap, a fire) are values with a place in a report. An exception says that
the caller or the input is wrong. `EXIT_CODES` in `redrive.cli.exits` gives each branch its code::

    RedriveError
    ├── UsageError           2  no such file, unknown format, ambiguous prefix, bad spec
    ├── ReplayClosureError   3  attribution was asked of an open trajectory; carries the gaps
    ├── IneligibleError      4  a workflow reaches an unsafe tool; carries tool and chain
    ├── CeilingError         5  a spend or count ceiling was reached
    ├── RecordError          6  a recording is unreadable, empty or foreign
    │   └── UnreadableError  6  … and may hold a session, if it could be read
    ├── StoreError           6  a store is newer, locked, damaged or read-only
    ├── ModelError           6  a model refused, failed, or gave half an answer
    ├── PluginError          6  a plug-in is missing or failed to load
    ├── ContainmentError     7  an effect escaped, or an invariant was violated
    └── TamperError          7  stored evidence does not match its digests
    EffectDenied (BaseException)  an agent's `except Exception` cannot swallow it
    RerunStopped (BaseException)  an agent asked for something else than the record holds
    PurityFault  (BaseException)  a policy reached for a clock, dice, a file, the network, …

This module knows no other module of redrive.
"""

from collections.abc import Sequence

_QUOTED_CHARS = 100


def quote(text: str) -> str:
    """Quote a name or a pattern for a message; a long one is cut, and its length said."""
    if len(text) <= _QUOTED_CHARS:
        return repr(text)
    return f"{text[:_QUOTED_CHARS]!r}… ({len(text)} characters)"


class RedriveError(Exception):
    """Root of what redrive raises.

    Args:
        message: one line: what was found, where (file:line, step), what was expected.
        where: the place, such as `session.jsonl:12` or `step 41`; empty if the message says it.
        hint: what to do about it; empty if there is nothing useful to say.
    """

    exit_code = 6

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint


class UsageError(RedriveError):
    """The command or call is wrong: no such file, unknown format, ambiguous prefix, bad spec."""

    exit_code = 2


class ReplayClosureError(RedriveError):
    """Attribution was asked of an open trajectory.

    Args:
        message: one line naming the first open step and its class.
        gaps: every missing input as (step, class, what), step ascending.
    """

    exit_code = 3

    def __init__(
        self, message: str, *, gaps: Sequence[tuple[int, str, str]] = (), hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.gaps = tuple(gaps)


class IneligibleError(RedriveError):
    """A workflow reaches a tool that must not run.

    Args:
        message: one line naming the tool.
        tool: the tool id after aliases are resolved.
        chain: workflow → … → tool, outermost first.
        refusals: every refused (tool, effect, chain, reason), in the order found.
    """

    exit_code = 4

    def __init__(
        self,
        message: str,
        *,
        tool: str = "",
        chain: Sequence[str] = (),
        refusals: Sequence[tuple[str, str, tuple[str, ...], str]] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.tool = tool
        self.chain = tuple(chain)
        self.refusals = tuple(refusals)


class CeilingError(RedriveError):
    """A ceiling was reached; what was done so far is stored."""

    exit_code = 5


class RecordError(RedriveError):
    """A recording cannot be read, is empty, or is of another format."""


class UnreadableError(RecordError):
    """A file may hold a recording, but cannot be read: no permission, a failing disk, damage."""


class StoreError(RedriveError):
    """A store cannot be used: newer, locked, damaged or read-only."""


class ModelError(RedriveError):
    """A model refused, failed, or gave half an answer."""


class PluginError(RedriveError):
    """A plug-in is missing or failed to load."""


class ContainmentError(RedriveError):
    """An effect escaped its sandbox, or an invariant was violated."""

    exit_code = 7


class TamperError(RedriveError):
    """Stored evidence does not match its digests."""

    exit_code = 7


class EffectDenied(BaseException):
    """An unsafe effect was denied; not an `Exception`, so agent code cannot swallow it."""


class RerunStopped(BaseException):
    """An agent that runs again asked for something else than the record holds, or the end came.

    Not an `Exception`, so the agent cannot swallow it and go on. What differs is in the rerun's
    report; the message is one line of it.
    """


class PurityFault(BaseException):
    """A policy did what it may not do; not an `Exception`, so the policy cannot swallow it.

    Args:
        what: the kind and the function, such as `clock: time.time`.
        where: `file:line` of the policy; empty if no frame of a policy was running.
    """

    def __init__(self, what: str, *, where: str = "") -> None:
        super().__init__(f"{where}: {what}" if where else what)
        self.what = what
        self.where = where
