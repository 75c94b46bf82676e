"""Drives a shadow replay to its end, with something that answers its commands.

Knows the machine's door. Must not know who answers.

Source: DESIGN.md §2 "Replays are stepped values".
"""

from collections.abc import Callable
from typing import assert_never

from redrive.record.evidence import find_nearest
from redrive.record.session import EventReader
from redrive.replay.exchange import (
    DEFAULT_OPTIONS,
    AskModel,
    Done,
    Evidence,
    FindNearest,
    Nearest,
    Reply,
    ServeEvidence,
    ShadowOptions,
    ShadowRun,
)
from redrive.replay.ports import ModelReply
from redrive.replay.recorded import RecordedRun
from redrive.replay.shadow import start, step

Replier = Callable[[AskModel | ServeEvidence | FindNearest], Reply]


def drive(
    recorded: RecordedRun, replier: Replier, options: ShadowOptions = DEFAULT_OPTIONS
) -> ShadowRun:
    """Step a run to its end.

    Args:
        recorded: the path replayed against.
        replier: answers each command; what it raises ends the run and reaches the caller.
        options: how the run is made.
    """
    state, command = start(recorded, options)
    while not isinstance(command, Done):
        state, command = step(state, replier(command))
    return command.run


def reply_from(reader: EventReader, decide: Callable[[AskModel], ModelReply]) -> Replier:
    """Make a replier of stored events and of something that decides.

    Args:
        reader: gives stored events; a seq that it cannot give is evidence that cannot be read.
        decide: answers for the model.
    """

    def reply(command: AskModel | ServeEvidence | FindNearest) -> Reply:
        match command:
            case AskModel():
                return decide(command)
            case ServeEvidence():
                wanted = () if command.cell.result is None else (command.cell.result,)
                return Evidence(next(reader.read_events(wanted), None))
            case FindNearest():
                missing = command.missing
                calls = reader.read_events(command.candidates)
                return Nearest(find_nearest(missing.tool, missing.arguments, calls))
            case _ as never:
                assert_never(never)

    return reply
