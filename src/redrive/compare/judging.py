"""What a judge said of several episodes, shown in several orders, and what survives of it.

Knows orders and rankings of variants. Must not know models, prompts or how an answer was read.

Source: DESIGN.md §6 "a model judge shown several orders".
"""

import msgspec


class ShownOrder(msgspec.Struct, frozen=True, omit_defaults=True):
    """One judgement: the order shown, and the ranking that came back.

    Attributes:
        shown: variants as they were shown, first one first; unique.
        ranking: the same variants, best first; those of one inner tuple are tied. `None` where the
            judgement could not be read.
        attempt: whose episodes were shown.
        reason: one line, where it could not be read.
    """

    shown: tuple[str, ...]
    ranking: tuple[tuple[str, ...], ...] | None
    attempt: int = 1
    reason: str = ""
