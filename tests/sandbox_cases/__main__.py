"""Prints what each case did at each level, for root and for an ordinary user.

`python -m tests.sandbox_cases` as root runs both; anyone else runs the cases as oneself.
"""

import sys

from tests.sandbox_cases.running import missing_control, run_as, users

OK, ESCAPED, UNTRIED, NO_CONTROL = "contained", "ESCAPED", "not tried", "contained (no control)"


def main() -> int:
    """Print the table; the exit status is 1 where something escaped."""
    has_failed = False
    for user in users():
        found = run_as(user)
        off, *levels = found
        print(f"\n## as {user}\n\n| case | without a sandbox | {' | '.join(levels)} |")
        print("|---" * (2 + len(levels)) + "|")
        for name, control in found[off].items():
            words = ["happens" if control["seen"] else missing_control(name, user) or "NOT SEEN"]
            for level in levels:
                seen = found[level][name]
                word = NO_CONTROL if not control["seen"] else OK
                word = ESCAPED if seen["seen"] else word if seen["tried"] else UNTRIED
                has_failed |= word in (ESCAPED, UNTRIED)
                words.append(word)
            print(f"| {name} | {' | '.join(words)} |")
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main())
