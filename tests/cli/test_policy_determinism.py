"""A strict replay gives the same bytes, whatever is not the sessions and the policies."""

import shutil

import pytest

from tests.cli.conftest import Redrive
from tests.policy_corpus import GUARD_NAMES, named, write_corpus, write_guards


@pytest.fixture
def corpus(redrive, corpora):
    """A store with the sessions of the corpus, and the file of its policies beside it."""
    corpora.put_into(redrive)
    redrive.guards = write_guards(redrive.folder)
    return redrive


def replay(redrive, *more, guards=None, **environment):
    """Replay the guards; one of them breaks down, hence the exit code."""
    done = redrive(
        "policy", "replay", *named(guards or redrive.guards), "--json", *more, **environment
    )
    assert (done.code, done.err) == (6, ""), done
    return done


def test_the_corpus_has_fires_suppressed_matches_and_one_fault(corpus):
    reports = replay(corpus).document["reports"]
    assert [report["policy"] for report in reports] == list(GUARD_NAMES)
    assert [report["fired"] for report in reports] == [3, 32, 40, 0]
    assert [report["fired_on_head_path"] for report in reports] == [1, 31, 40, 0]
    assert [report["suppressed"] for report in reports] == [0, 0, 80, 0]
    (fault,) = [fault for report in reports for fault in report["faults"]]
    assert fault["net"] == "error"
    assert fault["what"] == "ValueError: boom"
    assert fault["where"].startswith("guards.py:")
    assert fault["session_id"] == "interchange:work-2"
    assert {report["sessions_scanned"] for report in reports} == {6}
    assert not [r for report in reports for r in report["unreplayable"]]
    actors = [f["actor"] for s in reports[0]["per_session"] for f in s["fires"]]
    assert sum(actor != "main" for actor in actors) == 1, "the sub-agent's call is judged"


def test_a_strict_replay_gives_the_same_bytes_however_it_is_run(corpus, tmp_path):
    expected = replay(corpus).out
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    moved = elsewhere / corpus.guards.name
    shutil.copy(corpus.guards, moved)
    again = {
        "the same": replay(corpus),
        "one worker": replay(corpus, "--workers", 1),
        "two workers": replay(corpus, "--workers", 2),
        "another zone": replay(corpus, TZ="Pacific/Auckland", LANG="C", LC_ALL="C"),
        "another hash seed": replay(corpus, PYTHONHASHSEED="12345"),
        "all judged twice": replay(corpus, "--recheck", "all"),
        "sessions named": replay(corpus, *sessions_backwards(corpus)),
        "another place of the policy": replay(corpus, guards=moved),
    }
    corpus.folder = elsewhere
    again["another folder and a relative path"] = replay(corpus, guards=moved.name)
    assert {name for name, done in again.items() if done.out != expected} == set()


def sessions_backwards(redrive):
    names = [row["session_id"] for row in redrive.json("sessions")["sessions"]]
    return [word for name in reversed(names) for word in ("--sessions", name)]


def test_the_order_of_imports_changes_nothing(corpus, tmp_path):
    other = Redrive(tmp_path / "other")
    for path in reversed(write_corpus(other.folder / "recorded")):
        other.imported(path)
    other.guards = corpus.guards
    assert replay(other).out == replay(corpus).out


def test_a_policy_alone_reports_what_it_reports_beside_others(corpus):
    together = replay(corpus).document["reports"]
    for number, name in enumerate(GUARD_NAMES[:3]):
        (alone,) = corpus.json("policy", "replay", *named(corpus.guards, [name]))["reports"]
        # A gate that is critical is tested by the faults of others.
        del alone["invariant_checks"], together[number]["invariant_checks"]
        assert alone == together[number]
