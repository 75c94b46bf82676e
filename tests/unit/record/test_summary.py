from msgspec import Raw

from redrive.importers.draft import Draft
from redrive.record.event import Kind, ModelResponse, ToolCall, ToolResult
from redrive.record.session import MemoryReader
from redrive.record.summary import summarize
from tests.helpers import events_of, index_of

RESPONSE = Draft("s", "d", Kind.MODEL_RESPONSE, ModelResponse(), 0, 1, node_id="d", group="g")


def _call(name: str, *, is_provider_side: bool) -> Draft:
    payload = ToolCall(tool="search", is_provider_side=is_provider_side)
    return Draft("s", name, Kind.TOOL_CALL, payload, 0, 1, node_id="d", call_id=name, group="g")


def test_a_call_that_the_provider_ran_is_neither_counted_nor_missed() -> None:
    result = ToolResult(result=Raw(b"1"))
    answer = Draft("s", "r", Kind.TOOL_RESULT, result, 0, 1, "r", "d", call_id="own")
    drafts = [
        RESPONSE,
        _call("own", is_provider_side=False),
        _call("theirs", is_provider_side=True),
        answer,
    ]
    events = events_of(drafts)
    summary = summarize(index_of(events), MemoryReader(events), None)
    assert (summary.tool_calls, summary.orphan_calls, summary.complete) == (1, 0, True)


def test_a_call_of_ours_without_a_result_is_missed_by_name() -> None:
    events = events_of([RESPONSE, _call("own", is_provider_side=False)])
    summary = summarize(index_of(events), MemoryReader(events), None)
    assert summary.orphan_call_ids == ("own",)
    assert not summary.complete
