"""Imports as a user runs them: folders, discovery, oracles of real files."""

import csv
import os
import shutil

import pytest

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
