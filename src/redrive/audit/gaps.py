"""Provenance gaps: the input classes, and the table of everything that can be missing.

Knows words. Must not know how a gap is found (`conditions`, `sent`), nor events.

A gap's `reason` says what was found, its `hint` what the recorder must add; both come from
`CAUSES`, which also makes the table in docs/audit.md.

Source: DESIGN.md §4, §10.
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class InputClass(StrEnum):
    """The five classes of input that a record must hold, in the order reports list them."""

    INPUT = "input"
    ENVIRONMENT = "environment"
    SAMPLING = "sampling"
    CLOCK = "clock"
    PRNG = "prng"


CLASS_ORDER = {input_class: rank for rank, input_class in enumerate(InputClass)}


class ProvenanceGap(msgspec.Struct, frozen=True, rename={"input_class": "class"}):
    """One missing input of one step.

    Attributes:
        input_class: the class it belongs to; `class` in JSON.
        what: names the missing thing: a call, a read, a parameter, a part of the request.
        reason: what was found instead, in one sentence.
        hint: what the recorder must add.
        cause: the row of `CAUSES`.
    """

    input_class: InputClass
    what: str
    reason: str
    hint: str
    cause: str


class Cause(msgspec.Struct, frozen=True):
    """One kind of gap; `reason` is a format string over the details that `make_gap` is given."""

    input_class: InputClass
    reason: str
    hint: str


_INPUT, _ENVIRONMENT, _SAMPLING, _CLOCK, _PRNG = InputClass
_KEEP_BODY = "store the exact request body that is sent"
_KEEP_RESULT = "store each tool result whole, under the call's id"

_MALFORMED = "a field that is there has another type, or another word, than its format documents"
_KEEP_TO_FORMAT = (
    "write each field as its format says; the import's report names the line and the field"
)

CAUSES: Mapping[str, Cause] = {
    # --- input
    "nothing_sent": Cause(_INPUT, "nothing is recorded of what was sent to the model", _KEEP_BODY),
    "normalised_parts": Cause(_INPUT, "normalised parts, not the bytes sent", _KEEP_BODY),
    "truncated_request": Cause(
        _INPUT, "the recorder cut what was sent", "lift the recorder's length limit for requests"
    ),
    "masked_request": Cause(
        _INPUT, "the recorder masked it ({rule})", "keep the request unredacted in the store"
    ),
    "redaction_mark": Cause(
        _INPUT, "{place} holds the redaction mark {mark!r}", "keep it unredacted in the store"
    ),
    "unreadable_body": Cause(_INPUT, "the stored {place} is not {expected}", _KEEP_BODY),
    "by_reference": Cause(
        _INPUT, "sent by reference; its bytes are not stored", "store what the reference names"
    ),
    "provider_side": Cause(
        _INPUT,
        "the provider runs {tool} and its result enters the context unrecorded",
        "run the tool in the agent, or store the provider's result",
    ),
    "truncated_answer": Cause(
        _INPUT, "the recorder cut the model's answer", "store each answer whole"
    ),
    "masked_answer": Cause(
        _INPUT, "the recorder masked it ({rule})", "keep the answer unredacted in the store"
    ),
    "masked_event": Cause(
        _INPUT, "the {kind} is masked ({rule})", "keep what reached the agent unredacted"
    ),
    "context_mismatch": Cause(
        _INPUT,
        "the serialisation layer is not canonical: rendered and recorded bytes differ at byte"
        " {byte}",
        "write every value into the context by one serialiser, and record what it wrote",
    ),
    "broken_chain": Cause(
        _INPUT,
        "the parent {missing} of {node} is not recorded; what came before is unknown",
        "import the whole session, or the session it continues",
    ),
    "cycle": Cause(
        _INPUT,
        "the parent links above {node} lead back to {missing}",
        "write each event once, with the parent it had",
    ),
    "damage": Cause(
        _INPUT,
        "{bytes} bytes could not be read ({detail}); what they held is unknown",
        "import an undamaged copy",
    ),
    "inexact_input": Cause(
        _INPUT, "unrepresentable number", "write numbers of at most 4,300 digits, and no NaN"
    ),
    "malformed_input": Cause(_INPUT, _MALFORMED, _KEEP_TO_FORMAT),
    "answer_not_recorded": Cause(
        _INPUT,
        "neither a text nor a tool call of the answer is recorded",
        'store each answer; one that says nothing has the text ""',
    ),
    "context_not_captured": Cause(_INPUT, "the writer declares the context {state}", _KEEP_BODY),
    # --- environment
    "missing_result": Cause(
        _ENVIRONMENT, "the call of {tool} has no recorded result", _KEEP_RESULT
    ),
    "conflicting_results": Cause(
        _ENVIRONMENT,
        "the call of {tool} has {count} results that differ",
        "store the one result that the model saw",
    ),
    "truncated_result": Cause(
        _ENVIRONMENT,
        "the recorder cut the result of {tool}{length}",
        "lift the recorder's length limit for results",
    ),
    "masked_result": Cause(
        _ENVIRONMENT,
        "the result of {tool} is masked ({rule})",
        "keep results unredacted in the store",
    ),
    "incomplete_arguments": Cause(
        _ENVIRONMENT,
        "the arguments of {tool} are {state}; no evidence can be matched",
        "store each call's arguments whole and unredacted",
    ),
    "earlier_result_missing": Cause(
        _ENVIRONMENT,
        "the context is not stored, and {count} earlier results are missing, first {first}",
        _KEEP_RESULT,
    ),
    "missing_inputs": Cause(
        _ENVIRONMENT,
        "{function} computed {name} and its ordered inputs are not recorded",
        "record a derived value with its function, version and inputs in order",
    ),
    "value_without_form": Cause(
        _ENVIRONMENT,
        "what the agent was given has no JSON form and is not recorded",
        "give the tool or the derivation `encode` and `decode`, or let it return plain JSON",
    ),
    "masked_derived": Cause(
        _ENVIRONMENT,
        "{function} computed {name} and its record is masked ({rule})",
        "keep derived values unredacted in the store",
    ),
    "masked_custom": Cause(
        _ENVIRONMENT,
        "the event {name} is masked ({rule})",
        "keep what reached the agent unredacted",
    ),
    "masked_environment": Cause(
        _ENVIRONMENT,
        "the recorded environment is masked ({rule})",
        "keep the environment's description free of secrets",
    ),
    "inexact_environment": Cause(
        _ENVIRONMENT, "unrepresentable number", "write numbers of at most 4,300 digits, and no NaN"
    ),
    "malformed_environment": Cause(_ENVIRONMENT, _MALFORMED, _KEEP_TO_FORMAT),
    "environment_differs": Cause(
        _ENVIRONMENT,
        "the offered environment differs from the recorded one",
        "offer the recorded environment",
    ),
    "environment_unknown": Cause(
        _ENVIRONMENT,
        "no environment is recorded to compare the offered one with",
        "record the environment with the session",
    ),
    "tool_results_not_captured": Cause(
        _ENVIRONMENT, "the writer declares tool results {state}", _KEEP_RESULT
    ),
    "environment_not_captured": Cause(
        _ENVIRONMENT,
        "the writer declares the environment {state}",
        "record the environment with the session",
    ),
    # --- sampling
    "missing_parameter": Cause(
        _SAMPLING,
        "it is not recorded, and without the request body its absence is not known either",
        "store the request body, or every sampling parameter",
    ),
    "no_seed": Cause(
        _SAMPLING,
        "neither a seed, nor full logits, nor the chosen tokens are recorded; temperature and"
        " top_p alone never close",
        "send and store a seed, or store the chosen token ids",
    ),
    "sampling_not_captured": Cause(
        _SAMPLING,
        "the writer declares sampling {state}",
        "store the request body, or every sampling parameter",
    ),
    # --- clock and PRNG
    "missing_clock_value": Cause(
        _CLOCK, "the clock read {name!r} has no value", "record each clock read with its value"
    ),
    "masked_clock_value": Cause(
        _CLOCK, "the clock read {name!r} is masked ({rule})", "keep read values unredacted"
    ),
    "inexact_clock": Cause(
        _CLOCK, "unrepresentable number", "write numbers of at most 4,300 digits, and no NaN"
    ),
    "malformed_clock": Cause(_CLOCK, _MALFORMED, _KEEP_TO_FORMAT),
    "unrecorded_clock_read": Cause(
        _CLOCK,
        "step {step} has no further recorded clock read {name!r}",
        "record each clock read with its step, name and value",
    ),
    "clock_not_captured": Cause(
        _CLOCK,
        "whether clock reads reached control flow is {state}",
        "record the agent with clock reads intercepted, or vouch for them in `captures`",
    ),
    "missing_prng_value": Cause(
        _PRNG, "the PRNG read {name!r} has no value", "record each PRNG read with its value"
    ),
    "masked_prng_value": Cause(
        _PRNG, "the PRNG read {name!r} is masked ({rule})", "keep read values unredacted"
    ),
    "inexact_prng": Cause(
        _PRNG, "unrepresentable number", "write numbers of at most 4,300 digits, and no NaN"
    ),
    "malformed_prng": Cause(_PRNG, _MALFORMED, _KEEP_TO_FORMAT),
    "unrecorded_prng_read": Cause(
        _PRNG,
        "step {step} has no further recorded PRNG read {name!r}",
        "record each PRNG read with its step, name and value",
    ),
    "prng_not_captured": Cause(
        _PRNG,
        "whether PRNG reads reached control flow is {state}",
        "record the agent with PRNG reads intercepted, or vouch for them in `captures`",
    ),
}


def make_gap(cause: str, what: str, **details: object) -> ProvenanceGap:
    """Make the gap of a row of `CAUSES`; `details` fill its reason."""
    row = CAUSES[cause]
    return ProvenanceGap(row.input_class, what, row.reason.format(**details), row.hint, cause)
