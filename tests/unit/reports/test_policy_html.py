import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser

import msgspec
import pytest

from redrive.reports.policy_html import TEXT_CHARS, content_security_policy, html_page, json_block
from tests.policy_documents import (
    HOSTILE_TEXTS,
    big,
    document,
    hostile,
    plain,
    report,
    small,
)


class Parsed(HTMLParser):
    """The tags of a page, and the text of each element that holds raw text."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.raw, self.text, self._open = [], [], "", None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open in ("script", "style"):
            self.raw.append((self._open, data))
        else:
            self.text += data


def data_of(page):
    attributes = [attrs for tag, attrs in Parsed(page).tags if tag == "script"]
    assert attributes == [{"type": "application/json", "id": "data"}, {}]
    return json.loads(next(text for tag, text in Parsed(page).raw if tag == "script"))


def test_the_page_holds_the_document_as_data():
    assert data_of(html_page(small())) == json.loads(msgspec.json.encode(small()))


def test_the_policy_allows_exactly_the_inline_script_and_style():
    page = html_page(hostile(""))
    (policy,) = (
        attrs["content"]
        for tag, attrs in Parsed(page).tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    raw = Parsed(page).raw
    digests = {
        tag: f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
        for tag, text in raw
        if not text.startswith("{")
    }
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == digests["script"]
    assert rules["style-src"] == digests["style"]
    assert rules["img-src"] == "data:"
    assert "unsafe" not in policy
    assert policy in (content_security_policy(page), policy)


@pytest.mark.parametrize("text", ["", *HOSTILE_TEXTS])
def test_hostile_text_adds_no_tag(text):
    tags = [tag for tag, _ in Parsed(html_page(small())).tags]
    made = document(report(policy=text, version=text), coverage=text)
    found = [tag for tag, _ in Parsed(html_page(made)).tags]
    assert [tag for tag in found if tag != "p"] == [tag for tag in tags if tag != "p"]


def test_a_hostile_page_is_text_that_any_file_and_editor_takes():
    page = html_page(hostile())
    assert page.encode()
    assert page.replace("\n", "").isprintable()
    assert len(page) < 200_000


def test_data_keeps_lone_surrogates_and_what_ends_a_script():
    value = {text: [text, 1, None, True] for text in HOSTILE_TEXTS}
    block = json_block(value)
    assert json.loads(block) == value
    assert not set("<>&") & set(block)


def test_long_texts_are_cut_with_their_length():
    assert json.loads(json_block(["x" * TEXT_CHARS])) == ["x" * TEXT_CHARS]
    (cut,) = json.loads(json_block(["x" * (TEXT_CHARS + 1)]))
    assert cut == f"{'x' * TEXT_CHARS}… ({TEXT_CHARS + 1} characters)"


def test_nothing_is_loaded_from_anywhere():
    tags = Parsed(html_page(big(10, 2))).tags
    linked = [attrs[name] for _, attrs in tags for name in ("src", "href") if name in attrs]
    assert linked == ["data:,", "#main"]
    assert not [tag for tag, _ in tags if tag in ("iframe", "object", "embed", "form", "base")]
    style = next(text for tag, text in Parsed(html_page(small())).raw if tag == "style")
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_script_writes_text_alone():
    script = [text for tag, text in Parsed(html_page(small())).raw if tag == "script"][-1]
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert name not in script
    for name in ("fetch(", "XMLHttpRequest", "sendBeacon", "localStorage", "import("):
        assert name not in script


def test_a_reader_without_scripts_gets_the_headline_figures():
    text = Parsed(html_page(small())).text
    assert "no-force-push 1.2.0: fired 4 on the head path (5 on all branches)" in text
    assert "2 faults" in text
    assert "invariants violated: loop_free" in text
    assert "It cannot show where it should have fired" in text
    partial = document(is_partial=True, sessions_left=("a",))
    assert "Partial: 1 sessions were not replayed" in Parsed(html_page(partial)).text


def test_a_place_holder_in_a_recording_is_no_place():
    made = document(report(policy="@@DATA@@ @@CSP@@"))
    assert data_of(html_page(made)) == json.loads(json.dumps(plain(made)))


def test_the_same_document_gives_the_same_page():
    assert html_page(small()) == html_page(small())
