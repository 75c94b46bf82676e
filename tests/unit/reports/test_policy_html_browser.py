"""The page in a real browser, where one is installed."""

from itertools import pairwise

import pytest

from redrive.reports.policy_html import html_page
from tests.chromium import find_chromium, open_page
from tests.policy_documents import big, document, hostile, small

PROGRAM = find_chromium()
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

OVERFLOWS = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
FIRES = "document.querySelectorAll('details.fire').length"
DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture
def shown(tmp_path):
    """Give a tab, and a function that opens a page in it from a file."""
    with open_page(PROGRAM, tmp_path / "profile") as tab:

        def show(page, width=1280):
            path = tmp_path / "page.html"
            path.write_text(page, encoding="utf-8")
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            tab.send("Emulation.setDeviceMetricsOverride", **size)
            tab.open(path)
            tab.evaluate(DRAWN)
            return tab

        yield show


def is_quiet(tab):
    asked = [url for url in tab.requested() if not url.startswith("data:")]
    assert [url.rpartition("/")[2] for url in asked] == ["page.html"]
    assert tab.complaints() == []
    return True


def test_the_watch_sees_a_dialog_and_a_request(shown):
    tab = shown("<img src='http://127.0.0.1:9/x'><script>alert(1)</script>")
    assert "http://127.0.0.1:9/x" in tab.requested()
    assert any("javascriptDialogOpening" in entry for entry in tab.complaints())


@pytest.mark.parametrize("width", [1280, 390])
def test_hostile_text_is_shown_and_does_nothing(shown, width):
    tab = shown(html_page(hostile()), width)
    tab.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
    tab.evaluate(DRAWN)
    text = tab.evaluate("document.body.innerText")
    assert "</script><script>alert(1)</script>" in text
    assert "\\u202e" in text
    assert "\\ud800 lone" in text
    assert "\\x1b]52;c" in text
    assert tab.evaluate("document.scripts.length") == 2
    assert (
        tab.evaluate("document.querySelectorAll('main img, #main img, #main script').length") == 0
    )
    assert not tab.evaluate(OVERFLOWS)
    assert is_quiet(tab)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("made", [small(), document()])
def test_a_page_fits_its_width_and_says_what_was_found(shown, made, width):
    tab = shown(html_page(made), width)
    text = tab.evaluate("document.body.innerText")
    assert "What silence does not prove" in text
    for entry in made.reports:
        assert entry.policy in text
    assert not tab.evaluate(OVERFLOWS)
    assert is_quiet(tab)


def test_faults_stand_first_and_every_match_can_be_opened(shown):
    tab = shown(html_page(small()))
    names = tab.evaluate("[...document.querySelectorAll('section h2')].map(h => h.innerText)")
    assert names[:2] == ["unverified-claims 0.4", "no-force-push 1.2.0"]
    tab.evaluate("document.querySelectorAll('details').forEach(item => item.open = true)")
    tab.evaluate(DRAWN)
    text = tab.evaluate("document.querySelector('#p0').innerText")
    assert "user: ship the fix before noon" in text
    assert '"verification"' in text
    assert "suppressed by" in text
    assert "1 match without a recorded time" in text
    assert tab.evaluate("document.querySelectorAll('.chart svg text').length") > 2


def test_the_fire_that_suppressed_a_match_is_one_press_away(shown):
    tab = shown(html_page(small()))
    tab.evaluate("document.querySelector('#p0 .suppressed').open = true")
    tab.evaluate(DRAWN)
    tab.evaluate("document.querySelector('#p0 .suppressed button.link').click()")
    assert tab.evaluate("document.querySelector('#filter0').value").endswith("#e16")
    assert tab.evaluate("document.activeElement.tagName") == "SUMMARY"
    assert "#e16" in tab.evaluate("document.querySelector('#p0 details[open]').innerText")


def test_thousands_of_fires_come_by_and_by(shown):
    tab = shown(html_page(big()))
    assert tab.evaluate(FIRES) == 50
    more = "[...document.querySelectorAll('#p0 .more:not([hidden]) button')].at(-1)"
    assert tab.evaluate(f"{more}.innerText") == "Show 200 more"
    tab.evaluate(f"{more}.click()")
    assert tab.evaluate(FIRES) == 250
    assert "250 of 5,000 shown" in tab.evaluate("document.querySelector('#p0').innerText")
    tab.evaluate("document.querySelector('#scope0').value = 'held'")
    tab.evaluate("document.querySelector('#scope0').dispatchEvent(new Event('change'))")
    assert tab.evaluate("document.querySelectorAll('details.fire:not(.suppressed)').length") == 0
    assert is_quiet(tab)


def test_bars_narrow_the_list_and_say_so(shown):
    tab = shown(html_page(big(400, 4)))
    tab.evaluate("document.querySelector('#p0 .bars button').click()")
    assert tab.evaluate("document.querySelector('#p0 [aria-pressed=true]') !== null")
    assert " of 400, only " in tab.evaluate("document.querySelector('#p0').innerText")
    tab.evaluate("document.querySelector('#p0 .bars button').click()")
    assert tab.evaluate("document.querySelector('#p0 [aria-pressed=true]') === null")


def test_a_print_shows_every_match_opened_and_the_screen_goes_back(shown):
    tab = shown(html_page(big(300, 3)))
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.evaluate("document.querySelectorAll('details.fire[open] .body').length") == 300
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.evaluate("document.querySelectorAll('details[open]').length") == 0


def test_controls_have_names_and_headings_leave_out_no_level(shown):
    tab = shown(html_page(small()))
    assert tab.evaluate(
        "[...document.querySelectorAll('input, select')].every(c => c.labels.length)"
    )
    assert tab.evaluate(
        "[...document.querySelectorAll('button')].every(b => b.innerText || b.hidden)"
    )
    levels = tab.evaluate(
        "[...document.querySelectorAll('h1, h2, h3, h4')].map(h => Number(h.tagName[1]))"
    )
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
