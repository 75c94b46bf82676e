"""The four conditions of closure, each judged for one step.

Knows the facts of a step and the rows of `gaps.CAUSES`. Must not know other steps, nor the order in
which steps are audited (that is `closure`).

Each function appends what it found to `Findings`; nothing here raises for what a recording holds.

Source: DESIGN.md §4, §10.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Raw, UnsetType

from redrive import canonical
from redrive.audit.duplicates import has_duplicate_keys
from redrive.audit.facts import Item, StepFacts
from redrive.audit.gaps import InputClass, ProvenanceGap, make_gap
from redrive.audit.manifest import State
from redrive.audit.references import APIS
from redrive.audit.sent import CACHE_FIELDS, PARAMETERS, Body, SentScanner, SentText
from redrive.record.event import (
    FLAG_MALFORMED,
    FLAG_NO_ANSWER,
    FLAG_NO_FORM,
    FLAG_UNREPRESENTABLE,
    Derived,
    Event,
    Kind,
    ModelRequest,
    ModelResponse,
    Sampling,
    SessionStarted,
    ToolCall,
    ToolResult,
    raw_value,
)

SERVING_STATE = "serving state not excluded"
TRUSTED_BASES = frozenset({"intercepted", "vouched", "proved_by_rerun"})

# Key of `captures` → the class that it speaks for, and what its absence means.
CAPTURES: Mapping[str, tuple[InputClass, bool]] = {
    # (class, whether it must be intercepted or vouched for: absent reads leave no trace)
    "context": (InputClass.INPUT, False),
    "tool_results": (InputClass.ENVIRONMENT, False),
    "environment": (InputClass.ENVIRONMENT, False),
    "sampling": (InputClass.SAMPLING, False),
    "clock": (InputClass.CLOCK, True),
    "prng": (InputClass.PRNG, True),
}
# Flag of an event → the cause of its gap, by the class that its kind belongs to.
FLAG_CAUSES: Mapping[str, str] = {
    FLAG_UNREPRESENTABLE: "inexact_{}",
    FLAG_MALFORMED: "malformed_{}",
    FLAG_NO_ANSWER: "answer_not_recorded",
    FLAG_NO_FORM: "value_without_form",
}
_CLASS_OF_KIND: Mapping[Kind, InputClass] = {
    Kind.TOOL_RESULT: InputClass.ENVIRONMENT,
    Kind.VALUE_DERIVED: InputClass.ENVIRONMENT,
    Kind.CLOCK_READ: InputClass.CLOCK,
    Kind.PRNG_READ: InputClass.PRNG,
}


_NO_SAMPLING = Sampling()


@dataclass(slots=True)
class Findings:
    """The gaps and notes of one step."""

    gaps: list[ProvenanceGap] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge_captures(started: SessionStarted | None) -> tuple[ProvenanceGap, ...]:
    """Find the classes that the writer did not capture; each opens every step.

    Clock and PRNG need `captured` on a basis of interception or a vouching writer: a read that was
    not recorded leaves no trace. The other classes are read from the events unless denied.
    """
    captures = {} if started is None else started.captures
    is_trusted = started is not None and started.basis in TRUSTED_BASES
    gaps = []
    for key, (_, needs_basis) in CAPTURES.items():
        default = "captured" if is_trusted or not needs_basis else "unknown"
        state = captures.get(key, default)
        if state == "captured" and needs_basis and not is_trusted:
            state = "unknown"
        if state != "captured":
            shown = "not captured" if state == "not_captured" else "unknown"
            gaps.append(make_gap(f"{key}_not_captured", key, state=shown))
    return tuple(gaps)


def environment_state(started: SessionStarted | None) -> State:
    """Say whether the environment is recorded; a writer that denies it makes a gap instead."""
    if started is None:
        return "unknown"
    is_declared = started.captures.get("environment") == "captured"
    return "captured" if is_declared or isinstance(started.environment, Raw) else "unknown"


def judge_input(facts: StepFacts, scanner: SentScanner, found: Findings) -> Body | None:
    """Judge input closure; give what the request body says, where one is stored."""
    request = facts.request
    body = None
    if request is None:
        found.gaps.append(make_gap("nothing_sent", "request"))
    else:
        body = _judge_request(request, scanner, found)
    for _, response, mark in facts.responses:
        _judge_answer(response, mark, found)
    for event, payload in facts.masked:
        found.gaps.append(_masked_gap(event, payload))
    for event in facts.flagged:
        _judge_flags(event, found)
    return body


def _masked_gap(event: Event, payload: Any) -> ProvenanceGap:
    """Give the gap of an event, outside of the model's exchange, that lists redactions."""
    rule = payload.redactions[0].rule or "no rule named"
    if event.kind is Kind.CUSTOM:
        what = f"{payload.name} {event.id}"
        return make_gap("masked_custom", what, name=payload.name, rule=rule)
    return make_gap("masked_event", f"{event.kind} {event.id}", kind=event.kind.value, rule=rule)


def find_environment_gap(started: SessionStarted | None) -> ProvenanceGap | None:
    """Find why the recorded environment is not whole: a value of it is masked."""
    for redaction in () if started is None else started.redactions:
        if redaction.path.partition(".")[0] == "environment":
            rule = redaction.rule or "no rule named"
            return make_gap("masked_environment", redaction.path, rule=rule)
    return None


def _judge_flags(event: Event, found: Findings) -> None:
    input_class = _CLASS_OF_KIND.get(event.kind, InputClass.INPUT)
    for flag in event.flags:
        if flag in FLAG_CAUSES:
            cause = FLAG_CAUSES[flag].format(input_class)
            found.gaps.append(make_gap(cause, f"{event.kind} {event.id}"))


def _judge_request(request: ModelRequest, scanner: SentScanner, found: Findings) -> Body | None:
    if request.truncated:
        found.gaps.append(make_gap("truncated_request", "request"))
    for redaction in request.redactions:
        rule = redaction.rule or "no rule named"
        found.gaps.append(make_gap("masked_request", redaction.path or "request", rule=rule))
    for name in request.by_reference:
        found.gaps.append(make_gap("by_reference", name))
    if request.body is not None:
        if request.context is not None and request.context != request.body:
            found.notes.append("context differs from request.body; the body counts")
        sent = scanner.scan_body(request.body)
        if request.api in APIS:
            _judge_shape(sent, found)
        return _judge_sent("request.body", sent, found)
    if request.context is not None:
        return _judge_sent("context", scanner.scan_context(request.context), found)
    if not isinstance(request.parts, UnsetType):
        found.gaps.append(make_gap("normalised_parts", "request"))
    elif not request.truncated:
        found.gaps.append(make_gap("nothing_sent", "request"))
    return None


def _judge_shape(sent: SentText, found: Findings) -> None:
    """Judge whether a body is what its API takes; what it points at is not known otherwise."""
    unmet = {} if sent.body is None else sent.body.malformed
    gaps = [(f"request.body.{name}", expected) for name, expected in unmet.items()]
    if sent.unmet is not None:
        gaps.append(("request.body", sent.unmet))
    for place, expected in gaps:
        found.gaps.append(make_gap("unreadable_body", place, place=place, expected=expected))


def _judge_sent(place: str, sent: SentText, found: Findings) -> Body | None:
    if sent.mark is not None:
        found.gaps.append(make_gap("redaction_mark", place, place=place, mark=sent.mark))
    if sent.has_duplicates:
        found.notes.append(f"duplicate keys in {place}")
    for what, is_provider_side in () if sent.body is None else sent.body.references:
        if is_provider_side:
            found.gaps.append(make_gap("provider_side", what, tool=what))
        else:
            found.gaps.append(make_gap("by_reference", what))
    return sent.body


def _judge_answer(response: ModelResponse, mark: str | None, found: Findings) -> None:
    if response.truncated:
        found.gaps.append(make_gap("truncated_answer", "answer"))
    for redaction in response.redactions:
        rule = redaction.rule or "no rule named"
        found.gaps.append(make_gap("masked_answer", redaction.path or "answer", rule=rule))
    if mark is not None and not response.redactions:
        found.gaps.append(make_gap("redaction_mark", "answer", place="the answer", mark=mark))


def judge_call(item: Item, found: Findings) -> None:
    """Judge what a decision asked for: its arguments, and whether the provider runs it."""
    event, call, mark = item
    if call.is_provider_side:
        found.gaps.append(make_gap("provider_side", call.tool, tool=call.tool))
        return
    state = _arguments_state(call, mark)
    if state is not None:
        name = f"arguments:{event.call_id or event.id}"
        found.gaps.append(make_gap("incomplete_arguments", name, tool=call.tool, state=state))
    text = call.arguments_text
    if _has_duplicates(call.arguments) or (text is not None and has_duplicate_keys(text)):
        found.notes.append(f"duplicate keys in the arguments of {event.call_id or event.id}")


def _arguments_state(call: ToolCall, mark: str | None) -> str | None:
    if call.is_not_recorded:
        return "not recorded"
    if call.truncated:
        return "cut by the recorder"
    return "masked" if call.redactions or mark is not None else None


def find_result_gap(
    event: Event, call: ToolCall, answer: Item | None, n_conflicting: int
) -> ProvenanceGap | None:
    """Find why a call has no usable recorded result.

    Args:
        event: the call.
        call: its payload.
        answer: the result that answers it.
        n_conflicting: how many results differ, where no single one answers.
    """
    if n_conflicting:
        return _result_gap("conflicting_results", event, call, count=n_conflicting)
    if answer is None or isinstance(answer[1].result, UnsetType):
        return _result_gap("missing_result", event, call)
    _, result, mark = answer
    if result.truncated:
        length = "" if result.original_chars is None else f"; it had {result.original_chars} chars"
        return _result_gap("truncated_result", event, call, length=length)
    if result.redactions or mark is not None:
        rule = mark or result.redactions[0].rule or "no rule named"
        return _result_gap("masked_result", event, call, rule=rule)
    return None


def _result_gap(cause: str, event: Event, call: ToolCall, **details: object) -> ProvenanceGap:
    return make_gap(cause, f"tool_result:{event.call_id or event.id}", tool=call.tool, **details)


def note_duplicates(event: Event, result: ToolResult, found: Findings) -> None:
    """Note duplicate keys in a recorded result."""
    if _has_duplicates(result.result):
        found.notes.append(f"duplicate keys in the result {event.call_id or event.id}")


def _has_duplicates(value: Raw | UnsetType) -> bool:
    if isinstance(value, UnsetType):
        return False
    data = bytes(value)
    is_nested = data.startswith((b"{", b"["))
    return is_nested and has_duplicate_keys(data.decode())


def find_derived_gap(derived: Derived, mark: str | None) -> ProvenanceGap | None:
    """Find why a derived value cannot be computed again: no ordered inputs, or masked ones."""
    function = derived.function or "an unnamed function"
    if not isinstance(raw_value(derived.inputs), list):
        what = f"inputs:{derived.name}"
        return make_gap("missing_inputs", what, function=function, name=derived.name)
    if mark is None and not derived.redactions:
        return None
    rule = mark or derived.redactions[0].rule or "no rule named"
    return make_gap(
        "masked_derived", f"inputs:{derived.name}", function=function, name=derived.name, rule=rule
    )


def judge_sampling(facts: StepFacts, body: Body | None, found: Findings) -> bool:
    """Judge sampling closure; say whether the sampling parameters are recorded.

    The lines hold them, or the stored body does: then an absent one is known to be absent.
    """
    request = facts.request
    sampling = _NO_SAMPLING if request is None or request.sampling is None else request.sampling
    seed, is_recorded = sampling.seed, sampling.temperature is not None
    if body is not None:
        is_recorded = True
        _note_differences(sampling, body, found)
        sent = canonical.get_field(body.parameters, "seed", int)
        seed = seed if sent is None else sent
    if not is_recorded:
        found.gaps.append(make_gap("missing_parameter", "temperature"))
    for _, response, _ in facts.responses:
        if response.chosen_tokens is not None or response.has_logits:
            return is_recorded
    if seed is None:
        found.gaps.append(make_gap("no_seed", "seed"))
    elif not _is_serving_state_known(facts, sampling, body):
        found.notes.append(SERVING_STATE)
    return is_recorded


def _note_differences(sampling: Sampling, body: Body, found: Findings) -> None:
    for name in PARAMETERS:
        on_line, sent = getattr(sampling, name), body.parameters.get(name)
        if on_line is not None and sent is not None and on_line != sent:
            found.notes.append(f"sampling.{name} differs from request.body; the body counts")


def _is_serving_state_known(facts: StepFacts, sampling: Sampling, body: Body | None) -> bool:
    """Say whether engine and prompt cache are recorded; without either, a seed is not enough."""
    is_fingerprinted = is_cache_counted = False
    for _, response, _ in facts.responses:
        if response.fingerprint:
            is_fingerprinted = True
        if response.usage is not None and response.usage.cache_read_tokens is not None:
            is_cache_counted = True
    if not is_fingerprinted or is_cache_counted:
        return is_fingerprinted
    extra = sampling.extra
    has_cache = bool(extra) and any(extra.get(name) for name in CACHE_FIELDS)
    return not has_cache and (body is None or not body.has_cache)


def judge_model(facts: StepFacts, body: Body | None, found: Findings) -> None:
    """Note a decision whose model is named nowhere."""
    if facts.request is not None and facts.request.model:
        return
    if body is not None and body.model:
        return
    if not any(response.model for _, response, _ in facts.responses):
        found.notes.append("the model is not named")
