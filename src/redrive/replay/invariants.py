"""The four promises of the framework, checked on what a replay saw.

Knows what policies did on which events. Must not know how they were judged.

* `loop_free`: what the framework itself started leads to at most one Notify, and a chain of policy
  actions is at most two deep.
* `breaker_exempt`: muting never touches a gate: it decides the same, muted or not.
* `critical_always_runs`: a critical gate decided on each of its events, also after a fault.
* `permission_monotone`: no action raises the rights of its context.

A promise that nothing put to the test is `not_exercised`: that is no pass.

Source: DESIGN.md §7 "Invariants".
"""

from collections.abc import Iterable, Mapping

import msgspec

from redrive.replay.policy import Action, Allow, Inject, Notify, PolicySpec, Prepare

LOOP_FREE = "loop_free"
BREAKER_EXEMPT = "breaker_exempt"
CRITICAL_ALWAYS_RUNS = "critical_always_runs"
PERMISSION_MONOTONE = "permission_monotone"
INVARIANTS = (LOOP_FREE, BREAKER_EXEMPT, CRITICAL_ALWAYS_RUNS, PERMISSION_MONOTONE)
MAX_DEPTH = 2
MAX_VIOLATIONS = 20


class Tested(msgspec.Struct, frozen=True, gc=False):
    """How often a promise was put to the test, and each time that it was broken, in order."""

    count: int = 0
    violations: tuple[str, ...] = ()


class Sighting(msgspec.Struct, frozen=True):
    """One fire, with what its context allowed.

    Attributes:
        event_ref: where.
        action: what.
        segment: seq of the user message above it; -1 for none.
        depth: recorded policy actions between that message and the event; the event's own included
            where it is one.
        permission: of a call, the recorded decision on it; absent where none is recorded.
        denied_tools: tools denied on its path so far.
    """

    event_ref: str
    action: Action
    segment: int
    depth: int
    permission: str | None = None
    denied_tools: frozenset[str] = frozenset()


def check_loops(sightings: Iterable[Sighting]) -> Tested:
    """Check `loop_free` on the fires of one policy in one session, suppressed ones left out."""
    count, violations = 0, []
    notified: dict[int, int] = {}
    for sighting in sightings:
        if not sighting.depth:
            continue
        count += 1
        if sighting.depth + 1 > MAX_DEPTH:
            violations.append(
                f"{sighting.event_ref}: {sighting.action.word} would be action"
                f" {sighting.depth + 1} of a chain; at most {MAX_DEPTH}"
            )
        if isinstance(sighting.action, Notify):
            notified[sighting.segment] = notified.get(sighting.segment, 0) + 1
            if notified[sighting.segment] > 1:
                violations.append(
                    f"{sighting.event_ref}: Notify {notified[sighting.segment]} about what the"
                    " framework itself started; at most 1"
                )
    return Tested(count, tuple(violations))


def check_rights(sightings: Iterable[Sighting]) -> Tested:
    """Check `permission_monotone` on the matches of one policy in one session."""
    count, violations = 0, []
    for sighting in sightings:
        action = sighting.action
        if isinstance(action, Allow) and sighting.permission is not None:
            count += 1
            if sighting.permission != "allowed":
                violations.append(
                    f"{sighting.event_ref}: allow, where the context had {sighting.permission} it"
                )
        elif isinstance(action, Inject | Prepare) and action.rights:
            count += 1
            raised = sorted(sighting.denied_tools.intersection(action.rights))
            if raised:
                violations.append(
                    f"{sighting.event_ref}: {action.word} gives {', '.join(raised)}, which the"
                    " context had denied"
                )
    return Tested(count, tuple(violations))


def check_muting(answers: Iterable[tuple[str, str, str]]) -> Tested:
    """Check `breaker_exempt` on (event_ref, answer while muted, answer if not) of one gate."""
    count, violations = 0, []
    for event_ref, muted, free in answers:
        count += 1
        if muted != free:
            violations.append(f"{event_ref}: {muted} while muted, {free} otherwise")
    return Tested(count, tuple(violations))


def check_critical(
    spec: PolicySpec, *, n_faults: int, offered: int, undecided: Iterable[str]
) -> Tested:
    """Check `critical_always_runs` of one policy in one session.

    Args:
        spec: the policy.
        n_faults: faults of any policy in the session.
        offered: events of the session that the policy judges.
        undecided: event_refs on which it gave no decision.
    """
    if not spec.critical or not n_faults:
        return Tested()
    violations = [f"{event_ref}: the critical gate gave no decision" for event_ref in undecided]
    return Tested(offered, tuple(violations))


def merge_tested(parts: Iterable[Mapping[str, Tested]]) -> dict[str, Tested]:
    """Add up what single sessions showed, in order."""
    merged = dict.fromkeys(INVARIANTS, Tested())
    for part in parts:
        for name, tested in part.items():
            known = merged[name]
            merged[name] = Tested(
                known.count + tested.count, (*known.violations, *tested.violations)
            )
    return merged


def status_of(tested: Tested) -> str:
    """Give the word of the report."""
    if tested.violations:
        return "fail"
    return "pass" if tested.count else "not_exercised"
