"""What a workflow under trial is made of: declare tools, and a workflow that uses them.

A first workflow takes ten minutes: docs/workflows.md.
"""

from redrive.audit.effects import Effect
from redrive.audit.workflow import Grants, WorkflowSpec
from redrive.errors import EffectDenied
from redrive.trial_tools import Fixture, FixtureMissError, Tool, tool
from redrive.trial_workflow import (
    CommandWorkflow,
    McpServer,
    Step,
    Subagent,
    Workflow,
    WorkflowContext,
    find_tools,
    to_spec,
)

__all__ = [
    "CommandWorkflow",
    "Effect",
    "EffectDenied",
    "Fixture",
    "FixtureMissError",
    "Grants",
    "McpServer",
    "Step",
    "Subagent",
    "Tool",
    "Workflow",
    "WorkflowContext",
    "WorkflowSpec",
    "find_tools",
    "to_spec",
    "tool",
]
