"""redrive re-drives recorded AI-agent sessions and returns a verdict that can be defended.

What an agent's own code uses is here: `redrive.record(…)` records it, `redrive.rerun(…)` runs it
again on what was recorded.
"""

from redrive.face import record, rerun
from redrive.version import __version__

__all__ = ["__version__", "record", "rerun"]
