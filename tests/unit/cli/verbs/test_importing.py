"""An import that is stopped in the middle tells what it had done until then."""

import json

import pytest

from redrive.app import importing
from redrive.cli import main
from redrive.errors import StoreError
from tests.schemas import check

STOPS = {
    "interrupted": (KeyboardInterrupt(), 130),
    "store": (StoreError("the disk is full", hint="make room"), 6),
}


@pytest.fixture(params=STOPS)
def stopped(request, monkeypatch, tmp_path):
    """Three files, of which the second stops the import; how it does, and the exit code."""
    for name in ("a", "b", "c"):
        line = {"type": "session", "id": name, "task": "t"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    stop, code = STOPS[request.param]
    real = importing._import_file

    def import_file(store, path, known, **options):
        if path.name == "b.jsonl":
            raise stop
        return real(store, path, known, **options)

    monkeypatch.setattr(importing, "_import_file", import_file)
    monkeypatch.setenv("REDRIVE_STORE", str(tmp_path / "store.db"))
    return tmp_path, code


def said(code):
    reason = "interrupted" if code == 130 else "the disk is full"
    hint = "" if code == 130 else " (hint: make room)"
    return f"redrive: {reason}; 1 file stored, 2 left undone{hint}\n"


def test_in_text_the_finished_files_are_shown(stopped, capfd):
    folder, code = stopped
    assert main.run(["import", str(folder)]) == code
    out, err = capfd.readouterr()
    assert out.startswith(f"{folder / 'a.jsonl'}  interchange: 1 record, ")
    assert err == said(code)


def test_in_json_one_document_holds_the_finished_files(stopped, capfd):
    folder, code = stopped
    assert main.run(["import", str(folder), "--json"]) == code
    out, err = capfd.readouterr()
    document = check(json.loads(out), "import")
    assert [file["path"] for file in document["files"]] == [str(folder / "a.jsonl")]
    assert document["unfinished"] == 2
    assert ("error" in document) is (code == 6)
    assert err == said(code)


def test_what_was_finished_is_stored(stopped, capfd):
    folder, _ = stopped
    main.run(["import", str(folder)])
    capfd.readouterr()
    assert main.run(["sessions", "--json"]) == 0
    (session,) = json.loads(capfd.readouterr().out)["sessions"]
    assert session["session_id"] == "interchange:a"
