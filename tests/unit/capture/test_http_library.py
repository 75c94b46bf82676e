"""Without its library the proxy says what to install."""

import subprocess
import sys

_WITHOUT = """
import sys
sys.modules["h11"] = None
from redrive.errors import UsageError
try:
    import redrive.capture.proxy
except UsageError as error:
    print(error.message, "|", error.hint)
"""


def test_a_missing_library_is_named_with_the_command_that_brings_it() -> None:
    done = subprocess.run(
        (sys.executable, "-c", _WITHOUT), capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        "the recording proxy needs h11, which is not installed | pip install 'redrive[proxy]'\n"
    )
