"""Ranks variants by the games that their episodes played against each other, task by task.

Knows results of pairs. Must not know who judged them, nor what an episode is.

Source: DESIGN.md §6 "Grading is group-wise".
"""

from typing import Literal

import msgspec

PairOutcome = Literal["first", "second", "tie", "inconclusive"]


class PairResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One game: the episodes of two variants on one task, compared.

    Attributes:
        task_id: the block that the game belongs to.
        first, second: labels of two different variants; which of them stands first means nothing.
        outcome: who won; `inconclusive` is no result at all, never a loss.
        attempt: which episodes of the task met; variants meet on the same attempt, that is seed.
        position_dependent: a tie since the judge contradicted itself when the order changed.
    """

    task_id: str
    first: str
    second: str
    outcome: PairOutcome
    attempt: int = 1
    position_dependent: bool = False
