"""Hold the branch coverage of the functional core, read from coverage's JSON report.

Usage: check_core_coverage.py coverage.json
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

CORE_MINIMUM = 100
CORE = (
    "src/redrive/record/",
    "src/redrive/audit/",
    "src/redrive/replay/",
    "src/redrive/compare/",
    "src/redrive/canonical.py",
    "src/redrive/errors.py",
)


def find_core_files(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Pick the core's entries of a report, keyed by path with forward slashes."""
    files = {name.replace("\\", "/"): entry for name, entry in report["files"].items()}
    return {name: entry for name, entry in files.items() if name.startswith(CORE)}


def find_gaps(report: Mapping[str, Any], minimum: float) -> Iterator[str]:
    """Yield a message per core file whose lines and branches are covered less than `minimum` %."""
    for name, entry in sorted(find_core_files(report).items()):
        summary = entry["summary"]
        total = summary["num_statements"] + summary["num_branches"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        if covered * 100 < minimum * total:
            lines = ", ".join(str(line) for line in entry["missing_lines"])
            branches = ", ".join(f"{a}->{b}" for a, b in entry["missing_branches"])
            yield (
                f"{name}: {100 * covered / total:.1f} %, wanted {minimum} %;"
                f" lines [{lines}], branches [{branches}]"
            )


def main(arguments: list[str]) -> int:
    """Check the report named by the only argument; give the exit status."""
    report = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    if not report["meta"]["branch_coverage"]:
        print("the report holds no branch coverage")
        return 1
    if not find_core_files(report):
        print("the report holds no file of the core")
        return 1
    gaps = list(find_gaps(report, CORE_MINIMUM))
    for gap in gaps:
        print(gap)
    if not gaps:
        print(f"core coverage: {CORE_MINIMUM} % of {len(find_core_files(report))} files")
    return int(bool(gaps))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
