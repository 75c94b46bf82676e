"""The audit on sessions that nobody wrote by hand."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from redrive.audit.closure import audit
from redrive.audit.gaps import CLASS_ORDER
from redrive.record.event import Sampling
from tests.helpers_sessions import SessionBuilder

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    # Eight x or stars in a row are a redaction mark.
    | st.text(st.characters(exclude_characters="x*")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
STEP = st.fixed_dictionaries(
    {
        "calls": st.integers(0, 3),
        "value": JSON,
        "arguments": st.dictionaries(st.text("abc", min_size=1), JSON, max_size=2),
        "text": st.sampled_from(["", "thinking", "ünï\ud83d"]),
        "has_context": st.booleans(),
        "has_seed": st.booleans(),
        "has_result": st.booleans(),
        "read": st.sampled_from([UNSET, None, 0, "t"]),
    }
)


def build(steps: list[dict[str, Any]], *, is_whole: bool) -> SessionBuilder:
    built = SessionBuilder(renderer="json@1")
    for number, step in enumerate(steps):
        calls = [(f"c{number}.{n}", "tool", step["arguments"]) for n in range(step["calls"])]
        seed = 0 if is_whole or step["has_seed"] else None
        context = {} if is_whole or step["has_context"] else {"context": None}
        built.decision(
            *calls, text=step["text"], sampling=Sampling(temperature=0, seed=seed), **context
        )
        for call_id, _, _ in calls:
            if is_whole or step["has_result"]:
                built.result(call_id, step["value"])
        built.read("clock", "now", 1 if is_whole else step["read"])
    return built


def wanted(steps: list[dict[str, Any]]) -> set[tuple[int, str]]:
    found = set()
    is_result_missing = False
    for number, step in enumerate(steps, start=1):
        if not step["has_context"]:
            found.add((number, "input"))
        if not step["has_seed"]:
            found.add((number, "sampling"))
        lacks_result = step["calls"] > 0 and not step["has_result"]
        if lacks_result or (is_result_missing and not step["has_context"]):
            found.add((number, "environment"))
        is_result_missing |= lacks_result
        if step["read"] is UNSET or step["read"] is None:
            found.add((number, "clock"))
    return found


@given(st.lists(STEP, min_size=1, max_size=6))
def test_a_session_with_everything_recorded_is_closed_and_renders_to_its_contexts(
    steps: list[dict[str, Any]],
) -> None:
    report = build(steps, is_whole=True).audit()
    assert report.is_closed
    assert all(step.notes == () for step in report.steps)


@given(st.lists(STEP, min_size=1, max_size=6))
def test_exactly_what_is_left_out_is_found(steps: list[dict[str, Any]]) -> None:
    report = build(steps, is_whole=False).audit(renderers={})
    found = {(step.step, gap.input_class.value) for step in report.steps for gap in step.missing}
    assert found == wanted(steps)
    opened = {number for number, _ in found}
    assert report.closed_until == min(opened, default=len(steps) + 1) - 1
    for step in report.steps:
        ranks = [CLASS_ORDER[gap.input_class] for gap in step.missing]
        assert ranks == sorted(ranks)
        assert step.decision_closed is ((step.step, "input") not in found)


@given(st.lists(STEP, min_size=1, max_size=4), st.integers(1, 4))
def test_a_prefix_is_judged_as_it_is_in_the_whole(steps: list[dict[str, Any]], length: int) -> None:
    built = build(steps, is_whole=False)
    index, trajectory, reader = built.build()
    prefix = audit(
        index, trajectory.prefix(length), reader, session_started=built.started, renderers={}
    )
    whole = built.audit(renderers={})
    assert prefix.steps == whole.steps[:length]
