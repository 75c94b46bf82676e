"""Prints every figure beside its goal, one line each; see docs/performance.md.

Run: python -m benchmarks [--quick] [--tracefork] [NAME…]
"""

import argparse
import sys
from collections.abc import Callable, Iterator

from benchmarks import (
    auditing,
    divergence,
    evidence,
    importing,
    policies,
    recording,
    relaying,
    replaying,
    starting,
    tracefork,
)
from benchmarks.paired import Figure, line_of

PROGRAMS: dict[str, Callable[..., Iterator[Figure]]] = {
    "evidence": evidence.figures,
    "divergence": divergence.figures,
    "audit": auditing.figures,
    "import": importing.figures,
    "start": starting.figures,
    "replay": replaying.figures,
    "policy": policies.figures,
    "record": recording.figures,
    "relay": relaying.figures,
}


def main(arguments: list[str]) -> int:
    """Measure what is named, or everything; exits 0 whether goals are met or not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure redrive.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--quick", action="store_true", help="smaller inputs, for a short look")
    parser.add_argument("--tracefork", action="store_true", help="measure tracefork 1.0 beside it")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.names if name not in PROGRAMS]
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(PROGRAMS)}")
    missed = 0
    for name in chosen.names or PROGRAMS:
        for figure in PROGRAMS[name](is_quick=chosen.quick):
            missed += not figure.is_met
            print(line_of(figure), flush=True)
    if chosen.tracefork:
        print(tracefork.report(is_quick=chosen.quick), flush=True)
    print(f"{missed} goals missed" if missed else "every goal met")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
