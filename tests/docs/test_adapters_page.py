"""The recipes of docs/adapters.md, each run as it stands, against a scripted model."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.chat_server import answer_with, open_bench, results_in

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adapters.md"


def recipe_of(title: str) -> str:
    """Give the first block of Python in a section."""
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


def script(messages: list[dict[str, Any]], request: dict[str, Any]) -> Any:
    found = results_in(messages)
    return f"E17: {found['c1']}" if found else [("c1", "look_up", {"code": "E17"})]


@pytest.mark.parametrize(
    ("title", "library"),
    [
        ("LangGraph", "langgraph"),
        ("OpenAI Agents SDK", "agents"),
        ("pydantic-ai", "pydantic_ai"),
    ],
)
@pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # a chat model's clients end with the process
def test_a_recipe_is_recorded_and_run_again(
    title: str, library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip(library, reason=f"{library} is not installed")
    if library == "agents":
        module.set_tracing_disabled(True)  # it would export over a client of its own
    recipe = tmp_path / "code" / "recipe.py"
    recipe.parent.mkdir()
    recipe.write_text(recipe_of(title), encoding="utf-8")
    names: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe.read_bytes(), str(recipe), "exec"), names)  # noqa: S102 - of our own page
    with open_bench(tmp_path, code=recipe.parent) as bench:
        monkeypatch.setenv("OPENAI_BASE_URL", bench.url)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        bench.server.answer = answer_with(script)
        session_id, value = bench.record(names["agent"])
        assert value == "E17: disk quota exceeded"
        assert bench.results(session_id) == [("look_up", "tool", "disk quota exceeded")]
        assert bench.statuses(session_id) == {"main": "closed"}
        report = bench.rerun(names["agent"], session_id)
        assert report.identical, report.document
        assert report.value == value
