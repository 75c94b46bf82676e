"""A policy that cannot be replayed is told in one line, and then nothing was run."""

import subprocess

import pytest

from tests.policy_corpus import HEAD, named, policy_text, write_guards
from tests.stored import opened

DECLARED = {
    "a gate with a cooldown": ("lane = 'gate'; cooldown_s = 5.0", "is a gate with cooldown_s"),
    "a gate with a budget": ("lane = 'gate'; per_segment = 1", "is a gate with per_segment"),
    "a gate on L2": ("lane = 'gate'; needs = ('wrap_up',)", "is a gate that needs an inference"),
    "an unknown kind": ("on = ('tool.cal',)", "no event kind 'tool.cal'"),
    "a text as kinds": ("on = 'tool.call'", "`on` is 'tool.call'"),
    "no kinds": ("on = ()", "judges no event kind"),
    "kinds that are no texts": ("on = (5,)", "`on` is (5,)"),
    "kinds that are a number": ("on = 5", "`on` is 5"),
    "a wrong lane": ("lane = 'gat'", "no lane 'gat'"),
    "a cooldown of no seconds": ("cooldown_s = 0", "cooldown_s is 0"),
    "a critical observer": ("critical = True", "is critical and no gate"),
}


@pytest.fixture
def corpus(redrive, corpora):
    corpora.put_into(redrive, 1)
    redrive.guards = named(write_guards(redrive.folder), ["PushAfterTests"])
    return redrive


def refused(corpus, spec, code):
    """Replay beside a sound policy; hold that it is one line, and that nothing was run."""
    for words in ((), ("--json",)):
        done = corpus("policy", "replay", *corpus.guards, "--policy", spec, *words)
        assert done.code == code, done
        assert done.err.count("\n") == 1
        assert done.err.startswith("redrive: ")
        assert "hint" in done.err
    assert done.document["error"]["code"] == code
    with opened(corpus.store) as store:
        assert store.policies.reports() == []
    return done.err


@pytest.mark.parametrize("name", DECLARED)
def test_a_wrong_declaration_is_a_policy_fault_and_nothing_is_run(corpus, name):
    fields, words = DECLARED[name]
    path = corpus.folder / "wrong.py"
    path.write_text(policy_text(["return None"], fields=f"    {fields}\n"))
    assert words in refused(corpus, f"{path}:Suspect", 6)


def test_what_is_no_policy_is_a_policy_fault(corpus):
    path = corpus.folder / "other.py"
    path.write_text(HEAD + "class Other:\n    pass\n\nNUMBER = 5\n")
    assert "is no policy" in refused(corpus, f"{path}:Other", 6)
    assert "is no policy" in refused(corpus, f"{path}:NUMBER", 6)


def test_what_is_not_there_is_a_usage_error(corpus):
    guards = corpus.folder / "guards.py"
    assert "no such file" in refused(corpus, "nowhere.py:Some", 2)
    assert "no Nobody in the file" in refused(corpus, f"{guards}:Nobody", 2)
    assert "PushAfterTests" in refused(corpus, f"{guards}:Nobody", 2), (
        "the hint names what is there"
    )
    assert "no policy named" in refused(corpus, "Nobody", 2)
    assert "no policy named" in refused(corpus, str(guards), 2)
    assert "git has no guards.py" in refused(corpus, f"{guards}:PushAfterTests@no-such-rev", 2)
    assert "no git revision" in refused(corpus, f"{guards}:PushAfterTests@--output=x", 2)
    assert "named twice" in refused(corpus, f"{guards}:PushAfterTests", 2)
    assert not (corpus.folder / "x").exists()


def test_no_policy_or_no_session_is_a_usage_error(corpus):
    for words in ((), (*corpus.guards, "--sessions", "nobody")):
        done = corpus("policy", "replay", *words)
        assert (done.code, done.err.count("\n")) == (2, 1)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("class Suspect(:\n", "no Python: invalid syntax"),
        (policy_text(["return None"], before="import numpy"), "undeclared library: numpy"),
        (policy_text(["return None"], before="\nfrom nowhere import x"), "undeclared library"),
        ("\x00", "no Python: "),
    ],
)
def test_a_text_that_breaks_the_rules_is_a_fault_of_its_own_and_others_go_on(corpus, text, what):
    path = corpus.folder / "suspect.py"
    path.write_text(text)
    done = corpus("policy", "replay", *corpus.guards, "--policy", f"{path}:Suspect", "--json")
    assert (done.code, done.err) == (6, "")
    sound, suspect = done.document["reports"]
    assert sound["fired"] == 8
    assert suspect["faults"][0]["what"].startswith(what)
    assert suspect["faults"][0]["where"].startswith("suspect.py:")
    with opened(corpus.store) as store:
        assert [report.policy for report in store.policies.reports()] == ["PushAfterTests"]


def test_a_declared_library_that_is_not_installed_is_named(corpus):
    path = corpus.folder / "suspect.py"
    text = policy_text(["return None"], before="LIBRARIES = ('nowhere_at_all',)\n")
    path.write_text(text)
    document = corpus.json("policy", "replay", "--policy", f"{path}:Suspect", code=6)
    assert "nowhere_at_all" in document["reports"][0]["faults"][0]["what"]


def test_a_policy_without_a_version_text_is_kept_all_the_same(corpus):
    path = corpus.folder / "suspect.py"
    path.write_text(policy_text(["return None"], fields="    version = ''\n"))
    corpus.json("policy", "replay", "--policy", f"{path}:Suspect")
    with opened(corpus.store) as store:
        assert [report.version for report in store.policies.reports()] == [""]


def test_two_policies_of_one_file_name_keep_their_own_neighbours(corpus):
    specs = []
    for folder, word in (("a", "first"), ("b", "second")):
        (corpus.folder / folder).mkdir()
        (corpus.folder / folder / "helper.py").write_text(f"WORD = {word!r}\n")
        path = corpus.folder / folder / "same.py"
        path.write_text(
            policy_text(["return Notify(WORD)"], before="from helper import WORD", name="Same")
        )
        specs += named(path, ["Same"])
    reports = corpus.json("policy", "replay", *specs)["reports"]
    reasons = [{f["reason"] for s in r["per_session"] for f in s["fires"]} for r in reports]
    assert reasons == [{"first"}, {"second"}]


def test_a_policy_may_come_from_a_module_beside_the_named_file(corpus):
    (corpus.folder / "inner.py").write_text(policy_text(["return Notify('x')"]))
    for text in ("from inner import Suspect", "from inner import *", "import inner\nSuspect = 5"):
        outer = corpus.folder / "outer.py"
        outer.write_text(text.replace("= 5", "= inner.Suspect"))
        (report,) = corpus.json("policy", "replay", "--policy", f"{outer}:Suspect")["reports"]
        assert report["fired"] > 0


def git(folder, *words):
    command = ["git", "-c", "user.name=n", "-c", "user.email=n@n.example", *words]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def test_a_git_revision_of_a_policy_is_replayed_with_what_lay_beside_it(corpus):
    folder = corpus.folder / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    helper, path = folder / "helper.py", folder / "same.py"
    for word in ("first", "second"):
        helper.write_text(f"WORD = {word!r}\n")
        path.write_text(
            policy_text(["return Notify(WORD)"], before="from helper import WORD", name="Same")
        )
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", word)
    helper.write_text("WORD = 'third'\n")
    specs = [f"{path}:Same{tail}" for tail in ("@HEAD~1", "@HEAD", "")]
    words = [word for spec in specs for word in ("--policy", spec)]
    reports = corpus.json("policy", "replay", *words)["reports"]
    reasons = [{f["reason"] for s in r["per_session"] for f in s["fires"]} for r in reports]
    assert reasons == [{"first"}, {"second"}, {"third"}]
    assert [report["source"] for report in reports] == ["same.py@HEAD~1", "same.py@HEAD", "same.py"]
    assert len({report["digest"] for report in reports}) == 3
