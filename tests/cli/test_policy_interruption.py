"""A replay that is interrupted, or killed, says what it did and leaves no process behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.policy_corpus import named, policy_text, write_guards
from tests.stored import opened

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

# Endless in the fourth session alone; the others are done in no time.
BUSY = policy_text(["while 'work-3' in event.session_id: pass", "return Notify('x')"], name="Busy")


@pytest.fixture
def busy(redrive, corpora):
    """A store with the corpus, and a replay that does not come to its end."""
    corpora.put_into(redrive)
    policy = redrive.folder / "busy.py"
    policy.write_text(BUSY)
    guards = named(write_guards(redrive.folder), ["PushAfterTests"])
    redrive.arguments = ("policy", "replay", *named(policy, ["Busy"]), *guards, "--timeout", "600")
    return redrive


def start(redrive, *more):
    """Start the replay in a group of its own; wait until its worker is in the endless loop."""
    process = subprocess.Popen(
        [sys.executable, "-m", "redrive", *redrive.arguments, "--json", *more],
        env=os.environ | {"REDRIVE_STORE": str(redrive.store)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    deadline = time.monotonic() + 300
    while not any(cpu_s(pid) > 2.5 for pid in children(process.pid)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, children(process.pid)


def stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def children(parent):
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    return [pid for pid in pids if (fields := stat(pid)) and int(fields[1]) == parent]


def cpu_s(pid):
    fields = stat(pid)
    return 0 if fields is None else (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_running(pid):
    fields = stat(pid)
    return fields is not None and fields[0] != "Z"


def wait_until_gone(pids):
    deadline = time.monotonic() + 60
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, pids))


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGTERM])
def test_what_was_done_is_told_and_nothing_of_it_is_stored(busy, sign):
    process, workers = start(busy, "--workers", "1")
    assert len(workers) == 2, "one for each policy"
    # As a terminal does it: the whole group gets the signal, workers included.
    os.killpg(process.pid, sign) if sign == signal.SIGINT else process.send_signal(sign)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert err == b"redrive: interrupted; 4 sessions replayed, 2 left, no report stored\n"
    document = json.loads(out)
    assert document["is_partial"]
    assert document["sessions_left"] == ["interchange:work-3", "interchange:work-4"]
    assert len(document["sessions"]) == 4
    assert document["reports"][1]["sessions_scanned"] == 4
    assert wait_until_gone(workers)
    with opened(busy.store) as store:
        assert store.policies.reports() == []
    assert busy("verify").code == 0


def test_several_workers_end_with_the_replay(busy):
    process, workers = start(busy, "--workers", "3")
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 130
    left = set(json.loads(out)["sessions_left"])
    # The policies take turns after three sessions, one of which never ends.
    assert {"interchange:work-3"} <= left <= {f"interchange:work-{n}" for n in (2, 3, 4)}
    assert wait_until_gone(workers)


def test_a_killed_replay_leaves_no_worker_though_a_policy_is_in_a_loop(busy):
    process, workers = start(busy, "--workers", "2")
    process.kill()
    process.communicate(timeout=300)
    assert workers
    assert wait_until_gone(workers)
    assert busy("verify").code == 0
