"""Runs trials whose runs only ask a model, to be killed; one process that forks them.

Run: python -m tests.soak.trials URL, then one line per trial on stdin: N_BILLS AFTER_MS WORDS STORE
LOG. The trial is killed AFTER_MS after its endpoint has written so many more bills; the answer is
`killed` or `finished`. Words, joined by a comma: `keyed` (the plan says that the endpoint bills a
key once), `forgetful` (its ledger settles only every other answer as it should).

A run is a thread that asks five times: what it asks is made of what it was answered, and two of its
requests are equal. So a run that is made again asks the same, if it is given the same.
"""

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from msgspec.structs import replace

from redrive.app.trial_ledger import TrialLedger
from redrive.app.trial_ports import Account
from redrive.capture.ports import Headers, Outcome, SentRequest, ServedAnswer
from redrive.replay.ledger import Reserved
from redrive.replay.trial_plan import PlanModel, TrialPlan
from redrive.replay.trial_values import Purpose, RunKey
from tests.trials import COMPLETE, MODEL, chat_body, planned

N_PARALLEL = 8
N_TURNS = 5
PLAN = planned(variants=3, tasks=8, replay="0.50")
_ROOT = Path(__file__).resolve().parents[2]


class Endpoint:
    """Asks over HTTP as the broker does: charge first, settle whatever comes back."""

    def __init__(self, url: str) -> None:
        self._url = f"{url}/chat/completions"
        self._address = urlsplit(url).netloc

    def ask(self, account: Account, model: PlanModel, body: bytes) -> ServedAnswer:
        """Give the answer, live or as it was paid for; status 0 where none came."""
        charge = account.reserve(model, SentRequest("POST", self._url, (), body, 0))
        if isinstance(charge, ServedAnswer):
            return charge
        answer = self._send(body, charge.idempotency_key)
        charge.settle(answer.status, answer.headers, answer.body, answer.outcome)
        return answer

    def _send(self, body: bytes, key: str) -> ServedAnswer:
        connection = http.client.HTTPConnection(self._address, timeout=60)
        try:
            headers = {"content-type": "application/json", "idempotency-key": key}
            connection.request("POST", self._url, body, headers)
            response = connection.getresponse()
            head: Headers = tuple((k.lower(), v) for k, v in response.getheaders())
            try:
                return ServedAnswer(response.status, head, response.read())
            except http.client.IncompleteRead as cut:
                return ServedAnswer(response.status, head, cut.partial, Outcome.CUT)
        except (OSError, http.client.HTTPException):
            return ServedAnswer(0, (), b"", Outcome.FAILED)
        finally:
            connection.close()


def text_of(answer: ServedAnswer) -> str:
    """Read a chat answer, streamed or not, as far as the next question needs it."""
    if not answer.body.startswith(b"{"):
        return answer.body.decode()[:60]
    fields = json.loads(answer.body)
    return str(fields["choices"][0]["message"]["content"]) if "choices" in fields else "error"


def make_run(ledger: TrialLedger, endpoint: Endpoint, key: RunKey, model: PlanModel) -> None:
    """Make one run to its end."""
    ledger.start_run(key)
    account = ledger.account(str(key), Purpose.REPLAY)
    said = f"{key}"
    for turn in range(N_TURNS):
        is_streamed = turn % 2 == 1
        said = text_of(endpoint.ask(account, model, chat_body(said, stream=is_streamed)))
        if turn == 2:  # an equal request: its answer is another charge's
            said += text_of(endpoint.ask(account, model, chat_body("equal")))
            said += text_of(endpoint.ask(account, model, chat_body("equal")))
    ledger.finish_run(key, COMPLETE)


def run_trial(store: Path, url: str, words: str, plan: TrialPlan = PLAN) -> None:
    """Begin the trial of a store, or go on with it, and run what is left."""
    model = replace(MODEL, is_idempotent="keyed" in words)
    kind = Forgetful if "forgetful" in words else TrialLedger
    is_begun = store.exists() and _has_trial(store)
    ledger = kind.resume(store, "triage") if is_begun else kind.begin(store, plan, b"")
    with ledger, ThreadPoolExecutor(N_PARALLEL) as pool:
        left = [key for key, run in ledger.ledger.runs.merged().items() if not run.is_finished]
        endpoint = Endpoint(url)
        for future in [pool.submit(make_run, ledger, endpoint, key, model) for key in left]:
            future.result()


def _has_trial(store: Path) -> bool:
    from redrive.stores.sqlite import open_store

    opened = open_store(store, create=True)
    try:
        return bool(opened.trials.list_trials())
    finally:
        opened.close()


class Forgetful(TrialLedger):
    """The control: it forgets every other settlement, and that it was forgotten."""

    _n_settled = 0

    def settle(self, model: PlanModel, reserved: Reserved, answer: ServedAnswer) -> None:
        self._n_settled += 1
        if self._n_settled % 2:
            super().settle(model, reserved, answer)


class Killer:
    """Starts trials and kills them."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, store: Path, log: Path, *, n_bills: int, after_ms: int, words: str) -> bool:
        """Run what is left of a trial; say whether it was killed before its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{n_bills} {after_ms} {words or '-'} {store} {log}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer in ("killed\n", "finished\n"), answer
        return answer == "killed\n"


@contextmanager
def started_killer(url: str) -> Iterator[Killer]:
    """Start the process that forks trials against an endpoint."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.soak.trials", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT / "src"), str(_ROOT)])},
        cwd=_ROOT,
    )
    with process:
        yield Killer(process)
        assert process.stdin is not None
        process.stdin.close()


def _fork_and_kill(url: str, n_bills: int, after_ms: int, words: str, paths: list[Path]) -> str:
    store, log = paths
    n_before = _n_lines(log)
    child = os.fork()
    if not child:
        _run_and_exit(store, url, words)
    while _n_lines(log) < n_before + n_bills:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return _say(status)
        time.sleep(0.001)
    time.sleep(after_ms / 1000)
    os.kill(child, signal.SIGKILL)
    return _say(os.waitpid(child, 0)[1])


def _say(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "killed"
    return "failed" if os.waitstatus_to_exitcode(status) else "finished"


def _run_and_exit(store: Path, url: str, words: str) -> NoReturn:
    try:
        run_trial(store, url, words)
    except BaseException:  # noqa: BLE001 - a forked child must not return
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _n_lines(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def _main(url: str) -> None:
    assert threading.active_count() == 1
    for line in sys.stdin:
        n_bills, after_ms, words, *paths = line.split()
        where = [Path(path) for path in paths]
        said = _fork_and_kill(url, int(n_bills), int(after_ms), words, where)
        print(said, flush=True)  # noqa: T201


if __name__ == "__main__":
    _main(sys.argv[1])
