"""Each purity net catches its kind, and what it catches costs nobody else anything."""

import pytest

from tests.cli.conftest import Redrive
from tests.policy_corpus import HEAD, named, policy_text, write_corpus, write_guards

# How a policy gets at what the scan cannot see: by modules that pure ones hold.
HIDDEN = (
    "import dataclasses, json, logging, statistics\n"
    "_built_ins = dataclasses.builtins\n"
    "def take(name): return getattr(_built_ins, '__im' + 'port__')(name)\n"
    "EVERYTHING = getattr(_built_ins, 'Base' + 'Exception')\n"
    "def judge(event):\n"
    "    if (event.command or '').startswith('git push'):\n"
    "        return Notify('pushes')\n"
)
JUDGE = "return judge(event)"
IS_STATUS = "event.command == 'git status'"

# What a policy's text shows: (lines of evaluate, text before the class, the finding).
SEEN = {
    "time.time": (["time.time()"], "import time", "clock: time.time"),
    "from time import time": (["time()"], "from time import time", "clock: time.time"),
    "datetime.now": (
        ["datetime.now()"],
        "from datetime import datetime",
        "clock: datetime.datetime.now",
    ),
    "random": (["random.random()"], "import random", "randomness: random"),
    "uuid4": (["uuid.uuid4()"], "import uuid", "randomness: uuid.uuid4"),
    "os.urandom": (["os.urandom(4)"], "import os", "randomness: os.urandom"),
    "a file": (["open('/etc/hostname')"], "", "file: open"),
    "the network": (["socket.socket()"], "import socket", "network: socket"),
    "the environment": (["os.environ['HOME']"], "import os", "environment: os.environ"),
    "a subprocess": (["subprocess.run(['true'])"], "import subprocess", "process: subprocess"),
    "a thread": (["threading.Thread()"], "import threading", "thread: threading"),
    "sys.exit": (["sys.exit(3)"], "import sys", "process: sys.exit"),
    "os._exit": (["os._exit(3)"], "import os", "os._exit"),
    "a list on itself": (["self.seen.append(1)"], "", "state: a write to self"),
    "a mutable default": (
        ["note()"],
        "def note(seen=[]):\n    seen.append(1)",
        "state: a default of note that can be changed",
    ),
    "catching everything": (
        ["try: pass", "except BaseException: pass"],
        "",
        "swallowing: BaseException",
    ),
}

# What shows only when it runs: (lines of evaluate, net, the beginning of what is said).
UNSEEN = {
    "a clock by parts of its name": (
        ["getattr(take('ti' + 'me'), 'time')()"],
        "stand-in",
        "clock: time.time",
    ),
    "now by parts of its name": (
        ["getattr(take('date' + 'time').datetime, 'n' + 'ow')()"],
        "stand-in",
        "clock: datetime.datetime.now",
    ),
    "monotonic": (["logging.time.monotonic()"], "stand-in", "clock: time.monotonic"),
    "random": (["statistics.random.random()"], "stand-in", "randomness: random.random"),
    "uuid4": (["take('uu' + 'id').uuid4()"], "stand-in", "randomness: uuid.uuid4"),
    "os.urandom": (["logging.os.urandom(4)"], "stand-in", "randomness: os.urandom"),
    "a file": (["logging.io.open('/etc/hostname')"], "stand-in", "file: io.open"),
    "the network": (
        ["take('sock' + 'et').create_connection(('127.0.0.1', 9))"],
        "stand-in",
        "network: socket.",
    ),
    "the environment": (["logging.os.environ.get('HOME')"], "stand-in", "environment: os.environ"),
    "a subprocess": (["take('sub' + 'process').run(['true'])"], "stand-in", "process: subprocess."),
    "a thread": (["logging.threading.Thread(target=print).start()"], "stand-in", "thread: "),
    "os._exit": (["logging.os._exit(0)"], "stand-in", "process: os._exit"),
    "a clock, and catches everything": (
        ["try: logging.time.time()", "except EVERYTHING: pass"],
        "stand-in",
        "clock: time.time, and swallowed the refusal",
    ),
    "an error": (["raise KeyError('x')"], "error", "KeyError: 'x'"),
    "sys.exit": (["dataclasses.sys.exit(3)"], "error", "SystemExit: 3"),
    "4 GB": (["bytearray(4 << 30)"], "limits", "ran out of memory"),
    "a deep recursion": (["def f(): return f()", "f()"], "limits", "recursed too deeply"),
    "a list on itself, by another name": (
        ["seen = self.seen", "seen.append(1)", "return Notify('x') if len(seen) > 2 else None"],
        "recheck",
        "answers differently when asked again: Notify, then None",
    ),
    "a counter in a closure": (["return Notify(f'{next(COUNT)}')"], "recheck", "answers differ"),
    "a write to the state": (
        [f"if {IS_STATUS}: state.standard.tools.set('a', 1).layers[0]['a'] = 2"],
        "error",
        "TypeError: 'mappingproxy' object does not support item assignment",
    ),
    "a write to the event": (["object.__setattr__(event, 'ts_ns', 1)"], "error", "TypeError: "),
    "a change of the state, by force": (
        ["take('msg' + 'spec').structs.force_setattr(state.turn, 'text', f'{next(COUNT)}')"],
        "recheck",
        "changes the state",
    ),
    "a change of the event, by force": (
        ["take('msg' + 'spec').structs.force_setattr(event, 'parent_id', f'{next(COUNT)}')"],
        "recheck",
        "changes the event",
    ),
    "a reason that is no text": (
        ["return Notify(5)"],
        "error",
        "evaluate gave Notify whose reason is a int",
    ),
    "a key that is no text": (
        ["return Notify('x', dedup_key=[1])"],
        "error",
        "evaluate gave Notify whose dedup_key is a list",
    ),
    "an action without a meaning": (["return Action('x')"], "error", "evaluate gave a Action"),
    "an action of the other lane": (["return OTHER"], "error", "a policy of the lane"),
    "something else": (["return 'deny'"], "error", "evaluate gave a str"),
}
ENDLESS = {
    "a loop": [f"while {IS_STATUS}: pass"],
    "a loop that catches everything": [
        f"while {IS_STATUS}:",
        "    try: logging.time.time()",
        "    except EVERYTHING: pass",
    ],
}
SETUP = (
    "    def __init__(self):\n        self.seen = []\n\n"
    "    def __init_subclass__(cls):\n        pass\n"
)
COUNTER = "COUNT = take('iter' + 'tools').count()\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A store with the corpus, and a sound policy's report without any suspect beside it."""
    redrive = Redrive(tmp_path_factory.mktemp("purity"))
    paths = write_corpus(redrive.folder / "recorded", 2)
    assert redrive("import", *paths).code == 0
    redrive.guards = named(write_guards(redrive.folder), ["PushAfterTests"])
    (redrive.sound,) = redrive.json("policy", "replay", *redrive.guards)["reports"]
    assert redrive.sound["fired"] == 14
    return redrive


def replay(corpus, tmp_path, text, *more, code=0):
    """Replay a suspect beside a sound policy, whose report must be what it is alone."""
    path = tmp_path / "suspect.py"
    path.write_text(text)
    done = corpus("policy", "replay", *named(path, ["Suspect"]), *corpus.guards, "--json", *more)
    assert (done.code, done.err) == (code, ""), done
    document = done.document
    suspect, sound = document["reports"]
    assert not document["is_partial"]
    assert len(document["sessions"]) == 3
    del sound["invariant_checks"]
    if "force_setattr" in text:  # nothing holds C code: what all share was changed for all
        assert sound["fired"] == corpus.sound["fired"]
        return suspect
    assert sound == {k: v for k, v in corpus.sound.items() if k != "invariant_checks"}
    return suspect


BY_FORCE = "LIBRARIES = ('msgspec',)\n"


def write(lines, before, lane="observer"):
    other = "Notify('x')" if lane == "gate" else "Deny('x')"
    return policy_text(
        lines, lane=lane, before=f"{HIDDEN}{COUNTER}OTHER = {other}\n{before}", fields=SETUP
    )


def line_of(text, fragment):
    return next(n for n, line in enumerate(text.splitlines(), 1) if fragment in line)


def gate_too(names):
    """Try each as an observer, and every fourth as a gate, too, where the exit code is another."""
    lanes = [(name, "observer") for name in names]
    return lanes + [(name, "gate") for name in list(names)[::4]]


def test_the_control_a_pure_policy_has_no_fault(corpus, tmp_path):
    suspect = replay(corpus, tmp_path, write([JUDGE], ""))
    assert (suspect["fired"], suspect["faults"], suspect["unreplayable"]) == (26, [], [])


@pytest.mark.parametrize(("name", "lane"), gate_too(SEEN))
def test_the_scan_finds_what_the_text_shows_and_nothing_is_run(corpus, tmp_path, name, lane):
    lines, before, expected = SEEN[name]
    text = policy_text([*lines, "return None"], lane=lane, before=before)
    suspect = replay(corpus, tmp_path, text, code=7 if lane == "gate" else 6)
    assert {fault["net"] for fault in suspect["faults"]} == {"scan"}
    assert any(expected in fault["what"] for fault in suspect["faults"]), suspect["faults"]
    assert all(fault["where"].startswith("suspect.py:") for fault in suspect["faults"])
    assert suspect["sessions_scanned"] == 0
    assert [u["reason"] for u in suspect["unreplayable"]] == ["the policy was not loaded"] * 3
    assert suspect["lane"] == lane


@pytest.mark.parametrize(("name", "lane"), gate_too(UNSEEN))
def test_what_the_scan_cannot_see_is_caught_where_it_happens(corpus, tmp_path, name, lane):
    lines, net, expected = UNSEEN[name]
    if lane == "gate":
        lines = [line.replace("Notify(", "Deny(") for line in lines]
        expected = expected.replace("Notify", "deny")
    before, more = (BY_FORCE, ("--recheck", "all")) if "by force" in name else ("", ())
    text = write([*lines, *([] if "return" in lines[-1] else ["return None"])], before, lane)
    suspect = replay(corpus, tmp_path, text, *more, code=7 if lane == "gate" else 6)
    fault = suspect["faults"][0]
    assert fault["net"] == net, fault
    assert fault["what"].startswith(expected), fault
    file, _, line = fault["where"].partition(":")
    assert file == "suspect.py"
    assert int(line) >= line_of(text, "def evaluate")
    assert fault["event_ref"].startswith(fault["session_id"] + "#")
    assert len({fault["session_id"] for fault in suspect["faults"]}) == 3, "others go on"


@pytest.mark.parametrize("name", ENDLESS)
def test_what_does_not_end_is_ended_and_the_session_goes_on_without_it(corpus, tmp_path, name):
    suspect = replay(corpus, tmp_path, write(ENDLESS[name], ""), "--timeout", "0.3", code=6)
    assert [fault["net"] for fault in suspect["faults"]] == ["watchdog"] * 3
    assert {fault["what"] for fault in suspect["faults"]} == {"did not end within 0.3 s"}
    assert len({fault["session_id"] for fault in suspect["faults"]}) == 3
    assert [u["reason"].split(",")[0] for u in suspect["unreplayable"]] == [
        "did not end within 0.3 s"
    ] * 3


def test_a_gate_that_does_not_end_is_a_violation(corpus, tmp_path):
    text = write(ENDLESS["a loop"], "", "gate")
    suspect = replay(corpus, tmp_path, text, "--timeout", "0.3", "--workers", "2", code=7)
    assert len(suspect["faults"]) == 3


def test_a_clock_in_a_module_beside_the_policy_is_found_there(corpus, tmp_path):
    helper = tmp_path / "helper.py"
    helper.write_text("import time\n\ndef since():\n    return time.monotonic()\n")
    text = policy_text(["since()", "return None"], before="from helper import since")
    suspect = replay(corpus, tmp_path, text, code=6)
    assert suspect["faults"][0]["where"] == "helper.py:4"
    helper.write_text("import logging\n\ndef since():\n    return logging.time.monotonic()\n")
    suspect = replay(corpus, tmp_path, text, code=6)
    assert suspect["faults"][0]["where"] == "helper.py:4"
    assert suspect["faults"][0]["net"] == "stand-in"
    helper.write_text("def since():\n    return 0\n")
    assert replay(corpus, tmp_path, text)["faults"] == []


def test_a_flood_of_prints_goes_nowhere_and_changes_nothing(corpus, tmp_path):
    plain = replay(corpus, tmp_path, write([JUDGE], ""))
    flooded = replay(corpus, tmp_path, write(["print('x' * 1_000_000)", JUDGE], ""))
    assert flooded | {"digest": plain["digest"]} == plain


def test_a_huge_reason_is_cut_and_half_a_surrogate_pair_kept(corpus, tmp_path):
    lines = [f"return Notify('\\ud800' + 'a' * 10_000_000) if {IS_STATUS} else None"]
    suspect = replay(corpus, tmp_path, write(lines, ""))
    fires = [fire for session in suspect["per_session"] for fire in session["fires"]]
    assert {fire["reason"][:8] for fire in fires} == {"\ud800" + "a" * 7}
    assert {len(fire["reason"]) for fire in fires} == {1000}


def test_what_breaks_down_while_it_is_loaded_or_made_is_named(corpus, tmp_path):
    loads = write([JUDGE], "logging.time.time()\n")
    fault = replay(corpus, tmp_path, loads, code=6)["faults"][0]
    assert (fault["net"], fault["what"]) == ("stand-in", "clock: time.time")
    assert fault["where"] == f"suspect.py:{line_of(loads, 'logging.time.time()')}"
    raising = write([JUDGE], "1 / 0\n")
    fault = replay(corpus, tmp_path, raising, code=6)["faults"][0]
    assert "ZeroDivisionError" in fault["what"]
    assert fault["where"] == f"suspect.py:{line_of(raising, '1 / 0')}"
    made = policy_text(["return None"], fields="    def __init__(self):\n        1 / 0\n")
    fault = replay(corpus, tmp_path, made, code=6)["faults"][0]
    assert "ZeroDivisionError" in fault["what"]
    assert fault["where"].startswith("suspect.py:")


def test_a_reducer_that_breaks_down_or_gives_a_list_is_named(corpus, tmp_path):
    for fold, words in (("1 / 0", "ZeroDivisionError"), ("[event.id]", "gave a list")):
        text = (
            f"{HEAD}class Seen(Reducer):\n    on = ('tool.call',)\n    initial = ()\n\n"
            f"    def fold(self, value, event):\n        return {fold}\n\n"
            + policy_text(["return None"], fields="    reducers = {'seen': Seen()}\n")
        )
        suspect = replay(corpus, tmp_path, text, code=6)
        assert words in suspect["faults"][0]["what"]
        assert suspect["faults"][0]["where"].startswith("suspect.py:")


def test_a_value_that_cannot_be_written_is_a_fault_of_its_policy(corpus, tmp_path):
    text = (
        f"{HEAD}import dataclasses\n\n\n@dataclasses.dataclass(frozen=True)\nclass Value:\n"
        "    def __repr__(self):\n        raise RuntimeError('not written')\n\n\n"
        "class Seen(Reducer):\n    initial = Value()\n\n\n"
        + policy_text(["return Notify('x')"], fields="    reducers = {'seen': Seen()}\n")
    )
    fault = replay(corpus, tmp_path, text, code=6)["faults"][0]
    assert (fault["net"], fault["what"]) == ("error", "RuntimeError: not written")
    assert fault["where"] == f"suspect.py:{line_of(text, 'raise RuntimeError')}"


def test_a_recording_with_half_a_surrogate_pair_is_replayed(redrive, tmp_path):
    path = tmp_path / "half.jsonl"
    path.write_text(
        '{"type":"session","id":"half"}\n'
        '{"type":"event","kind":"user","id":"u1","ts":"2026-03-02T09:00:00Z","text":"a \\ud800"}\n'
        '{"type":"decision","id":"d1","parent":"u1","ts":"2026-03-02T09:00:01Z","output":{"text":'
        '"\\ud800","tool_calls":[{"call_id":"c1","name":"Bash","args":{"command":"git push '
        '\\udc00"}}]}}\n'
    )
    redrive.imported(path)
    suspect = tmp_path / "suspect.py"
    suspect.write_text(policy_text(["return Notify(event.command, dedup_key=event.command)"]))
    document = redrive.json(
        "policy", "replay", *named(suspect, ["Suspect"]), "--recheck", "all", "--html", "a.html"
    )
    (fire,) = document["reports"][0]["per_session"][0]["fires"]
    assert fire["context"] == fire["reason"] == fire["dedup_key"] == "git push \udc00"


@pytest.mark.parametrize(
    ("line", "net", "what"),
    [
        ("while True: pass", "watchdog", "did not end within 0.5 s while it was loaded"),
        ("dataclasses.sys.exit(3)", "error", "raised while it was loaded: SystemExit: 3"),
        ("x = bytearray(4 << 30)", "error", "raised while it was loaded: MemoryError: "),
    ],
)
def test_a_policy_that_hurts_its_process_while_it_is_loaded(corpus, tmp_path, line, net, what):
    suspect = replay(corpus, tmp_path, write([JUDGE], f"{line}\n"), "--timeout", "0.5", code=6)
    assert [(fault["net"], fault["what"]) for fault in suspect["faults"]] == [(net, what)]


def test_a_policy_that_can_be_made_but_once_is_a_fault_of_its_own(corpus, tmp_path):
    made = policy_text(
        [JUDGE],
        before=HIDDEN + COUNTER,
        fields="    def __init__(self):\n        1 / (next(COUNT) < 2)\n",
    )
    suspect = replay(corpus, tmp_path, made, code=6)
    assert "ZeroDivisionError" in suspect["faults"][0]["what"]
    assert suspect["faults"][0]["where"].startswith("suspect.py:")


def test_what_a_policy_keeps_in_its_class_is_not_carried_from_session_to_session(corpus, tmp_path):
    keeps = policy_text(
        ["seen = self.seen", "seen.append(1)", "return Notify('x') if len(seen) > 5 else None"],
        fields="    seen = []\n",
    )
    one, two = (replay(corpus, tmp_path, keeps, "--workers", n, code=6) for n in ("1", "2"))
    assert one == two
    fault = one["faults"][0]
    assert fault["what"] == "answers differently when asked again: Notify, then None"
