"""Prints what each case did at each level, for root and for an ordinary user.

`python -m tests.sandbox_cases` as root runs both; anyone else runs the cases as oneself.
"""

import sys
from collections.abc import Iterator

from tests.sandbox_cases.matrix import OFF
from tests.sandbox_cases.running import missing_control, run_as, run_workflows_as, users

OK, ESCAPED, UNTRIED, NO_CONTROL = "contained", "ESCAPED", "NOT TRIED", "contained (no control)"
NOT_SEEN, HAPPENS = "NOT SEEN", "happens"
_BAD = (ESCAPED, UNTRIED, NOT_SEEN)


def _cases(user: str) -> Iterator[list[str]]:
    found = run_as(user)
    levels = [level for level in found if level != OFF]
    yield ["case", "without a sandbox", *levels]
    for name, control in found[OFF].items():
        row = [name, HAPPENS if control["seen"] else missing_control(name, user) or NOT_SEEN]
        for level in levels:
            one = found[level][name]
            word = OK if control["seen"] else NO_CONTROL
            row.append(ESCAPED if one["seen"] else word if one["tried"] else UNTRIED)
        yield row


def _tricks(user: str) -> Iterator[list[str]]:
    found = run_workflows_as(user)
    levels = [level for level in found if level != OFF]
    yield ["trick of a workflow", "without a sandbox", *levels]
    for name, seen in found[OFF]["seen"].items():
        words = [ESCAPED if found[level]["seen"][name] else OK for level in levels]
        yield [name, HAPPENS if seen else NOT_SEEN, *words]


def main() -> int:
    """Print the tables; the exit status is 1 where something escaped, or showed nothing."""
    has_failed = False
    for user in users():
        for make in (_cases, _tricks):
            print(f"\nAs {user}:\n")
            for number, row in enumerate(make(user)):
                print(f"| {' | '.join(row)} |")
                if number == 0:
                    print(f"|{'---|' * len(row)}")
                has_failed |= any(word in _BAD for word in row)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
