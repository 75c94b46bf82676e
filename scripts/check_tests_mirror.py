"""Hold that `tests/unit` mirrors `src/redrive`.

`tests/unit/PACKAGE/test_MODULE[_SUFFIX].py` tests `src/redrive/PACKAGE/MODULE`; a test file without
such a module fails, so that a module's tests are found where its name says.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def has_module(test: Path, source: Path) -> bool:
    """Tell whether a test file mirrors a module or package.

    Args:
        test: path below `tests/unit`, such as `record/test_event_order.py`.
        source: the folder of the source package.
    """
    words = test.stem.removeprefix("test_").split("_")
    folder = source / test.parent
    stems = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return any(
        (folder / f"{prefix}{stem}.py").is_file() or (folder / stem / "__init__.py").is_file()
        for stem in stems
        for prefix in ("", "_")
    )


def main() -> int:
    """Check every test file below `tests/unit`; give the exit status."""
    unit = ROOT / "tests" / "unit"
    has_failed = False
    for path in sorted(unit.rglob("test_*.py")):
        if not has_module(path.relative_to(unit), ROOT / "src" / "redrive"):
            has_failed = True
            print(f"{path.relative_to(ROOT)}: no module of that name in src/redrive")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
