"""Judges one workflow as a user names it, before anything of it runs.

Wires loading and the check. Starts no run, opens no store.

Source: DESIGN.md §6, §8 "JSON contract".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from redrive.app.trial_loading import is_json, load_json, load_workflow
from redrive.audit.eligibility import Eligibility, check_simulate, judge
from redrive.audit.workflow import NO_GRANTS, Grants, ToolSpec, WorkflowSpec
from redrive.errors import UsageError
from redrive.reports.trial_eligible import EligibleView, ReachedTool
from redrive.sandbox.door import BUBBLEWRAP, NONE, find_level


def find_eligibility(
    source: str, *, simulate: Sequence[str] = (), registry: str | None = None
) -> EligibleView:
    """Judge a workflow.

    Args:
        source: `PATH.py:NAME`, an entry point, or `PATH.json`, relative to the working folder.
        simulate: ids of tools whose simulator is to stand in.
        registry: a JSON file of tools and aliases; for a declaration as JSON alone.

    Raises:
        UsageError: there is no such thing, or it is malformed.
        PluginError: its code, or an MCP server of it, fails.
        ContainmentError: its code would have to be imported without a sandbox.
    """
    level, digest = find_level().name, ""
    if is_json(source):
        spec = load_json(source, registry)
    elif registry is not None:
        raise UsageError(
            "--registry belongs to a workflow as JSON", hint="redrive eligible WORKFLOW.json …"
        )
    else:
        loaded = load_workflow(source, Path(), level)
        spec, digest = loaded.spec, loaded.planned.digest
    check_simulate((spec,), simulate)
    # Where nothing can be run, a declaration that is only read is judged as at the best level.
    at = level if level != NONE else BUBBLEWRAP
    found = judge(spec, simulate=frozenset(simulate), level=at)
    return _view(source, spec, found, level, digest)


def _view(
    source: str, spec: WorkflowSpec, found: Eligibility, level: str, digest: str
) -> EligibleView:
    return EligibleView(
        workflow=found.workflow,
        eligible=found.is_eligible,
        refusals=found.refusals,
        tools=tuple(_reached(spec, found)),
        simulated=found.simulated,
        kind=spec.kind,
        source=source,
        digest=digest or None,
        isolation=level,
    )


def _reached(spec: WorkflowSpec, found: Eligibility) -> Iterator[ReachedTool]:
    declared: dict[str, ToolSpec] = {}
    _collect(spec, declared)
    refused = {refusal.tool for refusal in found.refusals}
    for name, chain in found.chains.items():
        tool = declared[name]
        is_simulated = name in found.simulated
        yield ReachedTool(
            tool=name,
            effect=tool.effect or "undeclared",
            chain=chain,
            origin=tool.origin,
            refused=name in refused,
            simulated=is_simulated,
            grants=_filled(NO_GRANTS if is_simulated else tool.grants),
            hints=tool.hints,
        )


def _collect(spec: WorkflowSpec, into: dict[str, ToolSpec]) -> None:
    for tool in spec.tools:
        into.setdefault(tool.id, tool)
    for inner in spec.workflows.values():
        _collect(inner, into)


def _filled(grants: Grants) -> dict[str, tuple[str, ...]]:
    names = Grants.__struct_fields__
    return {name: getattr(grants, name) for name in names if getattr(grants, name)}


def dump_view(view: EligibleView) -> dict[str, object]:
    """Give the document of a judgement."""
    fields: dict[str, object] = msgspec.to_builtins(view)
    return {"schema": "redrive.eligible", "schema_version": 1} | fields
