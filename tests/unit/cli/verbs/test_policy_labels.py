"""`policy annotate` and `policy precision` as they are typed: options, lines, documents, codes."""

import io
import json
import sys
import time
import types

import click
import pytest

from redrive.app.annotation_terminal import KEYS_HELP
from redrive.cli import main
from redrive.cli.verbs import policy_labels
from redrive.cli.verbs.policy_labels import annotate_verb, precision_verb
from tests.policy_reports import SESSION, fire, put_report
from tests.schemas import check
from tests.stored import opened, put_session


@pytest.fixture
def run(monkeypatch, tmp_path, capfd):
    """Run a command line of the group; give code, stdout and stderr."""
    group = click.Group("policy", commands={"annotate": annotate_verb, "precision": precision_verb})
    module = types.ModuleType("tests_policy_group")
    module.policy_verb = group
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(main.VERBS, "policy", (module.__name__, "policies"))
    monkeypatch.setenv("REDRIVE_STORE", str(tmp_path / "store.db"))

    def call(*arguments: object, keys: str = ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(keys))
        code = main.run(["policy", *map(str, arguments)])
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def store(tmp_path):
    with opened(tmp_path / "store.db") as store:
        put_report(store.policies, [fire(number) for number in range(8)])
        yield store


def test_labels_from_a_pipe_are_stored_and_counted(run, store):
    code, out, err = run("annotate", "no-rm", "--rater", "ann", "--terminal", keys="tyf")
    assert (code, err) == (0, "")
    assert "── 1 of 8 · no-rm@1.0 · 0 labelled" in out
    (sample,) = store.policies.samples()
    assert out.splitlines()[-3:] == [
        f"no-rm@1.0  ann labelled 3 of 8 fires drawn from 8, sample {sample.id}",
        "  to go on   the same command again",
        "  next       redrive policy precision no-rm",
    ]
    assert [row.label for row in store.policies.labels(sample.id)] == ["true", "true", "false"]


def test_all_labelled_ends_with_what_to_run_next(run, store):
    run("annotate", "no-rm@1.0", "--rater", "ann", keys="tttttttt")
    code, out, _ = run("annotate", "no-rm@1.0", "--rater", "ann", keys="q")
    assert code == 0
    assert "all 8 are labelled: b goes back" in out
    assert "to go on" not in out
    assert out.endswith("  next       redrive policy precision no-rm@1.0\n")


def test_a_session_s_own_task_is_shown_where_it_is_stored(run, store):
    put_session(store, SESSION, ["a"])
    with store.transaction():
        store.set_summary(SESSION, {"opening": {"task": "Migrate \x1b[2J the tables"}})
    _, out, _ = run("annotate", "no-rm", "--rater", "ann", keys="q")
    assert "\ntask      Migrate \\x1b[2J the tables\n" in out
    assert "closer    redrive show test:a" in out


def test_help_lists_the_keys_and_what_true_means(run):
    code, out, _ = run("annotate", "--help")
    text = " ".join(out.split())
    assert code == 0
    assert KEYS_HELP in text
    assert "True: a careful engineer would be glad that it acted as it did." in text


def test_a_sample_is_drawn_as_asked(run, store):
    run("annotate", "no-rm@1.0", "--rater", "ann", "--sample", 3, "--seed", "x", keys="q")
    (sample,) = store.policies.samples()
    assert (len(sample.event_refs), sample.seed, sample.branches) == (3, "x", "head")


def test_a_policy_that_fired_nowhere_has_nothing_to_label(run, store):
    put_report(store.policies, [], policy="quiet")
    code, out, _ = run("annotate", "quiet", "--rater", "ann")
    assert (code, out) == (0, "quiet fired nowhere: nothing to label\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("annotate", "no-rm"), "Missing option '--rater'"),
        (("annotate", "none", "--rater", "ann"), "no stored report of policy 'none'"),
        (("annotate", "no-rm", "--rater", ""), "rater ''"),
        (("annotate", "no-rm", "--rater", "a", "--sample", "0"), "--sample"),
        (("annotate", "no-rm", "--rater", "a", "--port", "70000"), "--port"),
        (("precision", "none"), "no stored report of policy 'none'"),
        (("precision", "no-rm", "--min-precision", "1"), "--min-precision"),
        (("precision", "no-rm", "--confidence", "1"), "--confidence"),
        (("precision", "no-rm", "--should-have-fired", "none.jsonl"), "no such file"),
    ],
)
def test_what_is_wrong_is_exit_2_and_one_line(run, store, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_missing_extra_is_named_with_what_installs_it(run, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "redrive.app.annotation_page", None)
    code, _, err = run("annotate", "no-rm", "--rater", "ann", "--page")
    assert code == 2
    assert "needs starlette and uvicorn" in err
    assert "pip install 'redrive[ui]', or --terminal" in err


@pytest.mark.parametrize(("options", "n_opened"), [((), 1), (("--no-browser",), 0)])
def test_the_page_s_address_is_said_and_opened(run, store, monkeypatch, options, n_opened):
    from redrive.app import annotation_page

    seen = []
    monkeypatch.setattr(policy_labels.webbrowser, "open", seen.append)
    monkeypatch.setattr(
        annotation_page, "serve_page", lambda annotation, port, announce: announce(f"at {port}")
    )
    code, _, err = run("annotate", "no-rm", "--rater", "ann", "--page", "--port", 7, *options)
    assert code == 0
    assert err == "label at at 7  (Finish on the page, or Ctrl-C here, ends it)\n"
    for _ in range(1200):
        if len(seen) == n_opened:
            break
        time.sleep(0.05)
    assert seen == ["at 7"] * n_opened


def test_an_interrupt_keeps_what_was_labelled(run, store, monkeypatch):
    class Interrupted(io.StringIO):
        def read(self, _=-1):
            if self.tell() == 2:
                raise KeyboardInterrupt
            return super().read(1)

    monkeypatch.setattr(io, "StringIO", Interrupted)
    code, _, err = run("annotate", "no-rm", "--rater", "ann", keys="yyyy")
    assert code == 130
    assert "what was finished before is stored" in err
    assert len(store.policies.labels(store.policies.samples()[0].id)) == 2


def test_keys_of_a_terminal_are_single_presses(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    pressed = iter(["t", "ffu", "\x1b[D", "\x1bOC", "\x1b[A"])

    def getchar():
        for key in pressed:
            return key
        raise EOFError

    monkeypatch.setattr(sys, "stdin", Terminal("a note\n"))
    monkeypatch.setattr(click, "getchar", getchar)
    keys = policy_labels.TypedKeys()
    read = [keys.read_key() for _ in range(6)]
    assert read == ["t", "f", "left", "right", "\x1b", ""]
    assert keys.read_line() == "a note"


def test_without_a_stdin_there_are_no_keys(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    assert policy_labels.TypedKeys().read_key() == ""


@pytest.mark.parametrize(
    ("keys", "options", "code", "verdict"),
    [
        ("", (), 3, "inconclusive"),
        ("yyyyyyyy", (), 0, "measured"),
        ("yyyyyyyy", ("--min-precision", "0.6"), 0, "met"),
        ("yyyyyyyu", ("--min-precision", "0.6"), 1, "missed"),
        ("yyyyyyyy", ("--min-precision", "0.9"), 3, "inconclusive"),
        ("ffffffff", ("--min-precision", "0.9"), 1, "missed"),
    ],
)
def test_the_exit_code_says_whether_it_is_proven(run, store, keys, options, code, verdict):
    run("annotate", "no-rm", "--rater", "ann", keys=keys)
    found, out, err = run("precision", "no-rm", *options, "--json")
    document = check(json.loads(out), "policy_precision")
    assert (found, err, document["verdict"]) == (code, "", verdict)
    found, out, _ = run("precision", "no-rm", *options)
    assert found == code
    assert ("asked" in out) is bool(options)


def test_the_document_holds_figures_recall_and_what_they_are_of(run, store, tmp_path):
    run("annotate", "no-rm", "--rater", "ann", keys="yyyyyyyf")
    run("annotate", "no-rm", "--rater", "bob", keys="yyyyyyyf")
    path = tmp_path / "places.jsonl"
    path.write_text(f'{{"event_ref":"{SESSION}#e1"}}\n{SESSION}#e77\n')
    code, out, _ = run("precision", "no-rm", "--should-have-fired", path, "--json")
    document = check(json.loads(out), "policy_precision")
    assert code == 0
    assert (document["precision"], document["n_true"], document["n_false"]) == (0.875, 7, 1)
    assert document["agreement_ac1"] == 1.0
    assert document["recall"]["name"] == "places.jsonl"
    assert (document["recall"]["k"], document["recall"]["n"]) == (1, 2)
    code, out, _ = run("precision", "no-rm", "--should-have-fired", path)
    assert "  recall     1 of 2 places in places.jsonl" in out
    assert f"  missed     {SESSION}#e77" in out


def test_a_set_that_cannot_be_read_is_exit_6(run, store, tmp_path):
    path = tmp_path / "places.jsonl"
    path.write_text("nothing\n")
    assert run("precision", "no-rm", "--should-have-fired", path)[0] == 6
