import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from redrive.capture import mcp_stdio
from redrive.capture.mcp import Seen
from redrive.capture.mcp_stdio import LineSplitter, end_like, relay_stdio
from redrive.errors import RerunStopped, StoreError, UsageError

CAT = "import os\nwhile d := os.read(0, 9999): os.write(1, d)"


class Shown:
    """Is shown lines; `error` is raised for the line `refused`."""

    def __init__(self, *, is_serving: bool = False) -> None:
        self.is_serving = is_serving
        self.lines: list[tuple[str, bytes]] = []
        self.skips: list[tuple[str, int]] = []
        self.refused = b""
        self.error: StoreError | RerunStopped = StoreError("disk full")

    def from_client(self, data: bytes) -> Seen:
        if self.refused and data == self.refused:
            raise self.error
        self.lines.append(("client", data))
        is_call = self.is_serving and data.startswith(b"call")
        return Seen((), (data.upper() if data != b"call off" else b"") if is_call else None)

    def from_server(self, data: bytes) -> None:
        self.lines.append(("server", data))

    def skipped(self, side: str, n_bytes: int, reason: str) -> None:
        self.skips.append((str(side), n_bytes))

    def of(self, side: str) -> list[bytes]:
        return [data for who, data in self.lines if who == side]


class Client:
    """The client's side of a relay that runs in this process."""

    def __init__(self) -> None:
        self.theirs_in, self.to_server = os.pipe()
        self.from_server, self.theirs_out = os.pipe()
        self.read = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with suppress(OSError):
            while chunk := os.read(self.from_server, 65536):
                self.read += chunk

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.to_server, view) :]

    def wait_for(self, data: bytes) -> None:
        deadline = time.monotonic() + 60
        while data not in self.read:
            assert time.monotonic() < deadline, bytes(self.read[-200:])
            time.sleep(0.002)

    def leave(self) -> None:
        with suppress(OSError):
            os.close(self.to_server)

    def end(self) -> bytes:
        self._reader.join(60)
        return bytes(self.read)


@contextmanager
def doing(work: Any, *arguments: Any) -> Iterator[None]:
    """Run the client's part in a thread beside the relay, which needs the main one."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work(*arguments)
        except BaseException as error:  # noqa: BLE001 - told where the test waits
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join(60)
    assert not thread.is_alive()
    assert failed == []


def python(code: str) -> Sequence[str]:
    return (sys.executable, "-I", "-S", "-c", code)


def relay(client: Client, code: str, seen: Shown | None = None, **fields: Any) -> int:
    return relay_stdio(
        python(code),
        seen or Shown(),
        client_in=client.theirs_in,
        client_out=client.theirs_out,
        environment=dict(os.environ),
        **fields,
    )


def test_bytes_pass_unchanged_both_ways_and_each_line_is_shown():
    client, seen = Client(), Shown()
    data = b'{"a": "\xc3\xa4"}\r\n\n\xff\x00garbage\n' + b"x" * 200_000 + b"\nno end"

    def work() -> None:
        client.write(data)
        client.leave()

    with doing(work):
        assert relay(client, CAT, seen) == 0
    assert client.end() == data
    lines = [line for line in data.split(b"\n") if line]
    assert seen.of("client") == lines
    assert seen.of("server") == lines


def test_a_line_is_shown_before_it_is_passed_on():
    client, seen = Client(), Shown()

    def work() -> None:
        for n in range(50):
            client.write(b"ask %d\n" % n)
            client.wait_for(b"ask %d\n" % n)
            assert seen.lines[-1] == ("server", b"ask %d" % n)
            assert seen.lines[-2] == ("client", b"ask %d" % n)
        client.leave()

    with doing(work):
        assert relay(client, CAT, seen) == 0


def test_what_does_not_end_a_line_goes_on_at_once():
    client, seen = Client(), Shown()

    def work() -> None:
        client.write(b"half")
        client.wait_for(b"half")
        assert seen.lines == []
        client.leave()

    with doing(work):
        assert relay(client, CAT, seen) == 0


def test_a_line_beyond_the_bound_passes_and_is_not_shown():
    client, seen = Client(), Shown()
    data = b"y" * 300_000 + b"\nshort\n"

    def work() -> None:
        client.write(data)
        client.leave()

    with doing(work):
        relay(client, CAT, seen, max_line_bytes=1000)
    assert client.end() == data
    assert seen.of("server") == [b"short"]
    assert ("server", 300_000) in seen.skips


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_server_s_exit_code_is_the_result_and_what_it_wrote_last_arrives(code: int):
    client = Client()
    last = f"import os; os.write(1, b'z' * 500000); os.write(1, b'bye'); os._exit({code})"
    assert relay(client, last) == code
    assert client.end() == b"z" * 500_000 + b"bye"
    client.leave()


def test_a_server_that_a_signal_kills_is_told_by_its_number():
    client = Client()
    assert relay(client, "import os; os.kill(os.getpid(), 9)") == -9
    client.leave()


def test_a_process_that_the_server_left_behind_is_not_waited_for():
    client = Client()
    code = (
        "import os, subprocess, sys\n"
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "os.write(1, b'%d\\n' % left.pid)"
    )
    assert relay(client, code) == 0
    client.wait_for(b"\n")
    os.kill(int(client.read), signal.SIGKILL)  # it is still there
    client.leave()


def test_a_client_that_reads_no_more_ends_the_server():
    client = Client()
    os.close(client.from_server)
    flood = "import os\ntry:\n  while 1: os.write(1, b'x\\n')\nexcept OSError: os._exit(7)"
    assert relay(client, flood) == 7
    client.leave()


def test_a_server_that_reads_no_more_shows_the_client_a_closed_pipe():
    client = Client()
    seen: list[str] = []

    def work() -> None:
        try:
            while True:
                client.write(b"more\n")
                time.sleep(0.005)
        except OSError:
            seen.append("closed")
        client.leave()

    with doing(work):
        assert relay(client, "import os, time; os.close(0); time.sleep(0.5)") == 0
    assert seen == ["closed"]


def test_a_signal_reaches_the_server(tmp_path: Any):
    code = (
        "import signal, os, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(42))\n"
        "os.write(1, b'ready')\n"
        "time.sleep(120)"
    )
    client = Client()

    def work() -> None:
        client.wait_for(b"ready")
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    with doing(work):
        assert relay(client, code) == 42
    assert signal.getsignal(signal.SIGTERM) is before
    client.leave()


def test_a_recorder_that_must_not_fail_stops_the_message_and_the_server():
    client, seen = Client(), Shown()
    seen.refused = b"unsafe call"

    def work() -> None:
        client.write(b"first\n")
        client.wait_for(b"first\n")
        client.write(b"unsafe call\n")

    with doing(work), pytest.raises(StoreError, match="disk full"):
        relay(client, CAT, seen)
    assert client.end() == b"first\n"
    client.leave()


def test_what_the_observer_answers_goes_back_and_never_to_the_server():
    client, seen = Client(), Shown(is_serving=True)

    def work() -> None:
        client.write(b"list\ncall 1\ncall off\nca")
        client.write(b"ll 2\nbye")
        client.wait_for(b"CALL 2\n")
        client.leave()

    with doing(work):
        assert relay(client, CAT, seen) == 0
    assert sorted(client.end().splitlines()) == [b"CALL 1", b"CALL 2", b"bye", b"list"]
    assert seen.of("server") == [b"list", b"bye"]


def test_a_rerun_that_stops_ends_the_connection():
    client, seen = Client(), Shown(is_serving=True)
    seen.refused, seen.error = b"call 1", RerunStopped("another call was recorded")

    with doing(client.write, b"call 1\n"), pytest.raises(RerunStopped):
        relay(client, CAT, seen)
    assert client.end() == b""
    client.leave()


def test_a_line_that_is_too_long_to_be_judged_goes_nowhere_while_results_are_served():
    client, seen = Client(), Shown(is_serving=True)

    def work() -> None:
        client.write(b"y" * 300_000 + b"\nshort\n")
        client.leave()

    with doing(work):
        assert relay(client, CAT, seen, max_line_bytes=1000) == 0
    assert client.end() == b"short\n"


def test_a_server_that_cannot_be_started_is_named():
    client = Client()
    with pytest.raises(UsageError, match="no/such/server: No such file"):
        relay_stdio(
            ("no/such/server",),
            Shown(),
            client_in=client.theirs_in,
            client_out=client.theirs_out,
            environment={},
        )
    for descriptor in (client.theirs_in, client.theirs_out):
        os.close(descriptor)
    client.leave()


def test_a_pipe_that_the_client_made_non_blocking_loses_nothing():
    client = Client()
    os.set_blocking(client.theirs_out, False)
    os.set_blocking(client.theirs_in, False)
    data = b"line\n" * 100_000

    def work() -> None:
        client.write(data)
        client.leave()

    with doing(work):
        assert relay(client, CAT) == 0
    assert client.end() == data


def test_a_terminal_s_signals_are_left_to_the_terminal(monkeypatch: pytest.MonkeyPatch):
    sent: list[int] = []

    class Child:
        def send_signal(self, number: int) -> None:
            sent.append(number)

    monkeypatch.setattr(mcp_stdio, "_in_foreground", lambda: True)
    with mcp_stdio.forwarded_signals(Child()):  # type: ignore[arg-type]
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGHUP)
        while not sent:
            time.sleep(0.001)
    assert sent == [signal.SIGHUP]


def test_lines_are_put_together_from_chunks_of_any_cut():
    data = b"one\ntwo\n\nthree"
    for cut in range(len(data) + 1):
        shown: list[bytes] = []
        lines = LineSplitter(shown.append, lambda n: None, 100)
        lines.feed(data[:cut])
        lines.feed(data[cut:])
        lines.end()
        assert shown == [b"one", b"two", b"three"]


def test_to_end_like_a_killed_server_is_to_be_killed():
    assert end_like(5) == 5
    code = "from redrive.capture.mcp_stdio import end_like; end_like(-15)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -15
