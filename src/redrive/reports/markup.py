"""Builds HTML whose every text is inert: what is no `Markup` is escaped when it is put in.

Knows elements and attributes. Must not know what a page shows.

Text of recordings goes in as plain `str`: what a reader cannot see (control characters, bidi
overrides, lone surrogates) becomes visible, and `<`, `>`, `&` and quotes become references.
"""

from base64 import b64encode
from hashlib import sha256
from html import escape as escape_markup

from redrive.reports.escape import escape

# Closed by themselves: HTML ignores the slash, and within SVG an open one would hold what follows.
_EMPTY = frozenset({"link", "meta", "rect"})


class Markup(str):
    """HTML that is safe as it stands; only functions of this module make it."""

    __slots__ = ()


def element(tag: str, *children: str, **attributes: str) -> Markup:
    """Make an element.

    Args:
        tag: its name, never text of a recording.
        children: texts, escaped here, and markup, taken as it is.
        attributes: an underscore stands for a hyphen, one at the end for nothing; empty values are
            left out.
    """
    named = (
        f' {name.rstrip("_").replace("_", "-")}="{escape_markup(escape(value))}"'
        for name, value in attributes.items()
        if value
    )
    opening = f"<{tag}{''.join(named)}"
    if tag in _EMPTY:
        return Markup(f"{opening}/>")
    return Markup(f"{opening}>{joined(*children)}</{tag}>")


def joined(*children: str) -> Markup:
    """Put texts and markup behind each other."""
    return Markup("".join(map(_child, children)))


def style_sheet(text: str) -> Markup:
    """Take a style sheet of redrive's own as it is."""
    return Markup(f"<style>{text}</style>")


def style_policy(text: str) -> str:
    """Allow exactly one inline style sheet, and nothing else, from nowhere: no script at all."""
    digest = b64encode(sha256(text.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none';"
        " form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def page(title: str, style: str, *body: str) -> str:
    """Make a whole page that loads nothing and runs nothing."""
    head = joined(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=style_policy(style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="robots", content="noindex"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        style_sheet(style),
    )
    return "<!DOCTYPE html>\n" + element(
        "html", element("head", head), element("body", *body), lang="en"
    )


def _child(child: str) -> str:
    return child if isinstance(child, Markup) else escape_markup(escape(child, keep_lines=True))
