"""Whatever text goes into a page comes out as that text, and as nothing else."""

from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redrive.reports.escape import escape
from redrive.reports.markup import Markup, element, joined, page, style_policy
from tests.policy_documents import HOSTILE_TEXTS


class Parsed(HTMLParser):
    """The tags of a page with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


@given(st.text())
def test_any_text_is_text(text: str) -> None:
    parsed = Parsed(element("p", text, title=text))
    assert [tag for tag, _ in parsed.tags] == ["p"]
    assert parsed.text.replace("\r", "") == escape(text, keep_lines=True).replace("\r", "")
    assert parsed.tags[0][1].get("title") == (escape(text) or None)


def test_markup_is_taken_as_it_is_and_what_is_made_of_it_is_text_again() -> None:
    inner = element("b", "<x>")
    assert element("p", inner) == "<p><b>&lt;x&gt;</b></p>"
    assert element("p", f"{inner}") == "<p>&lt;b&gt;&amp;lt;x&amp;gt;&lt;/b&gt;</p>"
    assert isinstance(joined(inner, "&"), Markup)
    assert joined(inner, "&") == "<b>&lt;x&gt;</b>&amp;"


def test_attributes_are_named_and_left_out_where_empty() -> None:
    assert element("p", class_="a", aria_hidden="", data_x='"') == (
        '<p class="a" data-x="&quot;"></p>'
    )
    assert element("rect", width="1") == '<rect width="1"/>'


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_page_allows_its_one_style_and_nothing_else(text: str) -> None:
    style = "p { color: red; }"
    made = page(text, style, element("p", text))
    assert made.encode()
    digest = b64encode(sha256(style.encode()).digest()).decode()
    policy = style_policy(style)
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "script-src" not in policy
    assert "unsafe" not in policy
    tags = Parsed(made).tags
    assert [tag for tag, _ in tags if tag not in ("meta", "link")] == [
        *("html", "head", "title", "style", "body", "p"),
    ]
    assert ("meta", {"http-equiv": "Content-Security-Policy", "content": policy}) in tags
