"""What became of a run, of all that was seen of it.

Pure. The first that holds counts: interrupted, at a ceiling, refused something, ended from outside,
its own end. A run that failed behind a model that refused or failed says nothing of its workflow.

Source: DESIGN.md §6; `redrive.replay.trial_values.Outcome`.
"""

import signal

from redrive.app.trial_processes import describe_end
from redrive.app.trial_state import RunState
from redrive.capture.ports import Outcome as ExchangeOutcome
from redrive.replay.trial_values import Outcome
from redrive.sandbox.confinement import ConfinedResult

_SHOWN_CHARS = 500
# A workflow that runs into its own limits says so itself, as far as it can.
_LIMIT_ERRORS = ("MemoryError", "OverflowError")
# The kernel ends with 9 what is over its processor time, or takes memory that is not there.
_LIMIT_SIGNALS = (signal.SIGXCPU, signal.SIGXFSZ, signal.SIGKILL)
_UNFINISHED = (Outcome.CANCELLED, Outcome.CEILING)
# No key, no money, no such model, too slow, too often: what the endpoint says of whoever asks, and
# not of what is asked.
_REFUSALS = frozenset((401, 402, 403, 404, 408, 425, 429))
_FIRST_FAULT = 500


def judge_run(state: RunState, result: ConfinedResult | None) -> tuple[Outcome, str | None]:
    """Say how a run ended, and in one line why; `result` is of its first process."""
    outcome, error = _own_outcome(state, result)
    if state.denied and outcome not in _UNFINISHED:
        first = state.denied[0]
        return Outcome.DENIED, one_line(f"{first.tool}: {first.reason}")
    if outcome is Outcome.FAILED and state.model_fault is not None:
        return Outcome.MODEL, one_line(f"{state.model_fault}; {error}")
    return outcome, error


def find_fault(model: str, status: int, outcome: ExchangeOutcome) -> str | None:
    """Say why an exchange gave no answer, where that was not the request's fault.

    Args:
        model: its name in the plan.
        status: 0 where none came.
        outcome: how the exchange ended; what the agent broke off itself is no fault.
    """
    if outcome is ExchangeOutcome.CANCELLED:
        return None
    if status >= _FIRST_FAULT or status in _REFUSALS:
        return f"the model {model} answered {status}"
    if not status:
        return f"the model {model} gave no answer"
    return None if outcome is ExchangeOutcome.COMPLETE else f"the model {model} gave half an answer"


def _own_outcome(state: RunState, result: ConfinedResult | None) -> tuple[Outcome, str | None]:
    if state.why is not None:
        return state.why
    # What was refused a process, or room, may have answered otherwise than it would have.
    if result is not None and (result.is_process_flood or result.is_disk_full):
        return Outcome.LIMIT, describe_end(result)
    end = state.end
    if end is not None and end.failure is None:
        return Outcome.COMPLETE, None
    if end is not None and end.failure is not None:
        failure = end.failure
        where = f" ({failure.where})" if failure.where else ""
        kind = Outcome.LIMIT if failure.type in _LIMIT_ERRORS else Outcome.FAILED
        return kind, one_line(f"{failure.type}: {failure.message}{where}")
    if result is None:
        return Outcome.FAILED, "it was not started"
    if result.is_timeout:
        return Outcome.TIMEOUT, describe_end(result)
    if result.signal in _LIMIT_SIGNALS:
        return Outcome.LIMIT, describe_end(result)
    return Outcome.FAILED, one_line(f"it ended without an output: {describe_end(result)}")


def one_line(text: str) -> str:
    """Put a text on one line of bounded length."""
    return " ".join(text.split())[:_SHOWN_CHARS]
