import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.audit.renderers import compare_context, render_json_v1

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=4))
def test_json_v1_writes_what_json_dumps_writes_by_default(parts: list[dict[str, Any]]) -> None:
    assert render_json_v1(parts) == json.dumps(parts).encode()


def test_json_v1_keeps_a_lone_surrogate_as_its_escape() -> None:
    assert render_json_v1([{"content": "\ud83d"}]) == b'[{"content": "\\ud83d"}]'


def test_equal_bytes_match_whether_text_or_bytes() -> None:
    assert compare_context("café", "café".encode()) is None
    assert compare_context("\ud83d", "\ud83d") is None


@pytest.mark.parametrize(
    ("recorded", "rendered", "byte"),
    [("abc", "abd", 2), ("abc", "ab", 2), ("", "x", 0), ("é", "e", 0)],
)
def test_a_mismatch_names_the_first_byte_that_differs(
    recorded: str, rendered: str, byte: int
) -> None:
    gap = compare_context(recorded, rendered)
    assert gap is not None
    assert (gap.input_class, gap.what) == ("input", "context_mismatch")
    assert gap.reason.startswith("the serialisation layer is not canonical")
    assert gap.reason.endswith(f"byte {byte}")


def test_equal_json_in_other_bytes_is_a_mismatch(cases: Path) -> None:
    folder = cases / "23-context-bytes-vs-json-equality"
    expected = json.loads((folder / "expected.json").read_text())["expect"]["contexts"]
    decision = json.loads((folder / "session.jsonl").read_text().splitlines()[1])
    rebuilt = json.loads((folder / "rebuilt_contexts.json").read_text())
    found = {
        name: "match" if (gap := compare_context(decision["context"], text)) is None else gap.what
        for name, text in rebuilt.items()
    }
    assert found == expected
