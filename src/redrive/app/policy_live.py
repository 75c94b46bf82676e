"""Decides live, as a hook command of Claude Code, with the very code that was replayed.

Knows the hook protocol, transcripts and the store. Must not know a terminal. A version of a policy
without a stored replay report is refused: nobody has seen what it does.

Source: DESIGN.md §7 "Live".
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Raw, UnsetType
from msgspec.structs import replace

from redrive import canonical
from redrive.app.policy_loading import scan_policy
from redrive.app.policy_messages import Answer, Outside, PolicyCode, PolicyOutcome
from redrive.app.policy_replay import LivePool
from redrive.app.sources import FileSource
from redrive.errors import PluginError, StoreError
from redrive.importers.claude_code import IMPORTER
from redrive.importers.draft import FileTally, event_of
from redrive.policies.hook_protocol import Action, HookInput, dump_decision, dump_input
from redrive.record.event import (
    MAIN_ACTOR,
    Event,
    Kind,
    ModelResponse,
    Source,
    ToolCall,
    ToolResult,
    dump_payload,
    raw_of,
)
from redrive.record.session import build_index
from redrive.record.trajectory import find_head
from redrive.replay.policy import Lane, PolicySpec
from redrive.stores.port import HookRow, Store

KINDS = {
    "PreToolUse": Kind.TOOL_CALL,
    "PostToolUse": Kind.TOOL_RESULT,
    "Stop": Kind.MODEL_RESPONSE,
}
_LIVE_NODE = "redrive-live"
_GATE_ACTIONS = {"allow": Action.ALLOW, "ask": Action.ASK, "deny": Action.DENY}


class LiveDecision(msgspec.Struct, frozen=True):
    """What was decided about one event.

    Attributes:
        policy, version, digest: which code decided.
        action: the policy's word; `none` where it does not act.
        reason: why.
        is_suppressed: whether a cooldown held it back.
        is_unreplayed: whether no replay report of this version is stored.
        output: standard output of the hook command.
        problem: why the store did not take the decision; empty if it did.
    """

    policy: str
    version: str
    digest: str
    action: str
    reason: str
    is_suppressed: bool
    is_unreplayed: bool
    output: bytes
    problem: str = ""


def decide_live(
    store: Store,
    code: PolicyCode,
    hook_input: HookInput,
    *,
    allow_unreplayed: bool = False,
    answer: Callable[[Outside], Answer] | None = None,
) -> LiveDecision:
    """Judge the event that Claude Code calls about.

    Args:
        store: holds the replay reports, and takes the decision.
        code: the policy.
        hook_input: what Claude Code said.
        allow_unreplayed: decide although nobody has replayed this version.
        answer: computes inferences; absent: none are.

    Raises:
        PluginError: the policy does not load, or breaks down, or its version was never replayed.
    """
    # A version whose report is stored was scanned when it was replayed.
    is_known = any(row.digest == code.digest for row in store.policies.reports())
    code = code if is_known else scan_policy(code)
    if code.findings:
        first = code.findings[0]
        raise PluginError(
            f"policy {code.attribute}: {first.what}", where=f"{first.file}:{first.line}"
        )
    pool = LivePool(code, answer)
    try:
        spec = pool.spec
        is_unreplayed = store.policies.find_report(spec.name, spec.version, code.digest) is None
        if is_unreplayed and not allow_unreplayed:
            raise PluginError(
                f"policy {spec.name} {spec.version} has no stored replay report",
                hint=f"redrive policy replay --policy {code.spec}; --unreplayed decides without",
            )
        outcome = _judge(pool, spec, hook_input)
    finally:
        pool.close()
    decision = _decide(code, spec, hook_input, outcome, is_unreplayed=is_unreplayed)
    return replace(decision, problem=_record(store, decision, hook_input))


def _judge(pool: LivePool, spec: PolicySpec, hook_input: HookInput) -> tuple[str, str, bool]:
    """Give (action, reason, suppressed) about the event."""
    kind = KINDS.get(hook_input.hook_event_name)
    if kind is None or kind not in spec.kinds:
        return "none", "", False
    has_state = spec.uses_standard_state or bool(spec.reducers) or spec.lane is Lane.OBSERVER
    events = _read_transcript(hook_input) if has_state else []
    event = _find_event(events, hook_input, kind)
    if event is None:
        event = _make_event(events, hook_input, kind)
        events = [*events, event]
    is_alone = spec.lane is Lane.GATE
    lines = [canonical.encode(one).decode() for one in events]
    outcome = pool.judge(event.session_id, lines, event.id if is_alone else None)
    ref = f"{event.session_id}#{event.id}"
    _raise_fault(spec, outcome, ref)
    for fire in outcome.fires:
        if fire.event_ref == ref:
            return fire.action, fire.reason, fire.cooldown_suppressed
    return "none", "", False


def _raise_fault(spec: PolicySpec, outcome: PolicyOutcome, ref: str) -> None:
    for fault in outcome.faults:
        if fault.event_ref == ref or fault.net in ("watchdog", "limits"):
            raise PluginError(f"policy {spec.name}: {fault.net}: {fault.what}", where=fault.where)
    for cannot in outcome.cannot:
        if cannot.event_ref == ref:
            raise PluginError(f"policy {spec.name} cannot judge this: {cannot.reason}")
    if outcome.stopped is not None:
        raise PluginError(f"policy {spec.name}: {outcome.stopped}")


def _read_transcript(hook_input: HookInput) -> list[Event]:
    """Read the session so far; an unreadable transcript is an empty one."""
    path = hook_input.transcript_path
    if isinstance(path, UnsetType) or not Path(path).is_file():
        return []
    source = FileSource(Path(path))
    drafts = IMPORTER.project(source, FileTally())
    return [event_of(draft, draft.session, seq, source.sha256) for seq, draft in enumerate(drafts)]


def _find_event(events: Sequence[Event], hook_input: HookInput, kind: Kind) -> Event | None:
    """Find the event in the transcript, if it is there already."""
    if kind is not Kind.MODEL_RESPONSE:
        call_id = _given(hook_input.tool_use_id) or None
        found = [e for e in events if e.kind is kind and e.call_id == call_id]
        return found[-1] if found else None
    answers = [e for e in events if e.kind is kind and e.actor == MAIN_ACTOR]
    said = hook_input.last_assistant_message
    if not answers or isinstance(said, UnsetType):
        return answers[-1] if answers else None
    is_there = said in msgspec.json.decode(bytes(answers[-1].payload), type=_Text).text
    return answers[-1] if is_there else None


class _Text(msgspec.Struct):
    text: str = ""


def _make_event(events: Sequence[Event], hook_input: HookInput, kind: Kind) -> Event:
    """Make the event that the transcript does not hold yet, below its head."""
    session_id = events[0].session_id if events else f"claude_code:{_given(hook_input.session_id)}"
    parent = None
    if events:
        index = build_index(session_id, lambda: events)
        head = find_head(index)
        parent = None if head is None else index.node_ids[head]
    return Event(
        id=_LIVE_NODE,
        session_id=session_id,
        seq=len(events),
        kind=kind,
        node_id=_LIVE_NODE,
        source=Source("", 0, 0),
        payload=dump_payload(_payload(hook_input, kind)),
        parent_id=parent,
        ts_ns=time.time_ns(),
        call_id=_given(hook_input.tool_use_id) or None,
    )


def _payload(hook_input: HookInput, kind: Kind) -> Any:
    tool = _given(hook_input.tool_name)
    if kind is Kind.TOOL_CALL:
        return ToolCall(tool, arguments=_raw(hook_input.tool_input))
    if kind is Kind.TOOL_RESULT:
        return ToolResult(result=_raw(hook_input.tool_response), tool=tool)
    return ModelResponse(text=_given(hook_input.last_assistant_message))


def _raw(value: Any) -> Raw | UnsetType:
    return value if isinstance(value, UnsetType) else raw_of(value)


def _given(value: str | UnsetType) -> str:
    """Give a text as importers keep it: a lone surrogate as the text of its escape."""
    return "" if isinstance(value, UnsetType) else canonical.escape_surrogates(value)


def _decide(
    code: PolicyCode,
    spec: PolicySpec,
    hook_input: HookInput,
    outcome: tuple[str, str, bool],
    *,
    is_unreplayed: bool,
) -> LiveDecision:
    action, reason, is_suppressed = outcome
    said = "none" if is_suppressed else action
    return LiveDecision(
        policy=spec.name,
        version=spec.version,
        digest=code.digest,
        action=action,
        reason=reason,
        is_suppressed=is_suppressed,
        is_unreplayed=is_unreplayed,
        output=_output(hook_input.hook_event_name, said, f"{spec.name}: {reason}"),
    )


def _output(event: str, action: str, reason: str) -> bytes:
    """Write the answer: a gate's decision, a text for the model, or one for the user."""
    if action in _GATE_ACTIONS:
        return dump_decision(event, _GATE_ACTIONS[action], reason)[0]
    if action == "Inject":
        if event == "Stop":
            return dump_decision(event, Action.BLOCK, reason)[0]
        return dump_decision(event, Action.NONE, context=reason)[0]
    if action == "Notify":
        return canonical.encode({"systemMessage": reason})
    return b""


def _record(store: Store, decision: LiveDecision, hook_input: HookInput) -> str:
    """Keep the decision; say why a store does not take it, which does not change it."""
    if store.is_read_only:
        return "the store is read-only"
    row = HookRow(
        created_ns=time.time_ns(),
        policy=decision.policy,
        version=decision.version,
        digest=decision.digest,
        session_id=_given(hook_input.session_id),
        tool_use_id=_given(hook_input.tool_use_id),
        event=hook_input.hook_event_name,
        action="suppressed" if decision.is_suppressed else decision.action,
        reason=decision.reason,
        input_sha256=canonical.digest(dump_input(hook_input)),
        is_unreplayed=decision.is_unreplayed,
    )
    try:
        store.policies.add_hook_decision(row)
    except StoreError as error:
        return error.message
    return ""
