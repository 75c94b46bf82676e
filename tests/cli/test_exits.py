"""Each row of the exit table, with its situations, on whole processes."""

import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from redrive.cli.exits import MEANINGS, PRECEDENCE, Exit, worst

CASE = "25-polled-identical-calls"


@pytest.fixture
def polled(redrive, cases):
    """A store with one closed session, `s25`."""
    redrive.imported(cases / CASE / "session.jsonl")
    return redrive


def script(cases, name):
    return f"script:{cases / CASE / name}"


def with_bodies(path, name="bodies"):
    """Write a closed session whose decisions carry request bodies."""
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "go"}], "temperature": 0, "seed": 1}
    )
    lines = [
        {"type": "session", "id": name, "task": "go"},
        {
            "type": "decision",
            "id": "d1",
            "model": {"requested": "m"},
            "sampling": {"temperature": 0, "seed": 1},
            "request": {"api": "openai.chat", "body": body},
            "output": {"text": "done", "tool_calls": []},
        },
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


# --- 0


def test_0_an_import_that_stored_a_session_though_a_line_is_damaged(redrive, cases):
    assert redrive.imported(cases / "04-torn-tail/session.jsonl")["damage"]


def test_0_a_replay_that_equals_the_record(polled, cases):
    done = polled("shadow", "s25", "--model", script(cases, "shadow_same.jsonl"))
    assert (done.code, done.err) == (0, "")


def test_0_a_difference_in_text_alone(polled, cases, tmp_path):
    lines = (cases / CASE / "shadow_same.jsonl").read_text().replace("Running.", "It runs.")
    (tmp_path / "s.jsonl").write_text(lines)
    document = polled.json("shadow", "s25", "--model", f"script:{tmp_path / 's.jsonl'}")
    assert document["verdict"] == "STOCHASTIC_MODEL_DIVERGENCE"
    assert document["runs"][0]["text_only"] == 1
    assert document["runs"][0]["decision_divergence"] is None


def test_0_nothing_found_is_not_a_finding(polled):
    assert polled("grep", "no such words anywhere").code == 0
    assert polled("verify").code == 0
    assert polled("--version").out.startswith("redrive ")
    assert polled("--help").code == 0


# --- 1


def test_1_a_divergence(polled, cases):
    model = script(cases, "shadow_stops_early.jsonl")
    for verb in ("shadow", "investigate"):
        assert polled(verb, "s25", "--model", model).code == 1


def test_1_an_unequal_diff(polled, cases, tmp_path):
    text = (cases / CASE / "session.jsonl").read_text()
    (tmp_path / "b.jsonl").write_text(
        text.replace('"id":"s25"', '"id":"other"').replace("RUNNING", "BROKEN")
    )
    polled.imported(tmp_path / "b.jsonl")
    document = polled.json("diff", "s25", "other", code=1)
    assert document["first_divergence"]["fields"]
    (tmp_path / "c.jsonl").write_text(text.replace('"id":"s25"', '"id":"same"'))
    polled.imported(tmp_path / "c.jsonl")
    assert polled.json("diff", "s25", "same")["equal"] is True


# --- 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "nowhere.jsonl"), "no such file"),
        (("import", "."), "no session was found"),
        (("import", ".", "--format", "nonsense"), "no importer named"),
        (("import",), "nothing to import"),
        (("audit", "nobody"), "no session 'nobody'"),
        (("audit", "s25", "--actor", "nobody"), "no actor 'nobody'"),
        (("audit", "s25", "--environment", "nowhere.json"), "no such file"),
        (("shadow", "s25", "--model", "nonsense:x"), "no model named"),
        (("shadow", "s25", "--model", ":x"), "without a kind"),
        (("shadow", "s25", "--model", "script:nowhere"), "cannot read the script"),
        (("shadow", "s25", "--model", "openai:m@"), "openai"),
        (("shadow", "s25"), "Missing option '--model'"),
        (("shadow", "s25", "--model", "script:x", "--path", "nowhere"), "no node 'nowhere'"),
        (("diff", "s25"), "both sides are the same path"),
        (("grep", "("), ""),
        (("nonsense",), "No such command"),
        (("audit", "s25", "--nonsense"), "No such option"),
    ],
)
def test_2_wrong_usage_is_one_line_and_a_hint(polled, arguments, words):
    done = polled(*arguments)
    assert done.code == 2, done
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert words in done.err
    error = polled.json(*arguments, code=2)["error"]
    assert (error["code"], error["type"]) == (2, "UsageError")
    assert set(error) == {"code", "type", "message", "where", "hint"}


def test_2_an_ambiguous_prefix_names_the_candidates(polled, cases):
    polled.imported(cases / "26-changed-arguments-no-fallback/session.jsonl")
    done = polled("audit", "s2")
    assert done.code == 2
    assert "interchange:s25" in done.err
    assert "interchange:s26" in done.err


def test_2_there_is_no_store_yet(redrive):
    done = redrive("sessions")
    assert done.code == 2
    assert "no store there yet" in done.err


def test_2_a_script_that_runs_out_before_its_final_line(polled, cases, tmp_path):
    first = (cases / CASE / "shadow_same.jsonl").read_text().splitlines()[0]
    (tmp_path / "short.jsonl").write_text(first + "\n")
    done = polled("shadow", "s25", "--model", f"script:{tmp_path / 'short.jsonl'}")
    assert done.code == 2
    assert "short.jsonl" in done.err


def test_2_a_model_that_sends_again_needs_a_recorded_request(polled):
    done = polled("shadow", "s25", "--model", "openai:m@http://127.0.0.1:9")
    assert done.code == 2
    assert "request" in done.err


# --- 3


def test_3_an_open_trajectory(redrive, cases):
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    assert redrive("audit", "all").code == 3
    done = redrive("shadow", "5e55", "--model", "script:nowhere is read for an open trajectory")
    assert done.code == 3
    assert "no model was asked" in done.out


def test_3_a_call_without_a_recorded_answer(polled, cases):
    document = polled.json(
        "shadow", "s25", "--model", script(cases, "shadow_fourth_poll.jsonl"), code=3
    )
    assert document["verdict"] == "INSUFFICIENT_EVIDENCE"
    assert document["closure"]["status"] == "closed"


def test_3_another_model_answered_than_recorded(polled, cases, tmp_path):
    lines = (cases / CASE / "shadow_stops_early.jsonl").read_text()
    (tmp_path / "s.jsonl").write_text('{"model":{"served":"other"}}\n' + lines)
    document = polled.json("shadow", "s25", "--model", f"script:{tmp_path / 's.jsonl'}", code=3)
    assert document["attribution"] == "model_changed"
    assert document["runs"][0]["model_change"]["replayed"] == "other"


# --- 6


def test_6_files_that_the_user_named_and_that_hold_no_session(redrive, tmp_path, cases):
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "foreign.bin").write_bytes(bytes(range(256)) * 4)
    for name in ("empty.jsonl", "foreign.bin"):
        done = redrive("import", tmp_path / name)
        assert done.code == 6
        assert name in done.err
    good = cases / CASE / "session.jsonl"
    document = redrive.json("import", tmp_path / "empty.jsonl", good, code=6)
    assert document["error"]["code"] == 6
    assert len(document["files"]) == 1


def test_6_damage_under_strict(redrive, cases):
    assert redrive("import", cases / "04-torn-tail/session.jsonl", "--strict").code == 6


def test_6_an_environment_file_that_is_no_json_object(polled, tmp_path):
    for text in ("not json", "[1]"):
        (tmp_path / "env.json").write_text(text)
        assert polled("audit", "s25", "--environment", tmp_path / "env.json").code == 6


def test_6_a_store_that_is_newer(polled):
    with sqlite3.connect(polled.store) as connection:
        connection.execute("UPDATE meta SET value = 999 WHERE key = 'schema_version'")
    connection.close()
    done = polled("sessions")
    assert done.code == 6
    assert "999" in done.err


def test_6_a_store_whose_header_is_broken(polled):
    data = bytearray(polled.store.read_bytes())
    data[:16] = b"not a database!!"
    polled.store.write_bytes(data)
    for verb in (("sessions",), ("verify",), ("audit", "s25")):
        assert polled(*verb).code == 6


def test_6_a_store_that_another_process_holds(polled, cases):
    connection = sqlite3.connect(polled.store, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        done = polled("import", cases / "26-changed-arguments-no-fallback/session.jsonl")
    finally:
        connection.execute("ROLLBACK")
        connection.close()
    assert done.code == 6
    assert "locked" in done.err or "another process" in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_6_a_store_that_is_read_only(polled, cases):
    polled.store.chmod(0o400)
    polled.folder.chmod(0o500)
    try:
        assert polled("sessions").code == 0
        done = polled("import", cases / "26-changed-arguments-no-fallback/session.jsonl")
    finally:
        polled.folder.chmod(0o700)
    assert done.code == 6


ANSWERS = {
    "refused 401": (401, b'{"error":{"message":"no key"}}'),
    "limited 429": (429, b"slow down"),
    "failed 500": (500, b"oops"),
    "malformed": (200, b"<html>"),
    "half": (200, b'{"choices":[{"message":{"content":"do'),
}


class _Answering(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status, data = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def endpoint():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answering)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_6_a_model_that_fails(redrive, tmp_path, endpoint, answer):
    redrive.imported(with_bodies(tmp_path / "a.jsonl"))
    endpoint.answer = answer
    url = f"http://127.0.0.1:{endpoint.server_port}/v1"
    done = redrive("shadow", "bodies", "--model", f"openai:m@{url}", OPENAI_API_KEY="sk-secret")
    assert done.code == 6, done
    assert done.err.count("\n") == 1
    assert "sk-secret" not in done.err
    error = redrive.json("shadow", "bodies", "--model", f"openai:m@{url}", code=6)["error"]
    assert error["type"] == "ModelError"


def test_6_a_model_that_is_not_there(redrive, tmp_path):
    redrive.imported(with_bodies(tmp_path / "a.jsonl"))
    assert redrive("shadow", "bodies", "--model", "openai:m@http://127.0.0.1:9/v1").code == 6


def test_6_a_python_model_that_does_not_load(polled, tmp_path):
    (tmp_path / "m.py").write_text("import nowhere_at_all\n")
    done = polled("shadow", "s25", "--model", f"python:{tmp_path / 'm.py'}:f")
    assert done.code == 6
    assert "m.py:1" in done.err


def test_6_a_python_model_that_ends_the_process_or_prints(polled, tmp_path):
    (tmp_path / "m.py").write_text(
        "import sys\nprint('loaded')\ndef step(messages):\n    print('asked')\n    sys.exit(0)\n"
    )
    done = polled("shadow", "s25", "--model", f"python:{tmp_path / 'm.py'}:step", "--json")
    assert done.code == 6
    assert done.document["error"]["type"] == "PluginError"
    assert "asked" in done.err


def test_6_a_stdout_that_takes_nothing(polled):
    for verb in ("sessions", "audit s25", "cat s25 --json", "show s25"):
        for target in ("> /dev/full", ">&-"):
            done = subprocess.run(
                ["/bin/sh", "-c", f"exec {sys.executable} -m redrive {verb} {target}"],
                capture_output=True,
                env=os.environ | {"REDRIVE_STORE": str(polled.store)},
                timeout=600,
            )
            assert done.returncode == 6, (verb, target)
            assert done.stderr.startswith(b"redrive: stdout ")
            assert done.stderr.count(b"\n") == 1


def test_2_a_store_that_is_a_folder_or_stands_after_the_verb(polled):
    done = polled("--store", polled.folder, "sessions")
    assert (done.code, "a folder, not a store" in done.err) == (2, True)
    done = polled("sessions", "--store", "x")
    assert (done.code, "before the verb" in done.err) == (2, True)


def test_2_a_user_without_a_home_folder_needs_to_name_the_store(polled):
    assert polled("sessions", HOME="").code == 0
    done = polled("sessions", HOME="", REDRIVE_STORE="", XDG_DATA_HOME="")
    assert done.code == 2
    assert "--store" in done.err


def test_2_a_bad_model_spec_is_told_before_the_record_is_judged(redrive, cases):
    redrive.imported(cases / "09-rewind-dead-branch/session.jsonl")
    assert redrive("shadow", "5e55", "--model", "nonsense").code == 2


def test_2_a_head_that_is_no_digest(polled):
    for head in ("zzz", "", "abc"):
        assert polled("verify", "--head", head).code == 2


# --- 7


def flip(store):
    """Flip one bit in the middle of one stored segment."""
    with sqlite3.connect(store) as connection:
        key, stored = connection.execute("SELECT rowid, data FROM segments LIMIT 1").fetchone()
        data = bytearray(stored)
        data[len(data) // 2] ^= 1
        connection.execute("UPDATE segments SET data = ? WHERE rowid = ?", (bytes(data), key))
    connection.close()


def test_7_one_flipped_byte_in_a_segment(polled, cases):
    assert polled("verify").code == 0
    flip(polled.store)
    document = polled.json("verify", code=7)
    assert document["ok"] is False
    assert document["faults"][0]["session_id"] == "interchange:s25"
    for verb in (
        ("audit", "s25"),
        ("cat", "s25"),
        ("show", "s25"),
        ("shadow", "s25", "--model", script(cases, "shadow_same.jsonl")),
    ):
        done = polled(*verb)
        assert done.code == 7, verb
        assert "Running" not in done.out


def test_7_one_edited_catalogue_row(polled):
    with sqlite3.connect(polled.store) as connection:
        connection.execute("UPDATE projections SET events = events + 1")
    connection.close()
    assert polled("verify").code == 7
    assert polled("sessions").code == 7


def test_7_a_head_that_is_no_longer_there(polled, cases):
    head = next(iter(polled.json("verify")["heads"].values()))
    assert polled("verify", "--head", head).code == 0
    assert polled("verify", "--head", head[:16]).code == 0
    assert polled("verify", "all").code == 0
    assert polled("verify", "--head", "0" * 64).code == 7


# --- 130


def long_session(path, n_lines):
    """Write a session of many decisions, named by its file."""
    lines = [json.dumps({"type": "session", "id": path.stem, "task": "t"})]
    lines += [
        json.dumps({"type": "decision", "id": f"d{n}", "output": {"text": "x" * 200}})
        for n in range(n_lines)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def started(redrive, *arguments):
    """Start a verb whose output is not read yet."""
    return subprocess.Popen(
        [sys.executable, "-m", "redrive", *map(str, arguments)],
        env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_130_an_interrupted_import_is_said_and_leaves_the_store_whole(redrive, tmp_path):
    log = redrive.folder / "store.db-wal"
    for n_lines in (20_000, 80_000, 320_000):  # more, should the import win the race
        long = long_session(tmp_path / "long.jsonl", n_lines)
        process = started(redrive, "import", long)
        while process.poll() is None and not (log.exists() and log.stat().st_size):
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=600)
        if process.returncode == 130:
            break
    assert process.returncode == 130
    assert err.startswith(b"redrive: interrupted; ")
    assert err.count(b"\n") == 1
    assert redrive("verify").code == 0
    assert redrive("import", long).code == 0
    assert redrive.json("verify")["ok"]


def test_130_what_was_imported_before_the_interruption_is_shown(redrive, tmp_path):
    first, second = long_session(tmp_path / "a.jsonl", 40), long_session(tmp_path / "b.jsonl", 1)
    first.write_text(first.read_text() + "torn\n" * 5000)  # more lines than a pipe takes unread
    process = started(redrive, "import", first, second)
    assert select.select([process.stdout], [], [], 600)[0]
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert process.returncode == 130
    assert out.startswith(bytes(first) + b"  interchange: 41 records")
    assert err == b"redrive: interrupted; 1 file stored, 1 left undone\n"
    assert len(redrive.json("sessions")["sessions"]) == 1


# --- the table itself


def test_of_several_codes_the_worst_is_given():
    assert worst([]) is Exit.DONE
    assert worst([1, 3, 0]) is Exit.OPEN
    assert worst([3, 6, 7]) is Exit.VIOLATED
    assert [int(code) for code in PRECEDENCE[1:6]] == [7, 6, 5, 4, 3]
    assert set(PRECEDENCE) == set(MEANINGS) == set(Exit)
