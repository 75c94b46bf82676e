import subprocess
import sys

import pytest

from redrive.sandbox import limits

CODE = """
import resource, sys
from redrive.sandbox.limits import set_limits
print(set_limits({arguments}))
{after}
"""


def run(arguments: str, after: str) -> tuple[int, str]:
    code = CODE.format(arguments=arguments, after=after)
    # A child that may write no file cannot write its coverage either, hence no environment.
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={}
    )
    return done.returncode, done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone")
def test_a_policy_that_takes_four_gigabytes_gets_a_memory_error_and_goes_on():
    after = (
        "try:\n    bytearray(4 * 10**9)\nexcept MemoryError:\n    print('refused')\n"
        "print(len(bytearray(10**8)))"
    )
    assert run("", after) == (0, "()\nrefused\n100000000\n")


@pytest.mark.skipif(sys.platform != "linux", reason="address space is limited on Linux alone")
def test_the_limit_counts_from_what_is_mapped_and_cannot_be_raised_again():
    after = (
        "try:\n    bytearray(60 * 10**6)\nexcept MemoryError:\n    print('refused')\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_AS)\nprint(soft == hard > 5 * 10**7)"
    )
    assert run("50 * 10**6", after) == (0, "()\nrefused\nTrue\n")


def test_no_core_file_and_no_file_of_any_size_is_written(tmp_path):
    path = tmp_path / "made"
    after = (
        "print(resource.getrlimit(resource.RLIMIT_CORE))\n"
        f"try:\n    open({str(path)!r}, 'wb', 0).write(b'x')\n"
        "except OSError as error:\n    print(type(error).__name__)"
    )
    code, out = run("file_bytes=0", after)
    assert (code, out.splitlines()[1:]) == (0, ["(0, 0)", "OSError"])
    assert path.read_bytes() == b""


def test_processor_time_ends_a_process_that_hangs():
    code, _ = run("cpu_s=1", "while True: pass")
    assert code < 0


def test_a_limit_that_the_platform_lacks_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "_STATM", tmp_path / "none")
    monkeypatch.setattr(limits, "resource", Lacking())
    assert limits.set_limits(processes=5, cpu_s=-4) == (
        "RLIMIT_CPU: not allowed",
        "RLIMIT_NPROC: not on this platform",
        "RLIMIT_AS: this platform does not say what is mapped",
    )


class Lacking:
    RLIM_INFINITY = -1
    RLIMIT_CORE = 1
    RLIMIT_CPU = 2

    def getrlimit(self, kind):
        return (0, 9)

    def setrlimit(self, kind, pair):
        if kind == self.RLIMIT_CPU:
            raise ValueError("not allowed")
