"""Writes a policy replay as one HTML file that needs no server and loads nothing.

Knows the template `policy.html` and how data gets into it. Must not know how the page looks: the
template's own script draws it, from a JSON block, by text nodes alone.

Source: docs on hostile input: hostile text only inside a JSON script block with `<` escaped; CSP
`default-src 'none'` with hashes for the inline script and style.
"""

import re
from base64 import b64encode
from hashlib import sha256
from html import escape as escape_markup
from importlib.resources import files
from typing import Any

import msgspec

from redrive import canonical
from redrive.compare.policy_report import PolicyDocument
from redrive.reports.escape import cut, escape_json
from redrive.reports.policy import headline

TEXT_CHARS = 4000
_NAME_CHARS = 200
_PLACE = re.compile(r"@@([A-Z]+)@@")
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def html_page(document: PolicyDocument) -> str:
    """Write the page: one self-contained file, the same for the same document.

    Returns:
        HTML that UTF-8 can carry, whatever the recording holds. Texts of more than `TEXT_CHARS`
        characters are cut with their length; the JSON report has them whole.
    """
    template = files("redrive.reports").joinpath("policy.html").read_text(encoding="utf-8")
    parts = {
        "CSP": content_security_policy(template),
        "NOSCRIPT": _plain(document),
        "DATA": json_block(document),
    }
    # In one pass: what was put in is not searched for further places.
    return _PLACE.sub(lambda place: parts[place[1]], template)


def content_security_policy(page: str) -> str:
    """Allow exactly the inline script and style of a page, and nothing from anywhere else."""
    hashes: dict[str, list[str]] = {"script": [], "style": []}
    for tag, text in _INLINE.findall(page):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        hashes[tag].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; script-src {' '.join(hashes['script'])};"
        f" style-src {' '.join(hashes['style'])}; img-src data:; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def json_block(value: Any) -> str:
    """Write a value as JSON that no HTML parser can leave early and no editor obeys."""
    data = escape_json(canonical.encode(_shortened(msgspec.to_builtins(value))))
    text = data.decode()
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _shortened(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARS:
        return f"{value[:TEXT_CHARS]}… ({len(value)} characters)"
    if isinstance(value, dict):
        return {key: _shortened(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_shortened(inner) for inner in value]
    return value


def _plain(document: PolicyDocument) -> str:
    """Give the headline figures for a reader without scripts."""
    lines = ["Policy replay. This page draws its details by a script, which is not running here."]
    if document.is_partial:
        lines.append(f"Partial: {len(document.sessions_left)} sessions were not replayed.")
    for report in document.reports:
        name = cut(f"{report.policy} {report.version}", _NAME_CHARS)
        violated = [n for n, check in report.invariant_checks.items() if check.status == "fail"]
        broken = f", invariants violated: {cut(', '.join(violated), _NAME_CHARS)}"
        lines.append(f"{name}: {headline(report)}{broken if violated else ''}.")
    lines.append(cut(document.coverage, TEXT_CHARS))
    return "".join(f"<p>{escape_markup(line)}</p>" for line in lines)
