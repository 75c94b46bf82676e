import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redrive.app.hook_reporting import report_to_recorder
from redrive.capture.claude_hooks import MAX_BYTES
from redrive.errors import UsageError


@contextmanager
def recorder(status: int) -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    taken: list[tuple[str, bytes]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/TOKEN/redrive", taken
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("status", [200, 404, 500])
def test_the_input_goes_to_the_recorder_as_it_is(status: int):
    with recorder(status) as (url, taken):
        assert report_to_recorder(b'{"a": 1}', {"REDRIVE_RECORDER": url}) is (status == 200)
    assert taken == [("/TOKEN/redrive/claude-hook", b'{"a": 1}')]


@pytest.mark.parametrize("environment", [{}, {"REDRIVE_RECORDER": ""}])
def test_without_a_recorder_nothing_is_sent(environment: dict[str, str]):
    assert not report_to_recorder(b"{}", environment)


@pytest.mark.parametrize(
    "url", ["https://127.0.0.1:1/x", "http://recorder.example:1/x", "http://127.0.0.1/x", "x"]
)
def test_a_recorder_elsewhere_is_refused_and_nothing_is_sent(url: str):
    with pytest.raises(UsageError, match="no URL of a recorder"):
        report_to_recorder(b"{}", {"REDRIVE_RECORDER": url})


def test_an_input_that_is_too_large_is_refused_and_nothing_is_sent():
    with recorder(200) as (url, taken), pytest.raises(UsageError, match="bytes"):
        report_to_recorder(b" " * (MAX_BYTES + 1), {"REDRIVE_RECORDER": url})
    assert taken == []


def test_a_process_that_waits_too_long_ends_with_0():
    code = (
        "import time\n"
        "from redrive.app.hook_reporting import end_in_time\n"
        "end_in_time(0.2)\n"
        "time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 0
