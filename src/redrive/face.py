"""What an agent's own code uses of redrive; found on first use, so that `import redrive` is cheap.

`redrive.record` is a package (the facts of a session) and, called, records an agent.
"""

# As `typing` has it, whose import costs more than the rest of this one.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from redrive.app.recording import record as record
    from redrive.app.rerunning import rerun as rerun
else:
    import sys

    import redrive.record as record

    class _CallableRecord(type(sys)):
        """The package `redrive.record`, which as a function is `redrive.app.recording.record`."""

        def __call__(self, *args: "Any", **options: "Any") -> "Any":
            from redrive.app import recording

            return recording.record(*args, **options)

    record.__class__ = _CallableRecord

    def rerun(*args: "Any", **options: "Any") -> "Any":
        """Run an agent's function again on what was recorded; see `redrive.app.rerunning.rerun`."""
        from redrive.app import rerunning

        return rerunning.rerun(*args, **options)
