"""Writes findings as SARIF 2.1.0, which viewers and CI services of static analysis read.

Knows rules and results, and how two versions of a policy become them. A place in a recording is a
logical location: it is no line of a file, and a reader that wants a file shows none.

Source: OASIS SARIF 2.1.0, §3.19 reportingDescriptor, §3.27 result, §3.33 logicalLocation.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from redrive.canonical import text_digest
from redrive.compare.policy_diff import CANNOT_EVALUATE, CHANGED, NEW, widens
from redrive.compare.policy_report import DiffEntry, PolicyDiff
from redrive.reports.escape import cut
from redrive.version import __version__

_NAME_CHARS = 500
_TEXT_CHARS = 1000
# Of a gate, what it stops outweighs what it asks; what an observer says is for information.
LEVELS = {"deny": "error", "ask": "warning"}


class Rule(msgspec.Struct, frozen=True):
    """What a result is a result of."""

    id: str
    description: str
    properties: dict[str, Any] = {}


class Result(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        level: `error`, `warning` or `note`.
        place: the event or step it was found at; its identity over runs, with the rule.
        place_kind: what the place is, a word of the design.
    """

    rule_id: str
    level: str
    message: str
    place: str
    place_kind: str = "event"
    properties: dict[str, Any] = {}


def sarif_log(rules: Iterable[Rule], results: Iterable[Result]) -> dict[str, Any]:
    """Make a SARIF 2.1.0 log of one run; texts are escaped and cut.

    Args:
        rules: with unique ids, among them the rule of each result.
        results: in the order in which they are to be shown.
    """
    listed = list(rules)
    indexes = {rule.id: place for place, rule in enumerate(listed)}
    driver = {"name": "redrive", "version": __version__, "rules": [_rule(rule) for rule in listed]}
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": driver},
                "columnKind": "unicodeCodePoints",
                "results": [_result(result, indexes[result.rule_id]) for result in results],
            }
        ],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": cut(rule.id, _NAME_CHARS),
        "shortDescription": {"text": cut(rule.description, _TEXT_CHARS)},
        "properties": _properties(rule.properties),
    }


def _result(result: Result, rule_index: int) -> dict[str, Any]:
    place = {"fullyQualifiedName": cut(result.place, _NAME_CHARS), "kind": result.place_kind}
    identity = text_digest(f"{result.rule_id}\n{result.place}")
    return {
        "ruleId": cut(result.rule_id, _NAME_CHARS),
        "ruleIndex": rule_index,
        "level": result.level,
        "message": {"text": cut(result.message, _TEXT_CHARS)},
        "locations": [{"logicalLocations": [place]}],
        "partialFingerprints": {"redrive/v1": identity},
        "properties": _properties(result.properties),
    }


def _properties(given: dict[str, Any]) -> dict[str, Any]:
    """Give a property bag; an absent value has no place in it."""
    return {
        name: cut(value, _TEXT_CHARS) if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None
    }


def policy_diff_sarif(diff: PolicyDiff) -> dict[str, Any]:
    """Make the SARIF log of two versions compared.

    A result stands for each new fire, each stricter action on a live path, and each place that
    cannot be evaluated; what is lost or the same is none.
    """
    rule = Rule(
        id=diff.policy,
        description=f"Where {diff.policy} {diff.new.get('version', '')} fires and"
        f" {diff.old.get('version', '')} did not",
        properties={"old": diff.old.get("digest"), "new": diff.new.get("digest")},
    )
    results = (_diff_result(diff.policy, e) for e in diff.entries if _is_result(e))
    return sarif_log([rule], results)


def _is_result(entry: DiffEntry) -> bool:
    return entry.change in (NEW, CANNOT_EVALUATE) or (entry.change == CHANGED and widens(entry))


def _diff_result(policy: str, entry: DiffEntry) -> Result:
    fire = entry.new
    if entry.change == CANNOT_EVALUATE or fire is None:
        message = f"cannot be evaluated {entry.fact}"
        return Result(policy, "note", message, entry.event_ref, properties={"change": entry.change})
    return Result(
        rule_id=policy,
        level=LEVELS.get(fire.action, "note"),
        message=f"{fire.action}: {fire.reason or 'no reason given'} ({entry.fact})",
        place=entry.event_ref,
        properties={
            "change": entry.change,
            "action": fire.action,
            "on_head_path": fire.on_head_path,
            "tool": fire.tool,
            "ts": fire.ts,
            "context": fire.context,
        },
    )
