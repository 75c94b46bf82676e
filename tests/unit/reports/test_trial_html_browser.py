"""The page in a real browser: hostile text does nothing, a wide matrix scrolls inside its box."""

import pytest

from redrive.reports.trial_html import trial_page
from tests.chromium import Page, find_chromium, open_page
from tests.policy_documents import HOSTILE_TEXTS
from tests.trial_reports import report_of_size

CHROMIUM = find_chromium()
WIDTHS = ((1280, 900), (390, 844))


@pytest.fixture
def browser(tmp_path):
    if CHROMIUM is None:
        pytest.skip("no Chromium here")

    def visit(report, look):
        path = tmp_path / "trial.html"
        path.write_text(trial_page(report), encoding="utf-8")
        with open_page(CHROMIUM, tmp_path / "profile") as page:
            page.open(path)
            look(page)
            assert page.requested() == [path.as_uri()]
            assert page.complaints() == []

    return visit


def test_hostile_text_opens_no_dialog_and_asks_for_nothing(browser) -> None:
    text = "".join(HOSTILE_TEXTS) + '"><svg onload=alert(2)>'

    def look(page: Page) -> None:
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert page.evaluate("document.scripts.length") == 0
        shown = page.evaluate("document.body.textContent")
        assert "<img src=x onerror=alert(1)>" in shown
        assert "</script><script>alert(1)</script>" in shown

    browser(report_of_size(n_ended=20, text=text), look)


def test_no_width_makes_the_page_scroll_sideways(browser) -> None:
    def look(page: Page) -> None:
        for width, height in WIDTHS:
            page.send(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            box = "document.querySelector('.matrix')"
            assert page.evaluate(f"{box}.scrollWidth > {box}.clientWidth")
            assert page.evaluate(f"{box}.scrollHeight > {box}.clientHeight")
            page.evaluate(f"{box}.scrollLeft = 400; {box}.scrollTop = 400")
            head = f"{box}.querySelector('thead th').getBoundingClientRect()"
            place = f"{box}.getBoundingClientRect()"
            # The corner stays in place: head and first column are always in sight.
            assert page.evaluate(f"Math.abs({head}.left - {place}.left) < 3")
            assert page.evaluate(f"Math.abs({head}.top - {place}.top) < 3")
        page.send("Emulation.setEmulatedMedia", media="print")
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.matrix')).maxHeight") == "none"
        )

    browser(report_of_size(10, 60), look)
