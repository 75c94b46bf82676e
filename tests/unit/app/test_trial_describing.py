import sys
from pathlib import Path

import pytest

from redrive.app.trial_code import import_code
from redrive.app.trial_describing import describe
from redrive.app.trial_messages import CodePlace
from redrive.errors import UsageError

TEXT = """
from redrive.trial import Workflow, tool

@tool("look", effect="pure")
def look() -> None: ...

wf = Workflow("wf", version="1", tools=["look"], run=lambda task, context: None)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CodePlace:
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "redrive_test_described.py"
    path.write_text(TEXT)
    monkeypatch.setitem(sys.modules, path.stem, sys)
    return CodePlace("wf", file=str(path), folder=str(tmp_path))


def test_a_text_among_the_tools_means_one_of_the_module(place: CodePlace) -> None:
    spec = describe(place).spec
    assert spec is not None
    assert (spec.uses, spec.tools[0].id) == (("look",), "look")


def test_a_module_is_imported_by_its_name() -> None:
    told = describe(CodePlace("tool", module="redrive.trial"))
    assert told.fault is not None
    assert told.fault.kind == "usage"
    missing = describe(CodePlace("absent", module="redrive.trial"))
    assert missing.fault is not None
    assert missing.fault.kind == "missing"


def test_what_is_no_python_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("")
    with pytest.raises(UsageError, match="is no Python file"):
        import_code(CodePlace("x", file=str(tmp_path / "data.txt"), folder=sys.path[0]))
