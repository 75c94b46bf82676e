"""The page's listener: it stores a rater's labels, and refuses what is not that rater's browser."""

import asyncio
import http.client
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from starlette.testclient import TestClient

from redrive.app.annotating import Annotation, begin_annotation
from redrive.app.annotation_page import (
    MAX_BODY_BYTES,
    build_page,
    make_app,
    make_token,
    serve_page,
)
from redrive.compare.policy_report import FireView
from redrive.errors import StoreError, TamperError, UsageError
from redrive.stores.port import PolicyTables
from tests.chromium import Page, find_chromium, open_page
from tests.policy_reports import HOSTILE, fire, put_report
from tests.stored import opened

PORT = 8765
HOST = f"127.0.0.1:{PORT}"
TOKEN = "T" * 43
HOSTILE_FIRE = fire(
    9,
    reason=HOSTILE,
    context=HOSTILE + "<img src=x onerror=alert(2)>",
    before=(HOSTILE,),
    notes=(HOSTILE,),
    asked=HOSTILE,
    action="<b>deny</b>",
    tool=HOSTILE,
    inferences={"x": HOSTILE},
)


def begin(tables: PolicyTables, rater: str = "ann") -> Annotation:
    found = begin_annotation(tables, "no-rm", rater, itertools.count().__next__)
    assert found is not None
    return found


@pytest.fixture
def annotation(tmp_path: Path) -> Iterator[Annotation]:
    with opened(tmp_path / "store.db") as store:
        put_report(store.policies, [fire(1), fire(2), HOSTILE_FIRE])
        yield begin(store.policies)


class Client:
    """Calls the application as a browser on its own page would, but for what is changed.

    It answers inside the test's thread, as the store demands.
    """

    def __init__(self, annotation: Annotation) -> None:
        self.n_finished = 0
        app = make_app(annotation, TOKEN, PORT, self._finish)
        self._client = TestClient(app, base_url=f"http://{HOST}", raise_server_exceptions=False)

    def _finish(self) -> None:
        self.n_finished += 1

    def get(self, path: str = f"/?token={TOKEN}", **headers: str) -> Any:
        return self._client.get(path, headers=_named(headers), follow_redirects=False)

    def post(self, body: Any, path: str = "/labels", **headers: str | None) -> Any:
        own = {
            "x_redrive_token": TOKEN,
            "content_type": "application/json",
            "origin": f"http://{HOST}",
            "sec_fetch_site": "same-origin",
        } | headers
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent = {name: value for name, value in own.items() if value is not None}
        return self._client.post(path, content=data, headers=_named(sent))


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


@pytest.fixture
def client(annotation: Annotation, monkeypatch: pytest.MonkeyPatch) -> Client:
    # The client runs the application in another thread, whose store this test's is not.
    monkeypatch.setattr(annotation, "put", _kept(annotation))
    return Client(annotation)


def _kept(annotation: Annotation) -> Any:
    def put(place: int, label: str, note: str) -> None:
        if place not in range(3) or label not in ("true", "false", "unsure"):
            raise UsageError("no such item or label")
        KEPT.append((place, label, note))

    KEPT.clear()
    return put


KEPT: list[tuple[int, str, str]] = []
LABEL = {"item": 1, "label": "true", "note": "so"}


# --- what the page holds


def data_of(page: str) -> Any:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page)
    return json.loads(block)


def test_the_page_holds_every_item_and_the_rater_s_own_labels(annotation: Annotation) -> None:
    annotation.put(0, "unsure", "hm")
    data = data_of(build_page(annotation, TOKEN).body.decode())
    assert data["labels"] == [{"label": "unsure", "note": "hm"}, None, None]
    assert (data["policy"], data["rater"], data["token"]) == ("no-rm @ 1.0", "rater ann", TOKEN)
    assert [set(item) for item in data["items"]] == [
        {
            *("task", "asked", "before", "notes", "inferred", "state", "no_state"),
            *("facts", "closer", "context", "action", "reason"),
        }
    ] * 3
    assert data["question"] == "Should it have fired here?"
    assert data["criterion"].startswith("true: a careful engineer would be glad")
    assert data["next"] == "redrive policy precision no-rm"
    (item,) = (item for item in data["items"] if item["facts"][-1].endswith("#e1"))
    assert item["facts"][:3] == [
        "fire 1 of 3 in this session",
        "step 2",
        "2026-11-30 17:00:00 UTC",
    ]
    assert (item["action"], item["closer"]) == ("deny (refused)", "redrive show test:a")


def test_the_page_holds_nothing_of_another_rater(annotation: Annotation, tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as store:
        bob = begin(store.policies, "bob")
        bob.put(0, "false", "bob's secret opinion")
    page = build_page(annotation, TOKEN).body.decode()
    assert "bob" not in page
    assert data_of(page)["labels"] == [None] * 3


def test_hostile_text_stays_inside_its_block_as_plain_characters(annotation: Annotation) -> None:
    page = build_page(annotation, TOKEN).body.decode()
    (block,) = re.findall(r'id="data">(.*?)</script>', page)
    assert not set(block) & set("<>&\u2028\u202e\x1b\x07")
    assert page.count("</script>") == 2
    assert "alert(1)<" not in page
    shown = json.dumps(data_of(page), ensure_ascii=False)
    assert not set(shown) & {"\x1b", "\x07", "\u202e", "\u2028", "\ud800"}


def test_a_template_s_own_marks_in_a_recording_are_not_filled_in(tmp_path: Path) -> None:
    with opened(tmp_path / "store.db") as store:
        put_report(store.policies, [fire(1, reason="{{data}} {{script}}")])
        page = build_page(begin(store.policies), TOKEN).body.decode()
    assert data_of(page)["items"][0]["reason"] == "{{data}} {{script}}"


def test_the_policy_lets_only_the_page_s_own_script_and_style_run(client: Client) -> None:
    answer = client.get()
    policy = dict(part.strip().split(" ", 1) for part in answer.headers[CSP].split(";"))
    assert policy["default-src"] == "'none'"
    for name in ("script-src", "style-src"):
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy[name])
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert not re.search(r"\son[a-z]+=|style=|javascript:|http[s]?://", answer.text.split("id=")[0])


CSP = "content-security-policy"


def test_a_token_is_drawn_anew_and_long_enough() -> None:
    tokens = {make_token() for _ in range(50)}
    assert len(tokens) == 50
    assert all(len(token) >= 43 for token in tokens), "256 bits in base64"


# --- what is stored


def test_a_label_is_stored_and_counted(client: Client) -> None:
    answer = client.post(LABEL)
    assert (answer.status_code, KEPT) == (200, [(1, "true", "so")])
    assert client.post({"item": 0, "label": "false"}).status_code == 200
    assert KEPT[-1] == (0, "false", "")


def test_finishing_ends_the_serving(client: Client) -> None:
    assert client.post({}, "/finish").status_code == 200
    assert client.n_finished == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        {"item": "1", "label": "true"},
        {"item": 1},
        {"item": 99, "label": "true"},
        {"item": -1, "label": "true"},
        {"item": 1, "label": "maybe"},
        {"item": 1, "label": "true", "rater": "bob"},
        {"item": 1, "label": "true", "note": ["x"]},
    ],
)
def test_what_is_no_label_is_refused_and_nothing_stored(client: Client, body: Any) -> None:
    answer = client.post(body)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert KEPT == []


@pytest.mark.parametrize("error", [StoreError("the disk is full"), TamperError("damaged")])
def test_a_store_that_fails_is_said_and_no_trace_shown(
    annotation: Annotation, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    def put(*_: Any) -> None:
        raise error

    monkeypatch.setattr(annotation, "put", put)
    answer = Client(annotation).post(LABEL)
    assert (answer.status_code, answer.json()) == (503, {"error": error.message})


def test_a_fault_of_our_own_shows_no_trace(
    annotation: Annotation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(*_: Any) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(annotation, "put", put)
    answer = Client(annotation).post(LABEL)
    assert (answer.status_code, answer.text) == (500, "Internal Server Error")
    assert answer.headers["x-content-type-options"] == "nosniff"


# --- what is refused


@pytest.mark.parametrize("path", ["/", "/?token=", f"/?token={TOKEN[:-1]}", "/?token=é", "/?t=x"])
def test_without_the_token_there_is_no_page(client: Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 403
    assert "no-rm" not in answer.text


@pytest.mark.parametrize("path", ["/", f"/?token={TOKEN}", "/labels", "/nothing"])
@pytest.mark.parametrize(
    "host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"[::1]:{PORT}"]
)
def test_another_host_is_misdirected_on_every_route(client: Client, path: str, host: str) -> None:
    answer = client.get(path, host=host)
    assert answer.status_code == 421
    assert "no-rm" not in answer.text


def test_the_other_name_of_this_host_is_served(client: Client) -> None:
    assert client.get(host=f"localhost:{PORT}").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x_redrive_token": None}, 403),
        ({"x_redrive_token": TOKEN[:-1] + "U"}, 403),
        ({"x_redrive_token": ""}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"https://{HOST}"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "none"}, 403),
        ({"host": "evil.example"}, 421),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
        ({"content_type": None}, 415),
    ],
)
@pytest.mark.parametrize("path", ["/labels", "/finish"])
def test_what_another_page_could_send_is_refused_and_nothing_stored(
    client: Client, path: str, headers: dict[str, str | None], status: int
) -> None:
    assert client.post(LABEL, path, **headers).status_code == status
    assert KEPT == []
    assert client.n_finished == 0


def test_the_token_in_the_address_does_not_open_what_writes(client: Client) -> None:
    answer = client.post(LABEL, f"/labels?token={TOKEN}", x_redrive_token=None)
    assert answer.status_code == 403
    assert KEPT == []


def test_a_body_over_the_cap_is_refused(client: Client) -> None:
    largest = json.dumps(LABEL).encode().ljust(MAX_BODY_BYTES)
    assert client.post(largest).status_code == 200
    KEPT.clear()
    assert client.post(largest + b" ").status_code == 413
    assert KEPT == []


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/labels"), ("GET", "/finish"), ("PUT", "/labels"), ("GET", "/x")]
)
def test_other_methods_and_paths_do_nothing(client: Client, method: str, path: str) -> None:
    headers = {"x-redrive-token": TOKEN, "content-type": "application/json"}
    answer = client._client.request(method, path, headers=headers)
    assert answer.status_code in (404, 405)
    assert KEPT == []
    assert client.n_finished == 0


def test_a_preflight_gets_no_leave(client: Client) -> None:
    answer = client._client.options(
        "/labels",
        headers={"origin": "https://evil.example", "access-control-request-method": "POST"},
    )
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_every_answer_tells_the_browser_what_not_to_do(client: Client) -> None:
    answers = [
        client.get(),
        client.get("/"),
        client.get("/nothing"),
        client.get(host="evil.example"),
        client.post(LABEL),
        client.post(b"{"),
    ]
    for answer in answers:
        assert "default-src 'none'" in answer.headers[CSP]
        assert "frame-ancestors 'none'" in answer.headers[CSP]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert "set-cookie" not in answer.headers
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_what_is_no_http_is_not_answered(annotation: Annotation) -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError

    app = make_app(annotation, TOKEN, PORT, lambda: None)
    asyncio.run(app({"type": "websocket"}, never, never))


# --- served for real


@contextmanager
def served(
    path: Path,
    port: int = 0,
    fires: Sequence[FireView] = (fire(1), fire(2), HOSTILE_FIRE),
    rater: str = "ann",
    **report: Any,
) -> Iterator[str]:
    """Serve the page of a store from a thread of its own; give the address."""
    said: Queue[Any] = Queue()

    def run() -> None:
        with opened(path) as store:
            put_report(store.policies, list(fires), **report)
            try:
                serve_page(begin(store.policies, rater), port, said.put)
            except UsageError as error:
                said.put(error)

    thread = threading.Thread(target=run)
    thread.start()
    address = said.get(timeout=60)
    if isinstance(address, UsageError):
        thread.join()
        raise address
    try:
        yield address
    finally:
        if thread.is_alive():
            post(address, "/finish", {})
        thread.join(60)
        assert not thread.is_alive()


def split(address: str) -> tuple[str, int, str]:
    found = re.fullmatch(r"http://(127\.0\.0\.1):(\d+)/\?token=([\w-]{43})", address)
    assert found is not None
    return found[1], int(found[2]), found[3]


def post(address: str, path: str, body: Any, **headers: str) -> int:
    host, port, token = split(address)
    own = {"x-redrive-token": token, "content-type": "application/json"} | _named(headers)
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body).encode(), own)
        return connection.getresponse().status
    except ConnectionError:
        return 0
    finally:
        connection.close()


def test_labels_are_stored_while_it_is_served_and_finish_ends_it(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with served(path) as address:
        assert post(address, "/labels", LABEL) == 200
        assert post(address, "/labels", LABEL, x_redrive_token="wrong") == 403
        with opened(path, read_only=True) as store:
            (row,) = store.policies.labels(store.policies.samples()[0].id)
    assert (row.rater, row.label, row.note) == ("ann", "true", "so")


def test_it_listens_on_loopback_alone_and_says_nothing_of_its_maker(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address:
        host, port, token = split(address)
        with pytest.raises(OSError, match=r"refused|unreachable|assign"):
            socket.create_connection(("::1", port), timeout=5)
        connection = http.client.HTTPConnection(host, port, timeout=60)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        assert answer.status == 200
        assert answer.getheader("server") is None
        connection.close()


def test_headers_over_the_cap_are_refused(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address:
        assert post(address, "/labels", LABEL, x_large="x" * 100_000) in (0, 431)


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(UsageError, match=f"port {port} cannot be used"),
            served(tmp_path / "store.db", port),
        ):
            pass


# --- in a browser

STATUS = "document.getElementById('status').textContent"
SIZES = [(1280, 800), (390, 844)]
# As much of everything as a report holds.
LONG_FIRE = fire(
    1,
    asked="please " * 57,
    before=tuple("line " * 80 for _ in range(5)),
    context="\n".join("rm -rf ../build" for _ in range(100)),
    reason="deletes files outside the project, " * 8,
    state_snapshot_ref="none",
)


def resize(page: Page, width: int, height: int) -> None:
    page.send(
        "Emulation.setDeviceMetricsOverride",
        width=width,
        height=height,
        deviceScaleFactor=1,
        mobile=width < 500,
    )


def box(page: Page, selector: str) -> dict[str, float]:
    return dict(
        page.evaluate(f"document.querySelector('{selector}').getBoundingClientRect().toJSON()")
    )


@pytest.mark.parametrize(("width", "height"), SIZES)
def test_event_reason_and_question_are_seen_together_however_long_the_rest_is(
    tmp_path: Path, width: int, height: int
) -> None:
    fires = [LONG_FIRE, fire(2)]
    with served(tmp_path / "store.db", fires=fires) as address, opened_page(tmp_path) as page:
        resize(page, width, height)
        page.open(address)
        for place in (0, 1):
            page.evaluate(f"show({place})")
            top, end = box(page, "header")["bottom"], box(page, "footer")["top"]
            context, question = box(page, "#context"), box(page, "#criterion")
            assert top <= context["top"] < box(page, "#reason")["top"] < question["top"]
            assert question["bottom"] < end
        assert end >= 0.8 * height
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.documentElement.scrollHeight") == height


def test_a_note_leaves_the_header_where_it_is(tmp_path: Path) -> None:
    with served(tmp_path / "store.db", fires=[LONG_FIRE]) as address, opened_page(tmp_path) as page:
        resize(page, 390, 844)
        page.open(address)
        page.press("n")
        assert page.evaluate("document.activeElement.id") == "note"
        assert page.evaluate("note.placeholder") == "a note, stored with your label"
        assert box(page, "header")["top"] == 0
        assert page.evaluate("[scrollY, document.querySelector('header').scrollTop]") == [0, 0]


def test_names_are_shown_whole_on_a_phone(tmp_path: Path) -> None:
    path, rater = tmp_path / "store.db", "r" * 64
    with served(path, rater=rater) as address, opened_page(tmp_path) as page:
        resize(page, 390, 844)
        page.open(address)
        for name in ("policy", "rater"):
            assert page.evaluate(
                f"(e => e.scrollWidth <= e.clientWidth && getComputedStyle(e).textOverflow)"
                f"(document.getElementById('{name}'))"
            ) in ("clip", False)
            assert box(page, f"#{name}")["right"] <= 390
        assert page.evaluate("document.getElementById('rater').textContent") == f"rater {rater}"


def test_the_ends_are_ends_and_the_label_just_given_is_said(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address, opened_page(tmp_path) as page:
        page.open(address)
        assert page.evaluate(STATUS) == "no label yet"
        ends = "[...document.querySelectorAll('#previous, #next')].map((b) => b.disabled)"
        assert page.evaluate(ends) == [True, False]
        page.press("b")
        assert page.evaluate("place") == 0
        page.press("f")
        page.wait(f"{STATUS} === 'stored: false — ← to change it'")
        assert page.evaluate(f"[place, ...{ends}]") == [1, False, False]
        page.press("b")
        assert page.evaluate(f"[place, {STATUS}]") == [0, "your label: false"]
        page.evaluate("show(2)")
        assert page.evaluate(ends) == [False, True]
        page.press("u")
        page.wait(f"{STATUS} === 'stored: unsure for fire 3'")
        assert page.evaluate("place") == 1


def test_the_state_is_closed_until_it_is_asked_for(tmp_path: Path) -> None:
    fires = [LONG_FIRE, fire(2)]
    states = {"none": {"own": {}}, "s2": {"turn": 0, "own": {"n": 2}}}
    path = tmp_path / "store.db"
    with served(path, fires=fires, snapshots=states) as address, opened_page(tmp_path) as page:
        page.open(address)
        with_state = page.evaluate("data.items.findIndex((item) => item.state)")
        page.evaluate(f"show({with_state})")
        is_open = "document.getElementById('state-part').open"
        assert page.evaluate(is_open) is False
        page.press("o")
        assert page.evaluate(is_open) is True
        shown = page.evaluate("document.getElementById('state').textContent")
        assert shown.split() == ["{", '"own":', "{", '"n":', "2", "}", "}"]
        page.evaluate(f"show({1 - with_state})")
        assert page.evaluate("document.getElementById('state-part').hidden") is True
        stateless = page.evaluate("document.getElementById('stateless-part').textContent")
        assert stateless == "State: this policy reads no state"


def test_q_finishes_as_in_the_terminal(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address, opened_page(tmp_path) as page:
        page.open(address)
        page.press("q")
        page.wait(f"{STATUS}.startsWith('Stored.')")


@contextmanager
def opened_page(folder: Path) -> Iterator[Page]:
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium is installed")
    with open_page(program, folder / "profile") as page:
        yield page


def test_a_rater_labels_by_keys_and_hostile_text_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with served(path) as address, opened_page(tmp_path) as page:
        page.open(address)
        hostile = page.evaluate("data.items.findIndex((item) => item.action.startsWith('<b>'))")
        page.evaluate(f"show({hostile})")
        assert page.evaluate("document.getElementById('reason').textContent").startswith(
            "</script><scr"
        )
        assert (
            page.evaluate("document.querySelectorAll('img, b:not(button b), iframe').length") == 0
        )
        page.evaluate("show(0)")
        page.press("t")
        page.wait("place === 1")
        page.press("n")
        for letter in "fine":
            page.press(letter)
        page.press("Enter")
        page.press("f")
        page.wait("place === 2")
        page.press("ArrowLeft")
        assert (
            page.evaluate("document.querySelector('[aria-pressed=true]').dataset.label") == "false"
        )
        page.press("ArrowRight")
        page.press("u")
        page.wait(f"{STATUS}.startsWith('stored: unsure. All are labelled')")
        page.evaluate("document.getElementById('finish').click()")
        page.wait(f"{STATUS}.endsWith('redrive policy precision no-rm')")
        asked, wrong = set(page.requested()), page.complaints()
    base = address.split("?")[0]
    assert asked <= {address, f"{base}labels", f"{base}finish", "data:,"}
    assert wrong == []
    with opened(path, read_only=True) as store:
        rows = store.policies.labels(store.policies.samples()[0].id)
    assert [(row.label, row.note) for row in rows] == [
        ("true", ""),
        ("false", "fine"),
        ("unsure", ""),
    ]


@pytest.mark.parametrize(
    "order",
    [
        "note.blur(), document.querySelector('[data-label=false]').click()",
        "document.querySelector('[data-label=false]').click(), note.blur()",
    ],
)
def test_a_label_clicked_right_after_a_changed_note_is_not_lost(tmp_path: Path, order: str) -> None:
    path = tmp_path / "store.db"
    with served(path) as address, opened_page(tmp_path) as page:
        page.open(address)
        page.press("t")
        page.wait("place === 1")
        page.press("ArrowLeft")
        page.press("n")
        page.press("x")
        page.evaluate(order)
        page.wait("labels[0].label === 'false' && labels[0].note === 'x'")
        page.evaluate("sending")
    with opened(path, read_only=True) as store:
        rows = store.policies.labels(store.policies.samples()[0].id)
    assert (rows[-1].label, rows[-1].note) == ("false", "x")


def test_a_note_that_waits_for_its_label_is_not_lost_on_the_way(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address, opened_page(tmp_path) as page:
        page.open(address)
        page.press("n")
        page.press("x")
        page.evaluate("document.getElementById('next').click()")
        assert page.evaluate("note.value") == ""
        page.evaluate("document.getElementById('previous').click()")
        assert page.evaluate("note.value") == "x"
        page.evaluate("note.blur()")
        page.press("t")
        page.wait("labels[0] && labels[0].note === 'x'")


def test_a_server_that_is_gone_is_said_and_the_label_not_shown_as_stored(tmp_path: Path) -> None:
    with served(tmp_path / "store.db") as address, opened_page(tmp_path) as page:
        page.open(address)
        while post(address, "/finish", {}):
            time.sleep(0.05)
        page.press("t")
        page.wait("document.getElementById('status').classList.contains('bad')")
        assert page.evaluate("labels.every((label) => label === null)")
        assert page.evaluate("place") == 0
