"""A sealed process: whether policy code runs in it, what was refused, and who is spared.

Knows the frames of a call. Must not know which functions are replaced; `standins.py` does that.

Source: DESIGN.md §7 "Purity".
"""

import sys
import zipimport
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Final

import msgspec

from redrive.errors import PurityFault

_MAX_VIOLATIONS = 100
_IMPORT_SYSTEM: Final = (
    vars(sys.modules["_frozen_importlib"]),
    vars(sys.modules["_frozen_importlib_external"]),
    vars(zipimport),
)
_PATH_MODULES: Final = frozenset(
    (
        __name__,
        "redrive.sandbox.standins",
        "redrive.sandbox.clocks",
        "os",
        "posixpath",
        "genericpath",
        "pathlib",
        "shutil",
    )
)
_STDLIB_PLACES: Final = (
    (sys.modules["os"].__file__ or "").removesuffix("os.py"),
    "<frozen ",
    __file__.removesuffix("sealed.py"),  # a stand-in may stand between the caller and the original
)
_get_frame = sys._getframe
Call = Callable[..., Any]


class Violation(msgspec.Struct, frozen=True):
    """One attempt of a policy at something it may not do.

    Args:
        what: kind and function, such as `clock: time.time`.
        file: the policy's file; empty if none of its frames was running.
        line: 0 if the file is empty.
    """

    what: str
    file: str
    line: int


class Sealed:
    """A process in which the stand-ins are in place.

    `is_armed` says whether policy code is running; it may be set by hand, and `with sealed:` sets
    it too. It holds for the whole process: a thread of the worker's own is not told apart.

    Attributes:
        printed_chars: how much was printed to nowhere.
        violations: what was attempted and not taken yet, oldest first.
    """

    __slots__ = ("_files", "_has_coverage", "is_armed", "printed_chars", "violations")

    def __init__(self) -> None:
        self.is_armed = False
        self.printed_chars = 0
        self._files: set[str] = set()
        self.violations: list[Violation] = []
        self._has_coverage = "coverage" in sys.modules

    def __enter__(self) -> None:
        self.is_armed = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.is_armed = False

    def policy_code(self) -> "Sealed":
        """Name what a `with` runs armed: `with sealed.policy_code(): policy.evaluate(…)`."""
        return self

    def add_policy_file(self, file: str) -> None:
        """Let violations be placed in `file`, and refuse `exec` and the like called from it."""
        self._files.add(file)

    def is_policy_frame(self, frame: FrameType) -> bool:
        """Tell whether a frame runs code of a policy's own files."""
        return frame.f_code.co_filename in self._files

    def take_violations(self) -> tuple[Violation, ...]:
        """Hand over what was attempted since the last call, oldest first, 100 at most."""
        taken = tuple(self.violations)
        self.violations.clear()
        return taken

    def refuse(self, what: str) -> PurityFault:
        """Write an attempt down, and make the fault to raise."""
        file, line = self._place()
        if len(self.violations) < _MAX_VIOLATIONS:
            self.violations.append(Violation(what, file, line))
        return PurityFault(what, where=f"{file}:{line}" if file else "")

    def spares(self, frame: FrameType | None) -> bool:
        """Tell whether a caller is the import system at its work, or a tool that measures."""
        while frame is not None and frame.f_globals.get("__name__") in _PATH_MODULES:
            frame = frame.f_back
        if frame is None:
            return False
        if any(frame.f_globals is known for known in _IMPORT_SYSTEM):
            return is_importing(frame)
        name = frame.f_globals.get("__name__")
        return self._has_coverage and isinstance(name, str) and name.startswith("coverage.")

    def _place(self) -> tuple[str, int]:
        frame: FrameType | None = _get_frame(1)
        while frame is not None:
            if self.is_policy_frame(frame):
                return frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back
        return "", 0


def is_importing(frame: FrameType | None) -> bool:
    """Tell whether the import system is at work, and not a loader called by hand."""
    while frame is not None and any(frame.f_globals is known for known in _IMPORT_SYSTEM):
        if frame.f_code.co_name == "_find_and_load":
            return True
        frame = frame.f_back
    return False


def _is_loading_stdlib(frame: FrameType | None) -> bool:
    """Tell whether a module of the standard library is being loaded, and asks as it always does."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(_STDLIB_PLACES) or "site-packages" in file:
            return False
        if frame.f_code.co_name == "<module>":
            return is_importing(frame.f_back)
        frame = frame.f_back
    return False


def make_stand_in(sealed: Sealed, what: str, original: Call, *, name: str = "") -> Call:
    """Make the function that raises in place of `original`, but for the import system.

    Args:
        sealed: writes the attempt down.
        what: kind and function, such as `clock: time.time`.
        original: called for a caller that is spared.
        name: the stand-in's own name, if it is not the original's.
    """

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        caller = _get_frame(1)
        if sealed.spares(caller) or _is_loading_stdlib(caller):
            return original(*args, **kwargs)
        raise sealed.refuse(what)

    stand_in.__name__ = stand_in.__qualname__ = name or getattr(original, "__name__", "stand_in")
    return stand_in
