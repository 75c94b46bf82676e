"""What a policy replay and a policy diff leave: exit codes, documents, files; big and damaged."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.policy_corpus import named, policy_text, write_guards
from tests.schemas import check
from tests.stored import opened


@pytest.fixture
def corpus(redrive, corpora):
    corpora.put_into(redrive)
    redrive.guards = write_guards(redrive.folder)
    return redrive


def test_the_documents_are_what_their_schemas_say(corpus):
    names = ["NoDestruction", "PushAfterTests", "Repeats"]
    check(corpus.json("policy", "replay", *named(corpus.guards)[:6]), "policy")
    check(corpus.json("policy", "replay", *named(corpus.guards, ["Explodes"]), code=6), "policy")
    old, new = (f"{corpus.guards}:{name}" for name in names[:2])
    check(corpus.json("policy", "diff", old, new), "policy_diff")
    error = corpus.json("policy", "replay", "--policy", "nobody", code=2)
    check(error, "error")


def test_fires_are_a_finding_where_they_are_asked_for(corpus):
    destruction = named(corpus.guards, ["NoDestruction"])  # 3 on all branches, 1 on the head path
    every = ("--branches", "all")
    for words, code in (
        ((), 0),
        (("--fail-on-fire",), 1),
        (("--max-fires", 0), 1),
        (("--max-fires", 1), 0),
        (("--max-fires", 1, "--fail-on-fire"), 0),
        (("--max-fires", 1, *every), 1),
        (("--max-fires", 3, *every), 0),
        (("--fail-on-fire", "--sessions", "interchange:work-1"), 0),
    ):
        done = corpus("policy", "replay", *destruction, *words, "--json")
        assert (done.code, done.err) == (code, ""), words
        if "work-1" not in str(words):
            assert done.document["reports"][0]["fired"] == 3
    explodes = named(corpus.guards, ["NoDestruction", "Explodes"])
    assert corpus("policy", "replay", *explodes, "--fail-on-fire").code == 6, "a fault outweighs"
    for words in (("--max-fires", -1), ("--branches", "some"), ("--workers", 0)):
        assert corpus("policy", "replay", *destruction, *words).code == 2


def test_html_and_junit_are_written_beside_the_document(corpus):
    words = ("--html", "a.html", "--junit", "a.xml", "--branches", "all")
    document = corpus.json("policy", "replay", *named(corpus.guards), *words, code=6)
    page = (corpus.folder / "a.html").read_text()
    assert "NoDestruction" in page
    assert "ValueError: boom" in page
    root = ElementTree.parse(corpus.folder / "a.xml").getroot()  # noqa: S314 - our own
    assert len(root.findall(".//testsuite")) == 4
    assert root.findall(".//error")
    assert len(root.findall(".//failure")) >= 3
    plain = corpus.json("policy", "replay", *named(corpus.guards), "--branches", "all", code=6)
    assert plain == document
    for option in ("--html", "--junit"):
        done = corpus("policy", "replay", *named(corpus.guards)[:2], option, "no/such/folder")
        assert (done.code, done.err.count("\n")) == (2, 1)


def test_the_text_report_names_what_fired_and_what_did_not_hold(corpus):
    done = corpus("policy", "replay", *named(corpus.guards))
    assert done.code == 6
    assert "NoDestruction 1  fired 1 on the head path (3 on all branches)" in done.out
    assert "FAULT error at guards.py:" in done.out


def test_installed_policies_are_listed_and_replayed_by_name(corpus):
    found = {entry["name"]: entry for entry in corpus.json("policy", "list")["policies"]}
    assert found["TestGapWatcher"]["lane"] == "observer"
    assert (
        found["TestGapWatcher"]["what"].startswith("Watches for code that changes")
        or (found["TestGapWatcher"]["what"])
    )
    (report,) = corpus.json("policy", "replay", "--policy", "TestGapWatcher")["reports"]
    assert (report["policy"], report["source"]) == ("TestGapWatcher", "TestGapWatcher")
    assert "TestGapWatcher  observer" in corpus("policy", "list").out


# --- diff

OLD = policy_text(["return Deny('x') if event.command == 'git status' else None"], lane="gate")
NEW = OLD.replace("== 'git status'", "in ('git status', 'pytest -q')")


def test_a_wider_version_is_told_from_a_narrower_one(corpus):
    old, new = corpus.folder / "old.py", corpus.folder / "new.py"
    old.write_text(OLD)
    new.write_text(NEW)
    specs = (f"{old}:Suspect", f"{new}:Suspect")
    document = corpus.json("policy", "diff", *specs)
    assert document["widened"] == 30
    assert document["counts"] == {
        "new": 30,
        "lost": 0,
        "changed": 0,
        "cannot_evaluate": 0,
        "same": 61,
    }
    words = ("--fail-on-widening", "--sarif", "a.sarif")
    assert corpus.json("policy", "diff", *specs, *words, code=1) == document
    sarif = json.loads((corpus.folder / "a.sarif").read_text())
    assert sarif["version"] == "2.1.0"
    assert len(sarif["runs"][0]["results"]) == 30
    narrowed = corpus.json("policy", "diff", *reversed(specs), "--fail-on-widening")
    assert (narrowed["widened"], narrowed["counts"]["lost"]) == (0, 30)
    with opened(corpus.store) as store:
        assert store.policies.reports() == [], "a diff is no replay that a hook may rest on"


def test_two_git_revisions_of_one_file_are_compared(corpus):
    folder = corpus.folder / "repository"
    folder.mkdir()
    path = folder / "guard.py"
    for words in (("init", "--quiet"), None, None):
        if words is None:
            path.write_text(NEW if path.exists() else OLD)
            git(folder, "add", ".")
            words = ("commit", "--quiet", "--message", "change")
        git(folder, *words)
    document = corpus.json("policy", "diff", f"{path}:Suspect@HEAD~1", f"{path}:Suspect@HEAD")
    assert document["widened"] == 30
    assert document["old"]["source"] == "guard.py@HEAD~1"
    again = corpus.json("policy", "diff", f"{path}:Suspect@HEAD", f"{path}:Suspect")
    assert (again["counts"]["same"], again["widened"]) == (91, 0)


def git(folder, *words):
    command = ["git", "-c", "user.name=n", "-c", "user.email=n@n.example", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_a_diff_of_what_breaks_down_says_so(corpus):
    old, new = corpus.folder / "old.py", corpus.folder / "new.py"
    old.write_text(OLD)
    new.write_text(OLD.replace("'x'", "5"))
    document = corpus.json("policy", "diff", f"{old}:Suspect", f"{new}:Suspect", code=7)
    assert document["faults"]
    assert document["counts"]["lost"] == 0
    assert document["counts"]["cannot_evaluate"] == 61
    old.write_text("class Suspect(:\n")
    document = corpus.json("policy", "diff", f"{old}:Suspect", f"{new}:Suspect", code=7)
    assert {fault["net"] for fault in document["faults"]} == {"scan", "error"}


# --- locked, damaged, and big


def test_a_report_that_cannot_be_stored_is_shown_all_the_same(corpus):
    words = ("policy", "replay", *named(corpus.guards, ["PushAfterTests"]), "--json")
    expected = corpus(*words).out
    connection = sqlite3.connect(corpus.store)
    connection.execute("BEGIN IMMEDIATE")  # another process writes
    done = corpus(*words)
    connection.close()
    assert (done.code, done.out, done.err.count("\n")) == (6, expected, 1)
    assert "the report is not stored" in done.err


def flip(store, n_segments=1):
    """Flip one bit in the middle of stored segments."""
    with sqlite3.connect(store) as connection:
        rows = connection.execute("SELECT rowid, data FROM segments LIMIT ?", (n_segments,))
        for key, stored in rows.fetchall():
            data = bytearray(stored)
            data[len(data) // 2] ^= 1
            connection.execute("UPDATE segments SET data = ? WHERE rowid = ?", (bytes(data), key))
    connection.close()


def test_a_flipped_byte_is_named_and_the_other_sessions_go_on(corpus):
    flip(corpus.store)
    damaged = {fault["session_id"] for fault in corpus.json("verify", code=7)["faults"]}
    assert len(damaged) == 1
    document = corpus.json("policy", "replay", *named(corpus.guards, ["PushAfterTests"]), code=7)
    (report,) = document["reports"]
    assert {u["session_id"] for u in report["unreplayable"]} == damaged
    assert all(u["is_tampered"] for u in report["unreplayable"])
    assert report["sessions_scanned"] == 5
    assert report["faults"] == []
    done = corpus("policy", "replay", *named(corpus.guards, ["PushAfterTests"]))
    assert done.code == 7
    assert damaged.pop() in done.out


def test_a_damaged_row_of_the_catalogue_is_named_too(corpus):
    with sqlite3.connect(corpus.store) as connection:
        connection.execute("UPDATE projections SET events = events + 1 WHERE rowid = 1")
    connection.close()
    done = corpus("policy", "replay", *named(corpus.guards, ["PushAfterTests"]), "--json")
    assert done.code == 7
    assert done.document["reports"][0]["sessions_scanned"] == 5
    assert done.err.count("\n") == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
def test_a_big_session_is_replayed_within_bounds_of_memory(redrive, cases):
    big = redrive.folder / "big.jsonl"
    make = cases / "58-huge-session/make_input.py"
    subprocess.run([sys.executable, make, big, "20"], check=True, capture_output=True)
    redrive.imported(big)
    suspect = redrive.folder / "suspect.py"
    on = "    on = ('tool.call', 'tool.result', 'user.message')\n"
    lines = ["return Notify('x') if event.seq % 10 == 0 or event.kind == 'tool.result' else None"]
    suspect.write_text(policy_text(lines, fields=on))
    guards = named(write_guards(redrive.folder))
    code, peaks_mb = peak_memory(redrive, *guards, *named(suspect, ["Suspect"]), "--workers", "1")
    assert code == 0
    assert len(peaks_mb) == 6, "the replay, and a worker for each policy"
    assert max(peaks_mb.values()) < 250, peaks_mb
    document = json.loads((redrive.folder / "out.json").read_text())
    assert document["reports"][4]["fired"] > 300


def peak_memory(redrive, *words):
    """Replay; give the exit code and the greatest resident size of each process, in MB."""
    peaks = {}
    with (redrive.folder / "out.json").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "redrive", "policy", "replay", "--json", *words],
            stdout=out,
            env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
        )
        while process.poll() is None:
            for folder in Path("/proc").iterdir():
                if folder.name.isdigit():
                    note_peak(folder, process.pid, peaks)
            time.sleep(0.02)
    return process.returncode, peaks


def note_peak(folder, parent, peaks):
    try:
        status = dict(
            line.split(":", 1)
            for line in (folder / "status").read_text().splitlines()
            if ":" in line
        )
    except (FileNotFoundError, ProcessLookupError):
        return
    is_ours = parent in (int(folder.name), int(status["PPid"]))
    if is_ours and "VmHWM" in status and "redrive" in (folder / "cmdline").read_text():
        peaks[folder.name] = int(status["VmHWM"].split()[0]) // 1024
