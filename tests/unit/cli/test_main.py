import json

import pytest

from redrive.cli import main


@pytest.fixture
def broken(monkeypatch):
    """The command line with a verb that has a fault of its own."""

    def fail(_):
        raise ZeroDivisionError("one\ntwo")

    monkeypatch.setattr(main.redrive, "invoke", fail)


def test_a_fault_of_redrive_itself_is_one_line(broken, capfd):
    assert main.run(["sessions"]) == 6
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "a fault of redrive itself: ZeroDivisionError: one" in err
    assert "REDRIVE_DEBUG=1" in err


def test_a_fault_of_redrive_itself_has_a_document(broken, capfd):
    assert main.run(["sessions", "--json"]) == 6
    error = json.loads(capfd.readouterr().out)["error"]
    assert error["type"] == "RedriveError"
    assert error["where"].startswith("tests")


def test_debugging_shows_the_traceback_redacted(broken, monkeypatch, capfd):
    monkeypatch.setenv("REDRIVE_DEBUG", "1")
    assert main.run(["sessions"]) == 6
    assert "Traceback (most recent call last)" in capfd.readouterr().err

    def fail(_):
        raise ValueError("no host in postgres://svc:" + "fake-0123456789@")

    monkeypatch.setattr(main.redrive, "invoke", fail)
    assert main.run(["sessions"]) == 6
    err = capfd.readouterr().err
    assert "ValueError: no host in postgres://svc:[redacted:" in err
    assert "fake-0123" not in err.replace('"fake-0123456789@"', "")


def test_help_lists_every_verb_and_exit_code(capfd):
    assert main.run(["--help"]) == 0
    out = capfd.readouterr().out
    assert all(verb in out for verb in main.VERBS)
    assert all(str(int(code)) in out for code in main.MEANINGS)


def test_no_verb_at_all_shows_the_help(capfd):
    assert main.run([]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert "Verbs" in err


def test_an_interruption_is_said(monkeypatch, capfd):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main.redrive, "invoke", interrupt)
    assert main.run(["sessions"]) == 130
    assert "interrupted" in capfd.readouterr().err
