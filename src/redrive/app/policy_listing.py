"""Lists the policies and inferences that are installed; nothing of them is run."""

import ast
from collections.abc import Mapping
from typing import Any

from redrive import plugins
from redrive.errors import RedriveError
from redrive.policies.inferences import INFERENCES
from redrive.sandbox.loading import read_policy_module


def list_policies() -> dict[str, Any]:
    """Give each policy with its lane and first docstring line, read from its source."""
    policies = [_describe(name, target) for name, target in plugins.targets(plugins.POLICIES)]
    inferences = [{"name": i.name, "version": i.version} for i in INFERENCES.values()]
    return {"policies": policies, "inferences": inferences}


def _describe(name: str, target: str) -> Mapping[str, str]:
    module, _, attribute = target.partition(":")
    try:
        text = read_policy_module(module).text
    except RedriveError as error:
        return {"name": name, "target": target, "lane": "", "version": "", "what": error.message}
    found = next(
        (n for n in ast.parse(text).body if isinstance(n, ast.ClassDef) and n.name == attribute),
        None,
    )
    doc = "" if found is None else (ast.get_docstring(found) or "").partition("\n")[0]
    fields = {} if found is None else _literals(found)
    return {
        "name": name,
        "target": target,
        "lane": str(fields.get("lane", "observer")),
        "version": str(fields.get("version", "0")),
        "what": doc,
    }


def _literals(found: ast.ClassDef) -> dict[str, object]:
    """Give the class attributes that are written as literals."""
    values: dict[str, object] = {}
    for node in found.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and isinstance(node, ast.Assign):
            try:
                values[target.id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return values


def declared_lane(text: str, attribute: str) -> str:
    """Give the lane that a policy's text declares as a literal; `observer` where it does not."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return "observer"
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == attribute:
            lane = _literals(node).get("lane", "observer")
            return "gate" if lane == "gate" else "observer"
    return "observer"
