"""Imports as a user runs them: folders, discovery, oracles of real files."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.schemas import check

FORMATS = ("claude_code", "codex", "otel_genai", "openinference")
COUNTS = {
    "records": "n_events",
    "model_calls": "n_model_calls",
    "tool_calls": "n_tool_calls",
    "tool_results": "n_tool_results",
    "branches": "n_branches",
}


def test_every_real_file_has_the_counts_of_its_oracle(redrive, samples):
    document = redrive.json("import", *(samples / name for name in FORMATS))
    files = {os.path.relpath(file["path"], samples): file for file in document["files"]}
    with (samples / "EXPECTED.tsv").open() as table:
        rows = [row for row in csv.DictReader(table, delimiter="\t") if row["format"] in FORMATS]
    assert len(rows) > 30
    for row in rows:
        (file,) = [entry for path, entry in files.items() if path.endswith("/" + row["file"])]
        assert file["format"] == row["format"], row["file"]
        found = {name: file[name] for name in COUNTS}
        assert found == {name: int(row[column]) for name, column in COUNTS.items()}, row["file"]
        orphans = file["orphan_calls"] + file["orphan_results"]
        assert orphans == int(row["n_orphans"]), row["file"]
    audit = redrive.json("audit", "all", code=3)
    assert {session["status"] for session in audit["sessions"]} == {"open"}
    assert redrive.json("verify")["ok"]


def test_logs_and_traces_of_one_run_are_one_session(redrive, samples):
    folder = samples / "otel_genai"
    redrive.json("import", *folder.glob("gen-otlp-openai_v2-2.1b0-old*"))
    (session,) = redrive.json("sessions")["sessions"]
    counts = [session[name] for name in ("model_calls", "tool_calls", "tool_results")]
    assert counts == [3, 3, 3]


def test_installed_agents_are_discovered(redrive, cases, tmp_path):
    home = tmp_path / "home"
    project = home / ".claude" / "projects" / "demo"
    project.mkdir(parents=True)
    shutil.copy(cases / "09-rewind-dead-branch/session.jsonl", project / "one.jsonl")
    document = redrive("import", "--discover", "--json", HOME=str(home)).document
    assert [file["format"] for file in document["files"]] == ["claude_code"]
    done = redrive("import", "--discover", HOME=str(tmp_path / "nobody"))
    assert done.code == 2
    assert "no folder of an installed agent" in done.err


@pytest.mark.parametrize("name", ["session.jsonl"])
def test_a_report_names_damage_by_line(redrive, cases, name):
    done = redrive("import", cases / "06-nul-block-mid-file" / name)
    assert done.code == 0
    assert "damage: line 4" in done.out
    assert "damage: line 7" in done.out


def test_the_store_is_readable_by_its_owner_alone(redrive, cases):
    redrive.imported(cases / "25-polled-identical-calls/session.jsonl")
    assert redrive.store.stat().st_mode & 0o777 == 0o600


@pytest.fixture
def folder(tmp_path, cases):
    """A folder with one session, `a.jsonl`."""
    made = tmp_path / "in"
    made.mkdir()
    shutil.copy(cases / "25-polled-identical-calls/session.jsonl", made / "a.jsonl")
    return made


def test_what_a_folder_import_leaves_out_is_said(redrive, folder, tmp_path):
    (folder / "notes.md").write_text("# Notes\n")
    (folder / ".git").mkdir()
    (folder / ".git" / "a.jsonl").write_bytes((folder / "a.jsonl").read_bytes())
    (tmp_path / "elsewhere").mkdir()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "a-link.jsonl").symlink_to(folder / "a.jsonl")
    done = redrive("import", folder)
    assert done.code == 0
    assert done.out.splitlines()[-3:] == [
        "1 file is no session and was left alone",
        "2 links were not followed",
        "1 folder left out: .git",
    ]
    (folder / "empty.jsonl").touch()
    (folder / "linked").unlink()
    document = check(redrive.json("import", folder, "--strict"), "import")
    assert (document["links_not_followed"], len(document["refused"])) == (1, 2)
    assert document["folders_left_out"] == [str(folder / ".git")]
    out = redrive("import", folder).out
    assert "2 files are no sessions and were left alone\n1 link was not followed\n" in out


def test_what_may_not_be_read_is_named(redrive, folder):
    shutil.copy(folder / "a.jsonl", folder / "closed.jsonl")
    (folder / "closed.jsonl").chmod(0)
    if os.access(folder / "closed.jsonl", os.R_OK):
        pytest.skip("this user may read everything")
    (folder / "sub").mkdir(mode=0)
    (folder / "unsearchable").mkdir()
    shutil.copy(folder / "a.jsonl", folder / "unsearchable" / "b.jsonl")
    (folder / "unsearchable").chmod(0o400)
    try:
        done = redrive("import", folder)
        assert done.code == 0
        for name in ("closed.jsonl", "sub", "unsearchable/b.jsonl"):
            assert f"not read: {folder / name}: cannot be read: Permission denied\n" in done.out
        document = check(redrive.json("import", folder, "--strict", code=6), "import")
        assert [entry["is_unreadable"] for entry in document["refused"]] == [True] * 3
        assert redrive("import", folder / "closed.jsonl").code == 6
        done = redrive("import", folder / "sub")
        assert (done.code, done.err.count("\n")) == (6, 1)
        assert "sub: cannot be read: Permission denied" in done.err
    finally:
        (folder / "sub").chmod(0o700)
        (folder / "unsearchable").chmod(0o700)


@pytest.mark.parametrize("encoding", ["UTF-16", "UTF-32"])
def test_another_encoding_is_named(redrive, folder, encoding):
    text = (folder / "a.jsonl").read_text()
    (folder / "wide.jsonl").write_text(text, encoding=encoding)
    done = redrive("import", folder / "wide.jsonl")
    assert done.code == 6
    assert f"the text is {encoding}, expected UTF-8 (hint: iconv" in done.err
    assert "not read: " in redrive("import", folder).out
    assert redrive("import", folder, "--strict").code == 6
    (folder / "wide.jsonl").write_text("a note", encoding=encoding)
    assert redrive("import", folder, "--strict").code == 0


def test_a_file_that_no_importer_knows_is_refused_with_a_hint(redrive, folder):
    (folder / "notes.md").write_text("# Notes\n")
    assert "(hint: formats: claude_code, " in redrive("import", folder / "notes.md").err
    error = redrive.json("import", folder / "notes.md", code=6)["error"]
    assert error["hint"].startswith("formats: ")


def test_standard_input_and_a_link_that_leads_nowhere_are_wrong_usage(redrive, folder):
    done = redrive("import", "-")
    assert (done.code, "standard input is not read (hint: " in done.err) == (2, True)
    (folder / "lost").symlink_to("nowhere")
    done = redrive("import", folder / "lost", folder / "a.jsonl")
    assert (done.code, "no such file or folder, but a link" in done.err) == (2, True)
    assert not redrive.store.exists()
    assert redrive("import", folder / "a.jsonl" / "below").code == 2


def test_a_wrong_format_makes_no_session(redrive, cases):
    session = cases / "09-rewind-dead-branch/session.jsonl"
    for name in ("codex", "interchange", "otel_genai", "openinference"):
        done = redrive("import", session, "--format", name)
        assert done.code == 6
        assert f"nothing readable as {name}" in done.err
    plain = cases / "25-polled-identical-calls/session.jsonl"
    assert redrive("import", plain, "--format", "claude_code").code == 6
    assert redrive.json("verify")["heads"] == {}


def test_every_real_file_is_refused_under_every_other_format(redrive, samples):
    for folder, name in (("claude_code", "codex"), ("codex", "claude_code")):
        for other in (name, "interchange", "otel_genai"):
            assert redrive("import", samples / folder, "--format", other).code == 2


def test_a_page_that_shows_recordings_is_none(redrive):
    pages = Path(__file__).resolve().parents[2] / "docs"
    done = redrive("import", pages)
    assert done.code == 2
    assert "no session was found" in done.err


def test_a_reader_that_saw_enough_does_not_stop_the_import(redrive, folder):
    text = (folder / "a.jsonl").read_text()
    for n in range(5):
        (folder / f"n{n}.jsonl").write_text(text.replace('"id":"s25"', f'"id":"n{n}"'))
    command = f"{sys.executable} -m redrive import {folder} | true"
    subprocess.run(
        ["/bin/sh", "-c", command], env=os.environ | {"REDRIVE_STORE": str(redrive.store)}
    )
    assert len(redrive.json("sessions")["sessions"]) == 6
