"""The process that searches a pattern or checks a schema, so that it can be killed.

One JSON line comes in for each output, one goes out. A pattern that backtracks without end on a
hostile output costs its own time limit and nothing else.
"""

import json
import re
import resource
import sys
from collections.abc import Callable
from typing import Any

_MEMORY_BYTES = 2 * 2**30
_REASON_CHARS = 300
Check = Callable[[Any], tuple[bool, str]]


def make_check(kind: str, rule: Any) -> Check:
    """Make the check of a rule; what is wrong with the rule was found when it was opened."""
    if kind == "regex":
        pattern = re.compile(rule["pattern"], rule["flags"])
        return lambda text: (pattern.search(text) is not None, "")
    from redrive.graders.schemas import find_fault, make_validator

    validator = make_validator(rule)

    def check(value: Any) -> tuple[bool, str]:
        fault = find_fault(validator, value)
        return fault is None, fault or ""

    return check


def main() -> int:
    """Read a rule, then outputs; answer each with `[passed, reason]`, or `null` where it raised."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, hard))
    rule = json.loads(sys.stdin.readline())
    check = make_check(rule["kind"], rule["rule"])
    for line in sys.stdin:
        try:
            passed, reason = check(json.loads(line))
            answer: list[Any] | None = [passed, reason[:_REASON_CHARS]]
        except (RecursionError, MemoryError, ValueError, ArithmeticError) as error:
            answer = [None, f"{type(error).__name__} in the check"]
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
