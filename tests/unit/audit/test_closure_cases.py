"""Public bug cases: what the audit must say about each."""

import json
from pathlib import Path
from typing import Any

import pytest

from redrive.audit.closure import audit
from redrive.audit.report import AuditReport
from redrive.importers.claude_code import IMPORTER as CLAUDE_CODE
from redrive.importers.draft import Importer
from redrive.importers.interchange import IMPORTER as INTERCHANGE
from redrive.importers.otel import OTEL_GENAI
from redrive.record.event import Kind, payload_of
from redrive.record.session import MemoryReader
from redrive.record.trajectory import build_trajectory
from tests.helpers import events_from, index_of
from tests.helpers_sessions import RENDERERS


def audit_file(path: Path, importer: Importer, data: bytes | None = None) -> AuditReport:
    events = events_from(importer, path, data)
    index = index_of(events)
    started = [payload_of(event) for event in events if event.kind is Kind.SESSION_STARTED]
    return audit(
        index,
        build_trajectory(index),
        MemoryReader(events),
        session_started=started[0] if started else None,
        renderers=RENDERERS,
    )


def expected_of(folder: Path) -> dict[str, Any]:
    expected: dict[str, Any] = json.loads((folder / "expected.json").read_text())["expect"]
    return expected


def mentions(report: AuditReport) -> set[str]:
    return {gap.what for step in report.steps for gap in step.missing}


def test_01_an_interrupted_call_is_named_as_missing(cases: Path) -> None:
    folder = cases / "01-orphan-tool-use"
    report = audit_file(folder / "interrupted.jsonl", CLAUDE_CODE)
    wanted = expected_of(folder)["interrupted.jsonl"]
    assert len(report.steps) == wanted["model_decisions"]
    results = {what for what in mentions(report) if what.startswith("tool_result")}
    assert results == {f"tool_result:{name}" for name in wanted["audit_missing_mentions"]}


def test_01_a_result_left_by_compaction_is_an_orphan_and_no_gap(cases: Path) -> None:
    report = audit_file(cases / "01-orphan-tool-use" / "compacted.jsonl", CLAUDE_CODE)
    notes = [note for step in report.steps for note in step.notes]
    assert "the result toolu_GONE answers no recorded call" in notes
    assert not any("tool_result" in what for what in mentions(report))


def test_02_conflicting_results_are_named_and_equal_ones_are_not(cases: Path) -> None:
    folder = cases / "02-duplicate-tool-results"
    report = audit_file(folder / "conflict.jsonl", CLAUDE_CODE)
    gaps = [
        gap for step in report.steps for gap in step.missing if gap.cause == "conflicting_results"
    ]
    assert [gap.what for gap in gaps] == ["tool_result:toolu_B"]
    same = audit_file(folder / "identical.jsonl", CLAUDE_CODE)
    assert not any("tool_result" in what for what in mentions(same))


@pytest.mark.parametrize(
    "name", ["01-orphan-tool-use/compacted.jsonl", "02-duplicate-tool-results/identical.jsonl"]
)
def test_a_vendors_transcript_is_unknown_for_clock_and_prng(cases: Path, name: str) -> None:
    report = audit_file(cases / name, CLAUDE_CODE)
    for step in report.steps:
        assert {"input", "sampling", "clock", "prng"} <= {gap.input_class for gap in step.missing}
        assert not step.decision_closed


def test_17_a_prompt_that_the_exporter_cut_opens_input_of_its_span(cases: Path) -> None:
    report = audit_file(cases / "17-otlp-truncated-messages" / "trace.json", OTEL_GENAI)
    causes = {step.node_id: {gap.cause for gap in step.missing} for step in report.steps}
    assert "truncated_request" in causes["00000000000000a2"]
    assert "nothing_sent" not in causes["00000000000000a2"]
    assert "truncated_request" not in causes["00000000000000a3"]


def test_19_a_trace_without_content_is_open_at_every_decision(cases: Path) -> None:
    folder = cases / "19-otlp-content-capture-off"
    wanted = expected_of(folder)["trace.json"]
    report = audit_file(folder / "trace.json", OTEL_GENAI)
    assert [step.status for step in report.steps] == ["open"] * wanted["open_decisions"]
    for step in report.steps:
        assert {"nothing_sent", "no_seed"} <= {gap.cause for gap in step.missing}
    named = {f"tool_result:{name}" for name in wanted["tool_calls_without_result"]}
    assert named <= mentions(report)


def test_30_a_preview_is_no_result_and_the_tools_own_ellipsis_is_one(cases: Path) -> None:
    report = audit_file(cases / "30-truncated-tool-result" / "session.jsonl", INTERCHANGE)
    first = report.first_open()
    assert first is not None
    assert first.step == 1
    assert mentions(report) == {"tool_result:c1"}


def test_31_zero_is_a_recorded_value(cases: Path) -> None:
    folder = cases / "31-zero-is-a-recorded-value"
    wanted = expected_of(folder)["session.jsonl"]
    report = audit_file(folder / "session.jsonl", INTERCHANGE)
    assert {str(step.step): step.status for step in report.steps} == wanted["steps"]
    found = {str(step.step): gap.input_class for step in report.steps for gap in step.missing}
    assert found == wanted["missing_class"]


def test_69_an_empty_result_is_evidence(cases: Path) -> None:
    folder = cases / "69-empty-result-is-evidence"
    wanted = expected_of(folder)["session.jsonl"]
    report = audit_file(folder / "session.jsonl", INTERCHANGE)
    assert [step.step for step in report.steps if step.status == "closed"] == wanted["steps_closed"]
    assert mentions(report) == {f"tool_result:{name}" for name in wanted["audit_missing_mentions"]}


@pytest.mark.parametrize(
    "name", ["25-polled-identical-calls", "21-empty-arguments", "26-changed-arguments-no-fallback"]
)
def test_the_contexts_of_the_cases_are_what_json_v1_renders(cases: Path, name: str) -> None:
    path = cases / name / "session.jsonl"
    data = path.read_bytes().replace(b'"session",', b'"session","renderer":"json@1",', 1)
    report = audit_file(path, INTERCHANGE, data)
    assert report.is_closed
    assert all(step.notes == () for step in report.steps)
