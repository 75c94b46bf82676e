"""Says before anything runs whether a workflow may be trialled: no unsafe tool is reachable.

Knows declarations. The one door to a run: only `load` makes an `EligibleWorkflow`, and only that
is handed to a broker, whose tools are then exactly the ones that were judged.

Source: DESIGN.md §6 "`load` resolves each id and rejects at load time".
"""

from collections.abc import Mapping
from typing import Never

import msgspec

from redrive.audit.workflow import ToolSpec, WorkflowSpec


class Refusal(msgspec.Struct, frozen=True):
    """One tool that must not be reached.

    Attributes:
        tool: its id, aliases resolved.
        effect: the word that counts: `unsafe`, or `undeclared`, `dynamic`.
        chain: workflow → … → tool, outermost first.
        reason: one line for people.
    """

    tool: str
    effect: str
    chain: tuple[str, ...]
    reason: str


class Eligibility(msgspec.Struct, frozen=True):
    """What the check found; `refusals` is empty exactly if the workflow may run.

    Attributes:
        workflow: `ID@VERSION`.
        refusals: each tool once for each chain to it, in the order found.
        tools: ids of all tools that can be reached, sorted.
        simulated: of those, the unsafe ones whose simulator stands in, sorted.
    """

    workflow: str
    refusals: tuple[Refusal, ...] = ()
    tools: tuple[str, ...] = ()
    simulated: tuple[str, ...] = ()

    @property
    def is_eligible(self) -> bool:
        """Whether nothing was refused."""
        return not self.refusals


class EligibleWorkflow:
    """A workflow that passed the check, and the tools that it may call; only `load` makes one.

    Attributes:
        spec: the declaration.
        tools: name as called (an id or an alias of one) → the tool it stands for.
        simulated: ids of tools whose simulator is held in place of the function.
    """

    __slots__ = ("simulated", "spec", "tools")
    spec: WorkflowSpec
    tools: Mapping[str, ToolSpec]
    simulated: frozenset[str]

    def __init__(self, _: Never) -> None:
        raise TypeError("an EligibleWorkflow is made by redrive.audit.eligibility.load alone")
