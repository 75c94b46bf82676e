"""Replays one session through live policies: walks its paths, and has each policy judge its events.

Knows walks and the standard state. Must not know processes, files or a terminal. Every event is
judged on the state of its own path. Policies know nothing of each other, so each follows a stretch
of events alone.

Source: DESIGN.md §7.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableSequence, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

from msgspec.structs import replace

from redrive.app.policy_judging import LivePolicy
from redrive.app.policy_messages import PolicyOutcome
from redrive.app.policy_outcome import Telling
from redrive.app.policy_recording import Recording
from redrive.app.policy_run import Ask, PolicyRun, Sitting
from redrive.app.policy_soundness import drawn_seqs
from redrive.record.event import Kind
from redrive.replay.policy_event import PolicyEvent
from redrive.replay.policy_state import StandardState
from redrive.replay.standard_fold import FOLDED, fold_standard

_STRETCH = 1000  # events whose standard states are held at once


class Frame(NamedTuple):
    """What is carried along a path: the standard state, and per policy its own values."""

    standard: StandardState
    own: tuple[Mapping[str, Any], ...]


class SessionReplay:
    """One session's replay.

    Args:
        recording: the session.
        policies: in the order of the report.
        ask: answers what only the outside can.
        status: its first word is set before each judgement, so that a watchdog knows whom to blame.
        dropped: numbers of policies left out, with the reason.
        recheck_all: judge every event twice, not only fires and a hundredth.
    """

    def __init__(
        self,
        recording: Recording,
        policies: Sequence[LivePolicy],
        *,
        ask: Ask,
        status: MutableSequence[int],
        dropped: Mapping[int, str],
        recheck_all: bool = False,
    ) -> None:
        self._recording = recording
        self._policies = policies
        count = len(recording)
        drawn = range(count) if recheck_all else drawn_seqs(recording.session_id, count)
        is_asking = any(policy.spec.needs for policy in policies)
        about = recording.inferences() if is_asking else {}
        self._sitting = Sitting(recording, ask, status, drawn, about)
        self._runs = [
            PolicyRun(number, policy, self._sitting, dropped.get(number))
            for number, policy in enumerate(policies)
        ]
        self._is_shown = [policy.reads_standard for policy in policies]
        self._folds = any(self._is_shown)

    def run(self, only: str | None = None) -> tuple[PolicyOutcome, ...]:
        """Replay the session; with `only`, judge nothing but that event."""
        for policy_run in self._runs:
            policy_run.renew()
        self._sitting.only = only
        recording = self._recording
        walk = recording.walk(needs_ends=any(p.reads(Kind.MODEL_RESPONSE) for p in self._policies))
        recording.mark_ends(walk.ends)
        base = Frame(StandardState(), tuple(policy.initial for policy in self._policies))
        if walk.outside:
            base = self._follow(recording.events(walk.outside), base)
        frames: list[Frame] = []
        for run in walk.runs:
            frame = base if run.parent < 0 else frames[run.parent]
            if run.parent < 0 and run.actor != frame.standard.actor:
                frame = Frame(replace(frame.standard, actor=run.actor), frame.own)
            frames.append(self._follow(recording.events(run.seqs), frame))
        tallies = [policy_run.tally for policy_run in self._runs]
        return Telling(recording, walk, self._policies, tallies, self._sitting.status).outcomes()

    def _follow(self, events: Iterable[PolicyEvent], frame: Frame) -> Frame:
        """Have each policy judge events that follow each other; give the state after them."""
        standard, own = frame
        # Whoever reads none of it is shown none, also where it is folded for another policy.
        bare = StandardState(actor=standard.actor)
        for stretch in _stretches(events):
            states, standard = _fold(stretch, standard) if self._folds else ([], standard)
            own = tuple(
                run.follow(zip(stretch, states if shown else repeat(bare), strict=False), values)
                for run, shown, values in zip(self._runs, self._is_shown, own, strict=True)
            )
        return Frame(standard, own)


def _stretches(events: Iterable[PolicyEvent]) -> Iterator[Sequence[PolicyEvent]]:
    if isinstance(events, list) and len(events) <= _STRETCH:
        yield events
        return
    waiting = iter(events)
    while stretch := list(islice(waiting, _STRETCH)):
        yield stretch


def _fold(
    events: Sequence[PolicyEvent], standard: StandardState
) -> tuple[list[StandardState], StandardState]:
    """Give the standard state before each event, and after the last."""
    states = []
    for event in events:
        states.append(standard)
        if event.kind in FOLDED:
            standard = fold_standard(standard, event)
    return states, standard
