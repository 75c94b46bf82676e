"""redrive re-drives recorded AI-agent sessions and returns a verdict that can be defended.

What an agent's own code uses is here: `redrive.record(…)` records it, `redrive.rerun(…)` runs it
again on what was recorded. Both are found on first use, so that `import redrive` stays cheap.
"""

import sys

import redrive.record as _package
from redrive.version import __version__ as __version__

# As `typing` has it, whose import costs more than the rest of this one.
TYPE_CHECKING = False
if TYPE_CHECKING:  # for type checkers the function; at run time the package, which can be called
    from typing import Any

    from redrive.app.recording import record as record
    from redrive.app.rerunning import rerun as rerun


class _CallableRecord(type(sys)):  # type: ignore[misc]
    """The package `redrive.record` (facts of a session), which as a function records an agent."""

    def __call__(self, *args: "Any", **options: "Any") -> "Any":
        from redrive.app.recording import record

        # The caller's own frame says where its code lies; this one is not its caller.
        return record(*args, **options)


_package.__class__ = _CallableRecord


def __getattr__(name: str) -> "Any":
    if name == "rerun":
        from redrive.app.rerunning import rerun

        return rerun
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), "rerun"])
